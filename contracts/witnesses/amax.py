"""Maximum along a dimension in Triton: a program takes some rows."""

import triton
import triton.language as tl
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.rows import one_of_rows, tile
from kfuzz.contracts.witnesses.witness import LONG_ROWS, witness

# One binary for all sizes and strides: a search tries hundreds of them.
SIZES = ("stride_xm", "stride_xn", "m", "n")


@triton.jit(do_not_specialize=SIZES)
def amax_kernel(
    x_ptr, y_ptr, stride_xm, stride_xn, m, n, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    ZERO_IDENTITY: tl.constexpr, SWALLOW_NAN: tl.constexpr,
):  # fmt: skip
    """y[i] = max of x[i, :], NaN where the row holds one."""
    padding: tl.constexpr = 0.0 if ZERO_IDENTITY else float("-inf")
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    x_rows = x_ptr + row[:, None] * stride_xm
    lanes = tl.arange(0, BLOCK)[None, :].to(tl.int64)  # a stride may multiply it
    top = tl.full([ROWS, BLOCK], float("-inf"), tl.float32)
    nans = tl.full([ROWS, BLOCK], 0, tl.int32)
    for start in range(0, n, BLOCK):
        offs = start + lanes
        mask = (row[:, None] < m) & (offs < n)
        x = tl.load(x_rows + offs * stride_xn, mask=mask, other=padding)
        x = x.to(tl.float32)
        # What tl.max makes of a NaN differs between backends: keep it out.
        is_nan = x != x
        top = tl.maximum(top, tl.where(is_nan, float("-inf"), x))
        nans |= is_nan.to(tl.int32)
    y = tl.max(top, axis=1)
    if not SWALLOW_NAN:
        y = tl.where(tl.max(nans, axis=1) > 0, float("nan"), y)
    tl.store(y_ptr + row, y.to(y_ptr.dtype.element_ty), mask=row < m)


def launch(
    x: Tensor, dim: int, *, zero_identity: bool = False, swallow_nan: bool = False
) -> Tensor:
    """Return amax(x, dim); a flag that is not at its default is a fault."""
    return one_of_rows(
        amax_kernel, x, dim, tile,
        ZERO_IDENTITY=zero_identity, SWALLOW_NAN=swallow_nan,
    )  # fmt: skip


@witness(LONG_ROWS)
@kernel(ops.amax)
def triton_amax(x: Tensor, dim: int) -> Tensor:
    """Conforming."""
    return launch(x, dim)


@witness(LONG_ROWS, breaks="C-CMP-03")
@kernel(ops.amax)
def amax_zero_identity(x: Tensor, dim: int) -> Tensor:
    """Violates C-CMP-03: padded lanes hold 0.0, more than any negative row."""
    return launch(x, dim, zero_identity=True)


@witness(LONG_ROWS, breaks="C-EXC-01")
@kernel(ops.amax)
def amax_nan_swallowed(x: Tensor, dim: int) -> Tensor:
    """Violates C-EXC-01: a NaN is passed over as if it were not there."""
    return launch(x, dim, swallow_nan=True)
