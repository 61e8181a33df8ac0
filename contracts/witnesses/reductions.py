"""Reductions along a dimension in Triton: a program takes some rows, block by block."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.rows import (
    as_rows,
    empty_rows,
    few_tiles,
    reduced_shape,
    restored,
)
from kfuzz.contracts.witnesses.witness import LONG_ROWS, witness

# One binary for all sizes and strides: a search tries hundreds of them.
SIZES = ("stride_m", "stride_n", "m", "n")


@triton.jit(do_not_specialize=SIZES)
def argmax_kernel(
    x_ptr, y_ptr, stride_m, stride_n, m, n,
    LAST: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """y[i] = index of the first NaN of x[i, :], else of its first maximum."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    lanes = tl.arange(0, BLOCK)[None, :].to(tl.int64)  # a stride may multiply it
    x_rows = x_ptr + rows[:, None] * stride_m
    top = tl.full([ROWS, BLOCK], float("-inf"), tl.float32)
    # Where nothing exceeds -Inf each lane keeps its first index.
    at = tl.zeros([ROWS, BLOCK], tl.int64) + lanes
    nan_at = tl.full([ROWS, BLOCK], 0, tl.int64) + n
    for start in range(0, n, BLOCK):
        offs = start + lanes
        mask = (rows[:, None] < m) & (offs < n)
        x = tl.load(x_rows + offs * stride_n, mask=mask, other=float("-inf"))
        x = x.to(tl.float32)
        greater = (x >= top) & mask if LAST else x > top
        top = tl.where(greater, x, top)
        at = tl.where(greater, offs, at)
        nan_at = tl.minimum(nan_at, tl.where(x != x, offs, n))
    best = tl.max(top, axis=1)[:, None]
    if LAST:
        y = tl.max(tl.where((top == best) & (at < n), at, 0), axis=1)
    else:
        y = tl.min(tl.where(top == best, at, n), axis=1)
    first_nan = tl.min(nan_at, axis=1)
    tl.store(y_ptr + rows, tl.where(first_nan < n, first_nan, y), mask=rows < m)


@triton.jit(do_not_specialize=SIZES)
def cumsum_kernel(
    x_ptr, y_ptr, stride_m, stride_n, m, n, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """y[i, j] = sum of x[i, :j + 1], y contiguous."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, BLOCK)[None, :].to(tl.int64)  # a stride may multiply it
    carried = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, n, BLOCK):
        offs = start + lanes
        mask = (rows < m) & (offs < n)
        x = tl.load(x_ptr + rows * stride_m + offs * stride_n, mask=mask, other=0.0)
        x = x.to(tl.float32)
        y = carried + tl.cumsum(x, axis=1)
        tl.store(y_ptr + rows * n + offs, y.to(y_ptr.dtype.element_ty), mask=mask)
        carried += tl.sum(x, axis=1, keep_dims=True)


def reduce(x: Tensor, dim: int, function, **options) -> Tensor:
    """Return a reduction of x along dim, by one of the kernels above."""
    rows = as_rows(x, dim)
    m, n = rows.shape
    dtype = torch.int64 if function is argmax_kernel else x.dtype
    scan = function is cumsum_kernel
    y = empty_rows(rows) if scan else torch.empty(m, dtype=dtype, device=x.device)
    if y.numel():
        tiles = few_tiles(n)
        function[(triton.cdiv(m, tiles["ROWS"]),)](
            rows, y, *rows.stride(), m, n, **tiles, **options
        )
    return restored(y, x, dim) if scan else y.reshape(reduced_shape(x, dim))


@witness(LONG_ROWS)
@kernel(ops.argmax)
def triton_argmax(x: Tensor, dim: int) -> Tensor:
    """Conforming."""
    return reduce(x, dim, argmax_kernel, LAST=False)


@witness(LONG_ROWS, breaks="K-VAL-01", most=(2, 0), minimal="two equal elements")
@kernel(ops.argmax)
def argmax_last_of_equals(x: Tensor, dim: int) -> Tensor:
    """Violates K-VAL-01: compares by >= and gives the last of equal maxima."""
    return reduce(x, dim, argmax_kernel, LAST=True)


@witness(LONG_ROWS)
@kernel(ops.cumsum)
def triton_cumsum(x: Tensor, dim: int) -> Tensor:
    """Conforming."""
    return reduce(x, dim, cumsum_kernel)
