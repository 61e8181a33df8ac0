"""Kernels with a race between programs, each beside a twin without one.

Templates take RACE, or a wrapper gives two launches in place of one, or a copy to read
from. `PAIRS` names them: `<name>` has the race, and `<name>_correct` has none.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

import kfuzz
from kfuzz import strategies as ks

B: Final = 16
SUM: Final = {"accumulator": "float32"}


# In place: what a program reads, another one overwrites. The twin reads a copy.


@triton.jit
def _moved(src, dst, n, by, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(src + (i + by + n) % n, mask=i < n)
    tl.store(dst + i, v, mask=i < n)


@triton.jit
def _shifted(src, dst, n, by, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.minimum(tl.maximum(i + by, 0), n - 1)
    tl.store(dst + i, tl.load(src + j, mask=i < n), mask=i < n)


@triton.jit
def _reversed(src, dst, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(dst + i, tl.load(src + n - 1 - i, mask=i < n), mask=i < n)


@triton.jit
def _unzipped(src, dst, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    half = (n + 1) // 2
    j = tl.where(i < half, 2 * i, 2 * (i - half) + 1)
    tl.store(dst + i, tl.load(src + j, mask=i < n), mask=i < n)


@triton.jit
def _stencil(src, dst, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    left = tl.load(src + i - 1, mask=(i > 0) & (i < n), other=0.0).to(tl.float32)
    right = tl.load(src + i + 1, mask=i + 1 < n, other=0.0).to(tl.float32)
    tl.store(dst + i, (left + right).to(dst.dtype.element_ty), mask=i < n)


@triton.jit
def _pooled(src, dst, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    own = tl.load(src + i, mask=i < n)
    other = tl.load(src + i + 1, mask=i + 1 < n, other=float("-inf"))
    tl.store(dst + i, tl.maximum(own, other, tl.PropagateNan.ALL), mask=i < n)


@triton.jit
def _gathered(src, index, dst, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.load(index + i, mask=i < n, other=0)
    tl.store(dst + i, tl.load(src + j, mask=i < n), mask=i < n)


@triton.jit
def _transposed(src, dst, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside = (i < n) & (j < n)
    tl.store(dst + i * n + j, tl.load(src + j * n + i, mask=inside), mask=inside)


@triton.jit
def _rows_below(src, dst, m, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        v = tl.load(src + (m - 1 - row) * n + i, mask=i < n)
        tl.store(dst + row * n + i, v, mask=i < n)


@triton.jit
def _split_softmax(src, dst, n, BLOCK: tl.constexpr, PART: tl.constexpr):
    row, lanes = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(src + row * n + lanes, mask=lanes < n, other=float("-inf"))
    v = v.to(tl.float32)
    top = tl.max(v, 0)
    total = tl.sum(tl.exp(v - top), 0)
    i = tl.program_id(1) * PART + tl.arange(0, PART)
    own = tl.load(src + row * n + i, mask=i < n, other=0.0).to(tl.float32)
    made = tl.exp(own - top) / total
    tl.store(dst + row * n + i, made.to(dst.dtype.element_ty), mask=i < n)


@triton.jit
def _split_max(src, dst, n, BLOCK: tl.constexpr, PART: tl.constexpr):
    row, lanes = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(src + row * n + lanes, mask=lanes < n, other=0.0).to(tl.float32)
    top = tl.max(tl.abs(v), 0)
    i = tl.program_id(1) * PART + tl.arange(0, PART)
    own = tl.load(src + row * n + i, mask=i < n, other=0.0).to(tl.float32)
    made = tl.where(tl.abs(own) == top, 1.0, 0.0)
    tl.store(dst + row * n + i, made.to(dst.dtype.element_ty), mask=i < n)


@triton.jit
def _from_first_row(src, dst, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        v = tl.load(src + row * n + i, mask=i < n, other=0.0).to(tl.float32)
        first = tl.load(src + i, mask=i < n, other=0.0).to(tl.float32)
        made = (v - first).to(dst.dtype.element_ty)
        tl.store(dst + row * n + i, made, mask=i < n)


def in_place(
    kernel: Any, grid: Callable[..., tuple[int, ...]], *more: Any, **constants: Any
) -> Any:
    def make(race: bool) -> Callable[..., Tensor]:
        def run(x: Tensor, *others: Tensor) -> Tensor:
            if x.numel():
                source = x if race else x.clone()
                sizes = x.shape[-1:] if kernel is not _rows_below else x.shape
                made = {k: v(x) if callable(v) else v for k, v in constants.items()}
                kernel[grid(x)](source, *others, x, *sizes, *more, **made)
            return x

        return run

    return make


def blocks(x: Tensor) -> tuple[int, ...]:
    return (triton.cdiv(x.shape[-1], B),)


def tiles(x: Tensor) -> tuple[int, ...]:
    return (triton.cdiv(x.shape[0], B), triton.cdiv(x.shape[1], B))


def rows(x: Tensor) -> tuple[int, ...]:
    return (x.shape[0],)


def parts(x: Tensor) -> tuple[int, ...]:
    return (x.shape[0], triton.cdiv(x.shape[1], B))


def whole_row(x: Tensor) -> int:
    return triton.next_power_of_2(x.shape[1])


# Something of other programs is read in the launch that writes it. The twin launches
# twice: PHASE is 0 in a launch that does both, else 1 and 2.


@triton.jit
def _scan(
    x, y, totals, n, PHASE: tl.constexpr, BLOCK: tl.constexpr, MOST: tl.constexpr
):  # fmt: skip
    pid = tl.program_id(0)
    i = pid * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0).to(tl.float32)
    if PHASE != 2:
        tl.store(totals + pid, tl.sum(v, 0))
    if PHASE != 1:
        before = tl.arange(0, MOST)
        carry = tl.sum(tl.load(totals + before, mask=before < pid, other=0.0), 0)
        made = tl.cumsum(v, 0) + carry
        tl.store(y + i, made.to(y.dtype.element_ty), mask=i < n)


@triton.jit
def _total(
    x, y, totals, n, PHASE: tl.constexpr, BLOCK: tl.constexpr, MOST: tl.constexpr
):  # fmt: skip
    pid = tl.program_id(0)
    i = pid * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0).to(tl.float32)
    if PHASE != 2:
        tl.store(totals + pid, tl.sum(v, 0))
    if PHASE != 1 and pid == tl.num_programs(0) - 1:
        lanes = tl.arange(0, MOST)
        made = tl.load(totals + lanes, mask=lanes < tl.num_programs(0), other=0.0)
        tl.store(y, tl.sum(made, 0))


@triton.jit
def _top_cell(
    x, y, cell, n, PHASE: tl.constexpr, BLOCK: tl.constexpr, MOST: tl.constexpr
):  # fmt: skip
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0).to(tl.float32)
    if PHASE != 2:
        tl.atomic_max(cell, tl.max(tl.abs(v), 0))
    if PHASE != 1:
        top = tl.load(cell)
        made = tl.where(tl.abs(v) == top, 1.0, 0.0)
        tl.store(y + i, made.to(y.dtype.element_ty), mask=i < n)


@triton.jit
def _first_cell(
    x, y, cell, n, PHASE: tl.constexpr, BLOCK: tl.constexpr, MOST: tl.constexpr
):  # fmt: skip
    pid = tl.program_id(0)
    i = pid * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0)
    if PHASE != 2 and pid == 0:
        tl.store(cell, tl.load(x).to(tl.float32) * 2)
    if PHASE != 1:
        made = v.to(tl.float32) + tl.load(cell)
        tl.store(y + i, made.to(y.dtype.element_ty), mask=i < n)


@triton.jit
def _two_stage(
    x, y, scratch, n, PHASE: tl.constexpr, BLOCK: tl.constexpr, MOST: tl.constexpr
):  # fmt: skip
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if PHASE != 2:
        v = tl.load(x + i, mask=i < n, other=0.0).to(tl.float32)
        tl.store(scratch + i, v + 1.0, mask=i < n)
    if PHASE != 1:
        w = tl.load(scratch + n - 1 - i, mask=i < n)
        tl.store(y + i, w.to(y.dtype.element_ty), mask=i < n)


def phases(kernel: Any, out: Callable[[Tensor], Tensor]) -> Any:
    def make(race: bool) -> Callable[..., Tensor]:
        def run(x: Tensor) -> Tensor:
            n, y = x.numel(), out(x)
            scratch = torch.zeros(max(1, n), dtype=torch.float32, device=x.device)
            most = triton.next_power_of_2(max(1, triton.cdiv(n, B)))
            for phase in (0,) if race else (1, 2):
                if n:
                    kernel[blocks(x)](x, y, scratch, n, PHASE=phase, BLOCK=B, MOST=most)
            return y

        return run

    return make


def scalar(x: Tensor) -> Tensor:
    return torch.zeros((), dtype=torch.float32, device=x.device)


# Iterations over two buffers. The twin launches once for each.


@triton.jit
def _smooth(a, b, n, first, last, RACE: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    for step in range(first, last):
        src = a if step % 2 == 0 else b
        dst = b if step % 2 == 0 else a
        right = tl.load(src + i + 1, mask=i + 1 < n, other=0.0)
        tl.store(dst + i, right + 1.0, mask=i < n)


def double_buffer(race: bool) -> Callable[..., Tensor]:
    def run(x: Tensor) -> Tensor:
        a, b, n = x.float().contiguous().clone(), x.float().contiguous().clone(), len(x)
        for first, last in [(0, 2)] if race else [(0, 1), (1, 2)]:
            if n:
                _smooth[blocks(x)](a, b, n, first, last, RACE=race, BLOCK=B)
        return a.to(x.dtype)

    return run


def ping_pong(race: bool) -> Callable[..., Tensor]:
    """The second launch reads and writes one buffer where the swap is left out."""

    def run(x: Tensor) -> Tensor:
        a, b, n = x.float().contiguous().clone(), torch.zeros(len(x)), len(x)
        if n:
            _smooth[blocks(x)](a, b, n, 0, 1, RACE=race, BLOCK=B)
            src, dst = (b, b) if race else (b, a)
            _smooth[blocks(x)](src, dst, n, 0, 1, RACE=race, BLOCK=B)
            return dst.to(x.dtype)
        return x.clone()

    return run


@triton.jit
def _odd_even(x, n, first, last, BLOCK: tl.constexpr):
    for step in range(first, last):
        i = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)) * 2 + step % 2
        both = i + 1 < n
        one, other = tl.load(x + i, mask=both), tl.load(x + i + 1, mask=both)
        tl.store(x + i, tl.minimum(one, other), mask=both)
        tl.store(x + i + 1, tl.maximum(one, other), mask=both)


def odd_even(race: bool) -> Callable[..., Tensor]:
    def run(x: Tensor) -> Tensor:
        n = len(x)
        for first, last in [(0, 2)] if race else [(0, 1), (1, 2)]:
            if n:
                _odd_even[(triton.cdiv(n, 2 * B),)](x, n, first, last, BLOCK=B)
        return x

    return run


# Accumulated into what other programs accumulate into. The twin has atomics or a lock.


@triton.jit
def _histogram(index, x, y, n, RACE: tl.constexpr, BLOCK: tl.constexpr):
    start = tl.program_id(0) * BLOCK
    for i in range(start, tl.minimum(start + BLOCK, n)):
        at, v = y + tl.load(index + i), tl.load(x + i).to(tl.float32)
        if RACE:
            tl.store(at, tl.load(at) + v)
        else:
            tl.atomic_add(at, v)


def histogram(race: bool) -> Callable[..., Tensor]:
    def run(index: Tensor, x: Tensor, start: Tensor) -> Tensor:
        y = start.float().clone()
        if index.numel():
            _histogram[blocks(index)](index, x, y, len(index), RACE=race, BLOCK=B)
        return y

    return run


@triton.jit
def _column_sums(
    x, y, lock, n, RACE: tl.constexpr, EARLY: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=0.0).to(tl.float32)
    if EARLY or not RACE:
        while tl.atomic_cas(lock, 0, 1) == 1:
            pass
    made = tl.load(y + i, mask=i < n, other=0.0) + v
    if EARLY and RACE:
        tl.atomic_xchg(lock, 0)
    tl.store(y + i, made, mask=i < n)
    if not RACE:
        tl.atomic_xchg(lock, 0)


def column_sums(*, early: bool) -> Any:
    def make(race: bool) -> Callable[..., Tensor]:
        def run(x: Tensor) -> Tensor:
            y = torch.zeros(x.shape[1], dtype=torch.float32, device=x.device)
            lock = torch.zeros(1, dtype=torch.int32, device=x.device)
            if x.numel():
                _column_sums[rows(x)](
                    x, y, lock, x.shape[1], RACE=race, EARLY=early, BLOCK=whole_row(x)
                )
            return y

        return run

    return make


@triton.jit
def _split_k(a, b, c, k, STEP: tl.constexpr, RACE: tl.constexpr):
    part = tl.program_id(1)
    i = part * STEP + tl.arange(0, STEP)
    one = tl.load(a + i, mask=i < k, other=0.0).to(tl.float32)
    v = tl.sum(one * tl.load(b + i, mask=i < k, other=0.0).to(tl.float32), 0)
    if RACE:
        tl.store(c, tl.load(c) + v)
    else:
        tl.atomic_add(c, v)


def split_k(race: bool) -> Callable[..., Tensor]:
    def run(a: Tensor, b: Tensor) -> Tensor:
        c = torch.zeros((), dtype=torch.float32, device=a.device)
        if a.numel():
            _split_k[(1, triton.cdiv(len(a), B))](a, b, c, len(a), STEP=B, RACE=race)
        return c

    return run


@triton.jit
def _largest(x, y, n, RACE: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    top = tl.max(tl.load(x + i, mask=i < n, other=float("-inf")).to(tl.float32), 0)
    if RACE:
        if top > tl.load(y):
            tl.store(y, top)
    else:
        tl.atomic_max(y, top)


@triton.jit
def _largest_set(x, y, n, RACE: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    top = tl.max(tl.load(x + i, mask=i < n, other=float("-inf")).to(tl.float32), 0)
    if RACE and tl.program_id(0) == 0:
        tl.store(y, float("-inf"))
    tl.atomic_max(y, top)


@triton.jit
def _ends(x, y, n, RACE: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    top = tl.max(tl.load(x + i, mask=i < n, other=float("-inf")).to(tl.float32), 0)
    if RACE or tl.program_id(0) == tl.num_programs(0) - 1:
        tl.store(y, top)


def cell(kernel: Any) -> Any:
    def make(race: bool) -> Callable[..., Tensor]:
        def run(x: Tensor) -> Tensor:
            y = torch.full((), float("-inf"), dtype=torch.float32, device=x.device)
            y = torch.empty_like(y) if race and kernel is _largest_set else y
            if x.numel():
                kernel[blocks(x)](x, y, len(x), RACE=race, BLOCK=B)
            return y

        return run

    return make


# Flags: what the first program makes, the others wait for.


@triton.jit
def _flagged(x, y, value, flag, n, KIND: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    i = pid * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0).to(tl.float32)
    if pid == 0:
        if KIND == "early":
            tl.atomic_xchg(flag, 1)
        tl.store(value, tl.load(x).to(tl.float32) * 2)
        if KIND == "plain":
            tl.store(flag, 1)
        if KIND == "atomic":
            tl.atomic_xchg(flag, 1)
    elif KIND == "plain":
        while tl.load(flag) == 0:
            pass
    elif KIND != "none":
        while tl.atomic_cas(flag, 1, 1) == 0:
            pass
    tl.store(y + i, v + tl.load(value), mask=i < n)


@triton.jit
def _carried(x, y, n, flag, RACE: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    i = pid * BLOCK + tl.arange(0, BLOCK)
    v = tl.cumsum(tl.load(x + i, mask=i < n, other=0.0).to(tl.float32), 0)
    if pid > 0:
        if not RACE:
            while tl.atomic_cas(flag, pid, pid) != pid:
                pass
        v += tl.load(y + pid * BLOCK - 1)
    tl.store(y + i, v, mask=i < n)
    if not RACE:
        tl.atomic_xchg(flag, pid + 1)


def flagged(kind: str) -> Any:
    def make(race: bool) -> Callable[..., Tensor]:
        def run(x: Tensor) -> Tensor:
            y = torch.empty_like(x, dtype=torch.float32)
            value, flag = x.new_zeros(1).float(), x.new_zeros(1, dtype=torch.int32)
            if x.numel():
                shown = kind if race else "atomic"
                _flagged[blocks(x)](x, y, value, flag, len(x), KIND=shown, BLOCK=B)
            return y

        return run

    return make


def carried(race: bool) -> Callable[..., Tensor]:
    def run(x: Tensor) -> Tensor:
        y = torch.empty_like(x, dtype=torch.float32)
        flag = x.new_zeros(1, dtype=torch.int32)
        if x.numel():
            _carried[blocks(x)](x, y, len(x), flag, RACE=race, BLOCK=B)
        return y

    return run


@triton.jit
def _last_adds(
    x, y, totals, count, n, RACE: tl.constexpr, BLOCK: tl.constexpr,
    MOST: tl.constexpr,
):  # fmt: skip
    """The last to arrive adds up; with RACE it says so before it has stored."""
    pid, many = tl.program_id(0), tl.num_programs(0)
    i = pid * BLOCK + tl.arange(0, BLOCK)
    v = tl.sum(tl.load(x + i, mask=i < n, other=0.0).to(tl.float32), 0)
    if RACE:
        arrived = tl.atomic_add(count, 1)
        tl.store(totals + pid, v)
    else:
        tl.store(totals + pid, v)
        arrived = tl.atomic_add(count, 1)
    if arrived == many - 1:
        lanes = tl.arange(0, MOST)
        tl.store(y, tl.sum(tl.load(totals + lanes, mask=lanes < many, other=0.0), 0))


def last_adds(race: bool) -> Callable[..., Tensor]:
    def run(x: Tensor) -> Tensor:
        y, count = scalar(x), x.new_zeros((), dtype=torch.int32)
        if n := len(x):
            many = triton.cdiv(n, B)
            totals = x.new_zeros(many, dtype=torch.float32)
            _last_adds[(many,)](
                x, y, totals, count, n, RACE=race, BLOCK=B,
                MOST=triton.next_power_of_2(many),
            )  # fmt: skip
        return y

    return run


# What they compute, in torch, and what is bound to it.

FLOATS: Final = {"x": ks.tensors("N")}
SQUARE: Final = {"x": ks.tensors("M N")}


def _windowed(x: Tensor) -> Tensor:
    return torch.cat([x[1:], x[-1:]])


def _sides(x: Tensor) -> Tensor:
    zero = x.new_zeros(1)
    return torch.cat([zero, x[:-1]]) + torch.cat([x[1:], zero])


def _added_twice(x: Tensor) -> Tensor:
    zero = x.new_zeros(1)
    once = torch.cat([x[1:], zero]) + 1
    return torch.cat([once[1:], zero]) + 1


def _exchanged(x: Tensor) -> Tensor:
    for first in (0, 1):
        pairs = x[first : first + (len(x) - first) // 2 * 2].reshape(-1, 2)
        swapped = torch.stack([pairs.amin(1), pairs.amax(1)], 1).reshape(-1)
        x = torch.cat([x[:first], swapped, x[first + len(swapped) :]])
    return x


def _counted(index: Tensor, x: Tensor, start: Tensor) -> Tensor:
    return start.index_add(0, index.long(), x)


class Pair(NamedTuple):
    """A kernel with a race and its twin.

    Attributes:
        make: returns the one or, of False, the other.
        reference: what both compute.
        inputs: of the operator.
        options: of the operator.
        claims: of both kernels.
    """

    make: Callable[[bool], Callable[..., Tensor]]
    reference: Callable[..., Tensor]
    inputs: Mapping[str, Any]
    options: Mapping[str, Any] = {}
    claims: Mapping[str, Any] = {}


_FLAT: Final = {"layouts": "contiguous", "nonfinite": "undefined"}
_OVER: Final = {"inplace": ("x",), **_FLAT}
_SINGLE: Final = {"results": {"y": "float32"}}


def _over(
    kernel: Any, reference: Callable[..., Tensor], *more: Any,
    grid: Callable[[Tensor], tuple[int, ...]] = blocks, of: str = "N",
    inputs: Mapping[str, Any] | None = None, limits: str = "N >= 1", **constants: Any,
) -> Pair:  # fmt: skip
    made = {"x": ks.tensors(of)} | dict(inputs or {})
    options = {"outputs": ("x",), "shape_class": limits}
    given = constants or {"BLOCK": B}
    return Pair(in_place(kernel, grid, *more, **given), reference, made, options, _OVER)


def _on(
    make: Any, reference: Any, inputs: Any, *, ordered: bool = True, **options: Any
) -> Pair:
    made = {"shape_class": "N >= 1"} | options
    claims = _FLAT if ordered else {**_FLAT, "determinism": "none"}
    return Pair(make, reference, inputs, made, claims)


def _first(x: Tensor) -> Tensor:
    return x + x[:1] * 2


def _tops(x: Tensor) -> Tensor:
    return (x.abs() == x.abs().amax(-1, keepdim=True)).to(x.dtype)


PAIRS: Final = {
    "shift_left": _over(_shifted, _windowed, 1),
    "shift_right": _over(_shifted, lambda x: torch.cat([x[:1], x[:-1]]), -1),
    "ring": _over(_moved, lambda x: x.roll(-B), B, limits="N >= 16"),
    "reversal": _over(_reversed, lambda x: x.flip(0)),
    "unzip": _over(_unzipped, lambda x: torch.cat([x[::2], x[1::2]])),
    "stencil": _over(_stencil, _sides),
    "pool": _over(_pooled, lambda x: torch.maximum(x, _windowed(x))),
    "gather": _over(
        _gathered, lambda x, index: x[index],
        inputs={"index": ks.indices("N", below="N")},
    ),
    "transpose": _over(
        _transposed, lambda x: x.mT, grid=tiles, of="M N", limits="M == N and N >= 1"
    ),
    "rows_reversed": _over(
        _rows_below, lambda x: x.flip(0), grid=rows, of="M N",
        limits="M >= 1 and N >= 1",
    ),
    "split_softmax": _over(
        _split_softmax, lambda x: x.softmax(-1), grid=parts, of="M N",
        limits="M >= 1 and N >= 1", BLOCK=whole_row, PART=B,
    ),
    "split_max": _over(
        _split_max, _tops, grid=parts, of="M N", limits="M >= 1 and N >= 1",
        BLOCK=whole_row, PART=B,
    ),
    "less_first_row": _over(
        _from_first_row, lambda x: x - x[:1], grid=rows, of="M N",
        limits="M >= 1 and N >= 1",
    ),
    "scan": _on(phases(_scan, torch.empty_like), lambda x: x.cumsum(0), FLOATS),
    "sum_by_last": _on(phases(_total, scalar), lambda x: x.sum(), FLOATS, **_SINGLE),
    "max_in_cell": _on(phases(_top_cell, torch.empty_like), _tops, FLOATS),
    "value_in_cell": _on(phases(_first_cell, torch.empty_like), _first, FLOATS),
    "two_stages": _on(
        phases(_two_stage, torch.empty_like), lambda x: (x + 1).flip(0), FLOATS
    ),
    "double_buffer": _on(double_buffer, _added_twice, FLOATS),
    "ping_pong": _on(ping_pong, _added_twice, FLOATS),
    "odd_even": Pair(
        odd_even, _exchanged, FLOATS, {"outputs": ("x",), "shape_class": "N >= 1"},
        _OVER,
    ),
    "histogram": _on(
        histogram, _counted,
        {
            "index": ks.indices("T", below="N"), "x": ks.tensors("T"),
            "start": ks.tensors("N"),
        },
        ordered=False, **_SINGLE, shape_class="N >= 1 and N <= 64",
    ),
    "sum_without_lock": _on(
        column_sums(early=False), lambda x: x.sum(0), SQUARE, **_SINGLE
    ),
    "lock_left_early": _on(
        column_sums(early=True), lambda x: x.sum(0), SQUARE, **_SINGLE
    ),
    "split_k": _on(
        split_k, lambda a, b: (a * b).sum(), {"a": FLOATS["x"], "b": FLOATS["x"]},
        ordered=False, **_SINGLE,
    ),
    "max_by_store": _on(cell(_largest), lambda x: x.amax(), FLOATS, **_SINGLE),
    "set_beside_atomics": _on(
        cell(_largest_set), lambda x: x.amax(), FLOATS, **_SINGLE
    ),
    "last_block_max": _on(
        cell(_ends), lambda x: x[(len(x) - 1) // B * B :].amax(), FLOATS, **_SINGLE
    ),
    "flag_plain": _on(flagged("plain"), _first, FLOATS, **_SINGLE),
    "flag_early": _on(flagged("early"), _first, FLOATS, **_SINGLE),
    "flag_missing": _on(flagged("none"), _first, FLOATS, **_SINGLE),
    "carry": _on(carried, lambda x: x.cumsum(0), FLOATS, **_SINGLE),
    "arrival_early": _on(last_adds, lambda x: x.sum(), FLOATS, **_SINGLE),
}  # fmt: skip

for _name, _pair in PAIRS.items():
    _claims = {**_pair.claims}
    if "index" in _pair.inputs:
        _claims["out_of_bounds"] = "undefined"
    _operator = kfuzz.reference(
        _pair.reference, inputs=dict(_pair.inputs), name=_name,
        **{"outputs": ("y",)} | dict(_pair.options),
    )  # fmt: skip
    for _race in (True, False):
        _bound = _name if _race else f"{_name}_correct"
        globals()[_bound] = kfuzz.kernel(_operator, name=_bound, **_claims)(
            _pair.make(_race)
        )
