"""Three documented incidents, re-created as the smallest kernels that repeat them.

Each passes the plain functional test, as the original passed its own. `corpus/` holds
what kfuzz finds in them, with a page on each.
"""

from typing import Final

import torch
import triton
import triton.language as tl
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.witness import SQUARE, witness

TILE: Final = 16
# The shape at which the second kernel was tuned, timed and accepted.
BENCHMARK: Final = 32
SIZES = (
    "M", "N", "K",
    "stride_am", "stride_ak", "stride_bk", "stride_bn",
)  # fmt: skip


@triton.jit(do_not_specialize=SIZES)
def product_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    TILE: tl.constexpr,
    COERCE: tl.constexpr,
):
    """Write one tile of a b to c, contiguous; operands rounded to float16 if asked."""
    rows = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)[:, None]
    columns = tl.program_id(1).to(tl.int64) * TILE + tl.arange(0, TILE)[None, :]
    acc = tl.zeros([TILE, TILE], tl.float32)
    for start in range(0, K, TILE):
        across = start + tl.arange(0, TILE)[None, :].to(tl.int64)
        down = start + tl.arange(0, TILE)[:, None].to(tl.int64)
        a_place = a_ptr + rows * stride_am + across * stride_ak
        b_place = b_ptr + down * stride_bk + columns * stride_bn
        a = tl.load(a_place, mask=(rows < M) & (across < K), other=0.0)
        b = tl.load(b_place, mask=(down < K) & (columns < N), other=0.0)
        if COERCE:
            a, b = a.to(tl.float16), b.to(tl.float16)
        acc += tl.dot(a, b, input_precision="ieee", out_dtype=tl.float32)
    inside = (rows < M) & (columns < N)
    tl.store(c_ptr + rows * N + columns, acc.to(c_ptr.dtype.element_ty), mask=inside)


def multiply(a: Tensor, b: Tensor, size: tuple[int, int], *, coerce: bool) -> Tensor:
    """Return a b, computed in the tiles of a matrix of `size`, 0 elsewhere."""
    (m, k), n = a.shape, b.shape[1]
    c = torch.zeros((m, n), dtype=a.dtype, device=a.device)
    grid = (triton.cdiv(size[0], TILE), triton.cdiv(size[1], TILE))
    if c.numel():
        product_kernel[grid](
            a, b, c, m, n, k, *a.stride(), *b.stride(), TILE=TILE, COERCE=coerce
        )
    return c


@witness(
    SQUARE, SQUARE, breaks="C-PRC-01", most=(2, 2),
    minimal="1 x 1 times 1 x 1: a number that float16 rounds",
)  # fmt: skip
@kernel(ops.matmul, dtypes="float32")
def incident_precision_coercion(a: Tensor, b: Tensor) -> Tensor:
    """Violates C-PRC-01: float32 operands are multiplied as float16, silently."""
    return multiply(a, b, (a.shape[0], b.shape[1]), coerce=True)


@witness(
    (32, 32), (32, 32), breaks="C-CMP-03", most=(34, 2),
    minimal="1 x 1 times 1 x 33, one column beyond the benchmark's grid",
)  # fmt: skip
@kernel(ops.matmul, dtypes="float32")
def incident_reward_hacking(a: Tensor, b: Tensor) -> Tensor:
    """Violates C-CMP-03: launches the grid of the shape that it was scored at."""
    return multiply(a, b, (BENCHMARK, BENCHMARK), coerce=False)


@triton.jit(do_not_specialize=("stride_v", "stride_d", "rows", "v", "d"))
def lookup_kernel(
    weight_ptr,
    index_ptr,
    y_ptr,
    stride_v,
    stride_d,
    rows,
    v,
    d,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """y[i, :] = weight[index[i], :], or 0 where there is no such row."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    index = tl.load(index_ptr + row, mask=row < rows, other=0).to(tl.int64)
    there = (index >= 0) & (index < v)
    for start in range(0, d, COLUMNS):
        column = start + tl.arange(0, COLUMNS)[None, :].to(tl.int64)
        inside = (row < rows) & (column < d)
        place = weight_ptr + index * stride_v + column * stride_d
        found = tl.load(place, mask=inside & there, other=0.0)
        tl.store(y_ptr + row * d + column, found, mask=inside)


@witness(
    (512, 64), (128,), breaks="C-EXC-02", most=(2, 1),
    minimal="a table of one element, and the index 1",
)  # fmt: skip
@kernel(ops.embedding)
def incident_silent_index(weight: Tensor, indices: Tensor) -> Tensor:
    """Violates C-EXC-02: an index out of bounds gives a row of zeros, no exception."""
    (v, d), flat = weight.shape, indices.contiguous().reshape(-1)
    y = weight.new_empty((*indices.shape, d))
    if y.numel():
        grid = (triton.cdiv(flat.numel(), TILE),)
        lookup_kernel[grid](
            weight, flat, y, *weight.stride(), flat.numel(), v, d,
            ROWS=TILE, COLUMNS=4 * TILE,
        )  # fmt: skip
    return y
