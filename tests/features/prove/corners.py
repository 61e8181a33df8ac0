"""Kernels whose properties fail in a corner: none of them may be called proved.

Each is bound with the property that it breaks, see `BREAKS`. Most are right on almost
all inputs, and a search would need luck to meet the one that they are wrong on.
"""

from collections.abc import Callable
from typing import Any, Final

import torch
import triton
import triton.language as tl
from torch import Tensor

import kfuzz
from kfuzz import strategies as ks
from kfuzz.contracts import operators as ops

BLOCK: Final = 128
LOADS: Final = "loads in bounds"
STORES: Final = "stores in bounds"
APART: Final = "stores of programs apart"
WHOLE: Final = "results stored whole"
INT32: Final = "no 32-bit overflow"

BREAKS: Final[dict[str, str]] = {}
"""The property that each kernel breaks, by the kernel's name."""


def _same(x: Any) -> Any:
    return x.clone()


LINE: Final = kfuzz.reference(_same, inputs={"x": ks.tensors("N")}, name="line")
TABLE: Final = kfuzz.reference(_same, inputs={"x": ks.tensors("M N")}, name="table")


def breaks(
    name: str, operator: Any = LINE, **claims: Any
) -> Callable[[Callable[..., Any]], Any]:
    """Bind a kernel, and note the property that it breaks."""

    def bound(function: Callable[..., Any]) -> Any:
        BREAKS[function.__name__] = name
        return kfuzz.kernel(operator, **claims)(function)

    return bound


def _programs(n: int) -> tuple[int]:
    return (triton.cdiv(n, BLOCK),)


@triton.jit
def _residue(x, y, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    end = n + (n % 97 == 13).to(tl.int32)
    tl.store(y + offs, tl.load(x + offs, mask=offs < n), mask=offs < end)


@breaks(STORES)
def one_more_at_one_residue(x: Tensor) -> Tensor:
    x, y = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
    _residue[_programs(x.numel())](x, y, x.numel(), BLOCK=BLOCK)
    return y


@triton.jit
def _whole(x, y, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + offs, tl.load(x + offs, mask=offs < n), mask=offs < n)


@breaks(WHOLE)
def grid_rounds_down(x: Tensor) -> Tensor:
    x, y = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
    _whole[(max(x.numel() // BLOCK, 1),)](x, y, x.numel(), BLOCK=BLOCK)
    return y


@breaks(WHOLE)
def nothing_launched_for_long_ones(x: Tensor) -> Tensor:
    x, y = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
    if x.numel() < 4000:
        _whole[_programs(x.numel())](x, y, x.numel(), BLOCK=BLOCK)
    return y


@triton.jit
def _place(row, stride):
    return row * stride


@triton.jit
def _rows(x, y, sx, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for start in range(0, n, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        v = tl.load(x + _place(row, sx) + offs, mask=offs < n)
        tl.store(y + row.to(tl.int64) * n + offs, v, mask=offs < n)


@breaks(INT32, TABLE)
def product_of_32_bits_in_a_function(x: Tensor) -> Tensor:
    x = x if x.stride(1) == 1 else x.contiguous()
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    _rows[(x.shape[0],)](x, y, x.stride(0), x.shape[1], BLOCK=BLOCK)
    return y


@triton.jit
def _backwards(x, y, n, step, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + offs, mask=offs < n)
    tl.store(y + (n - 1) + offs * step, v, mask=offs <= n)


@breaks(STORES)
def one_before_the_first(x: Tensor) -> Tensor:
    x, y = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
    _backwards[_programs(x.numel())](x, y, x.numel(), -1, BLOCK=BLOCK)
    return y


@triton.jit
def _twice(x, y, z, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + offs, mask=offs < n)
    tl.store(y + offs, v, mask=offs < n)
    tl.store(z + offs, v, mask=offs < n)


@breaks(APART)
def results_that_overlap(x: Tensor) -> Tensor:
    x, n = x.contiguous(), x.numel()
    room = torch.empty(2 * n, dtype=x.dtype, device=x.device)
    _twice[_programs(n)](x, room[:n], room[n - 1 :], n, BLOCK=BLOCK)
    return room[:n]


@breaks(APART, TABLE)
def rows_that_are_one(x: Tensor) -> Tensor:
    x = x.contiguous()
    y = torch.empty((1, x.shape[1]), dtype=x.dtype, device=x.device).expand(x.shape)
    _strided[(x.shape[0],)](x, y, *y.stride(), x.shape[1], BLOCK=BLOCK)
    return y


@triton.jit
def _strided(x, y, sm, sn, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    for start in range(0, n, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * n + offs, mask=offs < n)
        tl.store(y + row * sm + offs.to(tl.int64) * sn, v, mask=offs < n)


@triton.jit
def _until(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK
    while i < n:
        offs = i + tl.arange(0, BLOCK)
        tl.store(y + offs, tl.load(x + offs, mask=offs < n), mask=i < n)
        i += tl.num_programs(0) * BLOCK


@breaks(STORES)
def while_the_first_lane_is_in(x: Tensor) -> Tensor:
    x, y = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
    _until[(2,)](x, y, x.numel(), BLOCK=BLOCK)
    return y


@triton.jit
def _chosen(x, y, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + offs, mask=offs < n)
    tl.store(y + offs, v, mask=(offs < n) & (v != 777.0))


@breaks(WHOLE)
def one_value_is_left_out(x: Tensor) -> Tensor:
    x, y = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
    _chosen[_programs(x.numel())](x, y, x.numel(), BLOCK=BLOCK)
    return y


@triton.jit
def _followed(x, y, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + offs, mask=offs < n, other=0.0)
    way = tl.where(v > 1e6, v.to(tl.int32), 0)
    tl.store(y + offs, tl.load(x + way, mask=offs < n), mask=offs < n)


@breaks(LOADS)
def a_large_value_is_a_place(x: Tensor) -> Tensor:
    x, y = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
    _followed[_programs(x.numel())](x, y, x.numel(), BLOCK=BLOCK)
    return y


@triton.jit
def _last_again(x, y, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + offs, tl.load(x + offs, mask=offs < n), mask=offs < n)
    if (pid == tl.num_programs(0) - 1) & (n % BLOCK == 1):
        tl.store(y, 0.0)


@breaks(APART)
def the_last_program_stores_the_first_too(x: Tensor) -> Tensor:
    x, y = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
    _last_again[_programs(x.numel())](x, y, x.numel(), BLOCK=BLOCK)
    return y


@triton.jit
def _leaves(x, y, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)
    if (pid == tl.num_programs(0) - 1) & (n % BLOCK == 1) & (pid > 2):
        return
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + offs, tl.load(x + offs, mask=offs < n), mask=offs < n)


@breaks(WHOLE)
def the_last_program_may_leave(x: Tensor) -> Tensor:
    x, y = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
    _leaves[_programs(x.numel())](x, y, x.numel(), BLOCK=BLOCK)
    return y


@triton.jit
def _begun(x, y, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    if tl.program_id(0) == 0:
        tl.store(y + tl.arange(0, 1), tl.zeros([1], tl.float32))
    v = tl.load(x + offs, mask=offs < n, other=0.0).to(tl.float32)
    tl.atomic_add(y + offs * 0, v, mask=offs < n)


@breaks(APART, ops.sum)
def one_program_begins_the_sum(x: Tensor, dim: int = -1) -> Tensor:
    x, y = x.contiguous(), torch.empty((), dtype=x.dtype, device=x.device)
    _begun[_programs(x.numel())](x, y, x.numel(), BLOCK=BLOCK)
    return y


@triton.jit
def _flagged(x, y, n):
    place, flag = 0, tl.load(x) > 0
    for i in range(0, n):
        tl.store(y + i, tl.load(x + i))
        tl.store(y + n, 1.0, mask=(place != i) & (place != 2 * i))
        place += tl.where(flag, 1, 2)
        flag = tl.load(x + i) > 0


@breaks(STORES)
def steps_that_a_flag_chooses(x: Tensor) -> Tensor:
    x, y = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
    _flagged[(1,)](x, y, x.numel())
    return y


@triton.jit
def _lanes(x, y, sm, sn, m, n, BLOCK: tl.constexpr):
    rows, lanes = tl.arange(0, BLOCK), tl.arange(0, BLOCK)
    places = lanes * sn  # of columns, and the mask is of rows
    few = (rows < m) & (rows * sn.to(tl.int64) < 1000)
    mask = few[:, None] & (lanes < n)[None, :]
    at = x + rows[:, None].to(tl.int64) * sm + places[None, :]
    to = y + rows[:, None].to(tl.int64) * n + lanes[None, :]
    tl.store(to, tl.load(at, mask=mask), mask=mask)


@breaks(INT32, TABLE)
def a_product_of_other_lanes_than_the_mask(x: Tensor) -> Tensor:
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    _lanes[(1,)](x, y, *x.stride(), *x.shape, BLOCK=BLOCK)
    return y


@triton.jit
def _after_the_first(x, y, sm, sn, m, n, BLOCK: tl.constexpr):
    rows, lanes = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    mask = (rows < m) & (lanes < n) & (lanes > 0)
    at = x + rows * sm + lanes.to(tl.int64) * sn
    tl.store(y + rows.to(tl.int64) * n + lanes, tl.load(at, mask=mask), mask=mask)


@breaks(INT32, TABLE)
def a_product_where_the_first_lane_is_left_out(x: Tensor) -> Tensor:
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    _after_the_first[(1,)](x, y, *x.stride(), *x.shape, BLOCK=BLOCK)
    return y


@triton.jit
def _turned(x, y, sm, m, n, BLOCK: tl.constexpr):
    rows = tl.arange(0, BLOCK)[:, None] + tl.zeros([BLOCK, BLOCK], tl.int32)
    mask = (rows * sm.to(tl.int64) < 1000) & (tl.arange(0, BLOCK)[None, :] < n)
    at = tl.trans(rows * sm)  # of columns now
    tl.store(y + tl.trans(rows), tl.load(x + at, mask=mask), mask=mask & (rows < 1))


@breaks(INT32, TABLE)
def a_product_that_is_transposed(x: Tensor) -> Tensor:
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    _turned[(1,)](x.T, y, x.stride(1), *x.shape, BLOCK=BLOCK)
    return y


@triton.jit
def _counted(x, y, n, BLOCK: tl.constexpr):
    for i in range(0, n + 1048000, BLOCK):
        offs = i + tl.arange(0, BLOCK).to(tl.int64)
        tl.store(y + offs, tl.load(x + offs, mask=offs < n), mask=offs < n)


@breaks(INT32)
def a_counter_that_wraps(x: Tensor) -> Tensor:
    x, y = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
    _counted[(1,)](x, y, x.numel(), BLOCK=1024)
    return y


@triton.jit
def _greatest(x, y, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + offs, tl.load(x + offs, mask=offs < n), mask=offs < n)
    most = tl.max(tl.arange(0, 2) * n)
    tl.store(y - 1, 0.0, mask=most > 2147483647)


@breaks(STORES)
def a_reduction_of_wide_integers(x: Tensor) -> Tensor:
    x, y = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
    _greatest[_programs(x.numel())](x, y, x.numel(), BLOCK=BLOCK)
    return y


@triton.jit
def _shifted(x, y, n, shift, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + offs + shift, mask=offs < n)
    tl.store(y + offs, v, mask=offs < n)


@breaks(LOADS)
def the_wrapper_reads_a_value(x: Tensor) -> Tensor:
    x, y = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
    shift = int(bool((x == 777.0).any()))
    _shifted[_programs(x.numel())](x, y, x.numel(), shift, BLOCK=BLOCK)
    return y


@triton.jit
def _taken(weight, index, y, d, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.load(index + row).to(tl.int64)
    for start in range(0, d, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        v = tl.load(weight + at * d + offs, mask=offs < d)
        tl.store(y + row * d + offs, v, mask=offs < d)


def _rows_of(weight: Tensor, index: Tensor) -> Tensor:
    weight, index = weight.contiguous(), index.contiguous()
    y = weight.new_empty((*index.shape, weight.shape[1]))
    if y.numel():
        _taken[(index.numel(),)](weight, index, y, weight.shape[1], BLOCK=BLOCK)
    return y


@breaks(LOADS, ops.embedding, out_of_bounds="undefined")
def indices_that_the_wrapper_changes(weight: Tensor, indices: Tensor) -> Tensor:
    index = indices.clone()
    index.add_(1)
    return _rows_of(weight, index)


@breaks(LOADS, ops.embedding, out_of_bounds="undefined")
def indices_that_are_made_narrow(weight: Tensor, indices: Tensor) -> Tensor:
    return _rows_of(weight, indices.to(torch.int8))


@triton.jit
def _raised(index, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(index + offs, mask=offs < n)
    tl.store(index + offs, v + 1, mask=offs < n)


@breaks(LOADS, ops.embedding, out_of_bounds="undefined")
def indices_that_a_kernel_changes(weight: Tensor, indices: Tensor) -> Tensor:
    index = indices.clone().contiguous()
    _raised[_programs(index.numel())](index, index.numel(), BLOCK=BLOCK)
    return _rows_of(weight, index)


@triton.jit
def _begins(x, starts, y):
    part = tl.program_id(0).to(tl.int64)
    tl.store(y + part, tl.load(x + tl.load(starts + part).to(tl.int64)))


def _firsts(x: Any, starts: Any) -> Any:
    return torch.stack([x[a] for a in starts[:-1]])


@breaks(
    LOADS,
    kfuzz.reference(
        _firsts,
        inputs={"x": ks.tensors("T"), "starts": ks.offsets("S", of="T")},
        name="firsts",
    ),
)
def the_first_element_of_an_empty_part(x: Tensor, starts: Tensor) -> Tensor:
    x, y = x.contiguous(), x.new_empty((starts.numel() - 1,))
    _begins[(y.numel(),)](x, starts.contiguous(), y)
    return y


@breaks(LOADS, ops.embedding)
def indices_that_nobody_checks(weight: Tensor, indices: Tensor) -> Tensor:
    return _rows_of(weight, indices)


@triton.jit
def _picked(x, target, y, c):
    row = tl.program_id(0).to(tl.int64)
    at = tl.load(target + row).to(tl.int64)
    tl.store(y + row, -tl.load(x + row * c + at))


@breaks(LOADS, ops.nll_loss)
def an_ignored_index_is_followed(
    log_p: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    x, y = log_p.contiguous(), log_p.new_empty(target.shape)
    _picked[(x.shape[0],)](x, target.contiguous(), y, x.shape[1])
    return y if reduction == "none" else y.mean()


@triton.jit
def _divided(x, y, sx, sy, n, D: tl.constexpr, OF: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    row, col = offs // OF, offs % D
    v = tl.load(x + row * sx + col, mask=offs < n)
    tl.store(y + row * sy + col, v, mask=offs < n)


def _as_rows(x: Tensor, of: int, step: int, programs: int) -> Tensor:
    x, y = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
    d, n = x.shape[-1], x.numel()
    grid = (max(triton.cdiv(n, BLOCK) - programs, 1),)
    _divided[grid](x, y, d, d + step, n, D=d, OF=d + of, BLOCK=BLOCK)
    return y


@breaks(WHOLE, TABLE)
def rows_of_one_more(x: Tensor) -> Tensor:
    return _as_rows(x, 1, 0, 0)


@breaks(STORES, TABLE)
def rows_one_too_far_apart(x: Tensor) -> Tensor:
    return _as_rows(x, 0, 1, 0)


@breaks(WHOLE, TABLE)
def one_program_too_few(x: Tensor) -> Tensor:
    return _as_rows(x, 0, 0, 1)


@breaks(APART, TABLE)
def rows_in_one_place(x: Tensor) -> Tensor:
    return _as_rows(x, 0, -x.shape[-1], 0)


CUBE: Final = kfuzz.reference(_same, inputs={"x": ks.tensors("A B N")}, name="cube")


@triton.jit
def _row_by_row(x, y, step, n, N: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + offs // N * step + offs % N, mask=offs < n)
    tl.store(y + offs, v, mask=offs < n)


@breaks(LOADS, CUBE)
def rows_that_are_no_step_apart(x: Tensor) -> Tensor:
    x = x if x.stride(2) == 1 else x.contiguous()
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    step = x.stride(1) if x.shape[1] != 1 else x.stride(0)
    grid = _programs(x.numel())
    _row_by_row[grid](x, y, step, x.numel(), N=max(x.shape[2], 1), BLOCK=BLOCK)
    return y


@triton.jit
def _in_two(x, y, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + offs, mask=offs < n)
    tl.store(y + offs, v, mask=offs < min(n, 1000))
    tl.store(y + offs, v, mask=(offs < n) & (offs > 1000))


@breaks(WHOLE)
def two_stores_with_one_between(x: Tensor) -> Tensor:
    x, y = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
    _in_two[_programs(x.numel())](x, y, x.numel(), BLOCK=BLOCK)
    return y


@breaks(WHOLE)
def a_grid_of_constants_rounds_down(x: Tensor) -> Tensor:
    x, n = x.contiguous(), x.numel()
    y = torch.empty_like(x)
    _row_by_row[(max(n // BLOCK, 1),)](x, y, n, n, N=max(n, 1), BLOCK=BLOCK)
    return y


# Constants of which there are many: Python computes with them, and not Triton.


@triton.jit
def _floored(x, y, N: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    end = N - (-N // 97 + N // 97)
    tl.store(y + offs, tl.load(x + offs, mask=offs < N), mask=offs < end)


@breaks(STORES)
def quotient_of_a_negative_constant(x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    _floored[_programs(x.numel())](x, y, x.numel(), BLOCK)
    return y


@triton.jit
def _wrapped(x, y, N: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int8) * N
    offs = row.to(tl.int64) + tl.arange(0, BLOCK)
    mask = tl.arange(0, BLOCK) < N
    tl.store(y + offs, tl.load(x + offs, mask=mask), mask=mask)


@breaks(STORES, TABLE, shape_class="M <= 8 and N <= 100", layouts="contiguous")
def product_of_8_bits_with_a_constant(x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    _wrapped[(x.shape[0],)](x, y, x.shape[1], BLOCK)
    return y


@triton.jit
def _downwards(x, y, N: tl.constexpr, STEP: tl.constexpr):
    for place in range(N, -1, -STEP):
        tl.store(y + place, tl.load(x + place, mask=place < N))


@breaks(STORES, layouts="contiguous")
def loop_down_by_a_constant(x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    _downwards[(1,)](x, y, x.numel(), 1 + x.numel() % 5)
    return y
