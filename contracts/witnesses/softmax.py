"""Softmax in Triton: a program takes some rows, in three passes over blocks."""

import triton
import triton.language as tl
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.rows import each_of_rows, tile
from kfuzz.contracts.witnesses.witness import LONG_ROWS, witness

# One binary for all sizes and strides: a search tries hundreds of them.
SIZES = ("stride_xm", "stride_xn", "m", "n")


@triton.jit(do_not_specialize=SIZES)
def softmax_kernel(
    x_ptr, y_ptr, stride_xm, stride_xn, m, n, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    TAIL_ZERO: tl.constexpr, SUBTRACT_MAX: tl.constexpr,
):  # fmt: skip
    """y[i, :] = softmax(x[i, :]), computed in float32; y is contiguous."""
    padding: tl.constexpr = 0.0 if TAIL_ZERO else float("-inf")
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, BLOCK)[None, :].to(tl.int64)  # a stride may multiply it
    x_rows = x_ptr + rows * stride_xm
    y_rows = y_ptr + rows * n

    row_max = 0.0
    if SUBTRACT_MAX:
        top = tl.full([ROWS, BLOCK], float("-inf"), tl.float32)
        for start in range(0, n, BLOCK):
            offs = start + lanes
            mask = (rows < m) & (offs < n)
            x = tl.load(x_rows + offs * stride_xn, mask=mask, other=padding)
            top = tl.maximum(top, x.to(tl.float32))
        row_max = tl.max(top, axis=1)[:, None]

    parts = tl.full([ROWS, BLOCK], 0.0, tl.float32)
    for start in range(0, n, BLOCK):
        offs = start + lanes
        mask = (rows < m) & (offs < n)
        x = tl.load(x_rows + offs * stride_xn, mask=mask, other=padding)
        parts += tl.exp(x.to(tl.float32) - row_max)
    denominator = tl.sum(parts, axis=1)[:, None]

    for start in range(0, n, BLOCK):
        offs = start + lanes
        mask = (rows < m) & (offs < n)
        x = tl.load(x_rows + offs * stride_xn, mask=mask, other=padding)
        y = tl.exp(x.to(tl.float32) - row_max) / denominator
        tl.store(y_rows + offs, y.to(y_ptr.dtype.element_ty), mask=mask)


def launch(
    x: Tensor, dim: int, *, tail_zero: bool = False, subtract_max: bool = True
) -> Tensor:
    """Return softmax(x, dim); a flag that is not at its default is a fault."""
    return each_of_rows(
        softmax_kernel, x, dim, tile, TAIL_ZERO=tail_zero, SUBTRACT_MAX=subtract_max
    )


@witness(LONG_ROWS)
@kernel(ops.softmax)
def triton_softmax(x: Tensor, dim: int = -1) -> Tensor:
    """Conforming."""
    return launch(x, dim)


@witness(LONG_ROWS, breaks="C-CMP-03")
@kernel(ops.softmax)
def softmax_tail_zero(x: Tensor, dim: int = -1) -> Tensor:
    """Violates C-CMP-03: padded lanes load 0.0 and count in maximum and sum."""
    return launch(x, dim, tail_zero=True)


@witness(LONG_ROWS, breaks="C-PRC-02")
@kernel(ops.softmax)
def softmax_no_max(x: Tensor, dim: int = -1) -> Tensor:
    """Violates C-PRC-02: exp overflows where the row maximum is not subtracted."""
    return launch(x, dim, subtract_max=False)
