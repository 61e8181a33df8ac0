"""Reductions along a dimension in Triton: a program takes some rows, block by block."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.rows import each_of_rows, few_tiles, one_of_rows
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


def argmax(x: Tensor, dim: int, *, last: bool) -> Tensor:
    """Return the index of the first, or the last, of the greatest along dim."""
    return one_of_rows(argmax_kernel, x, dim, few_tiles, torch.int64, LAST=last)


@witness(LONG_ROWS)
@kernel(ops.argmax)
def triton_argmax(x: Tensor, dim: int) -> Tensor:
    """Conforming."""
    return argmax(x, dim, last=False)


@witness(LONG_ROWS, breaks="K-VAL-01")
@kernel(ops.argmax)
def argmax_last_of_equals(x: Tensor, dim: int) -> Tensor:
    """Violates K-VAL-01: compares by >= and gives the last of equal maxima."""
    return argmax(x, dim, last=True)


@witness(LONG_ROWS)
@kernel(ops.cumsum)
def triton_cumsum(x: Tensor, dim: int) -> Tensor:
    """Conforming."""
    return each_of_rows(cumsum_kernel, x, dim, few_tiles)
