"""Layer normalisation in Triton: two passes for the moments, one to write."""

import triton
import triton.language as tl
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.rows import as_rows, empty_rows, restored, tile
from kfuzz.contracts.witnesses.witness import LONG_ROWS, witness

# One binary for all sizes and strides: a search tries hundreds of them.
SIZES = ("stride_xm", "stride_xn", "stride_w", "stride_b", "stride_ym", "m", "n")


@triton.jit(do_not_specialize=SIZES)
def layer_norm_kernel(
    x_ptr,
    w_ptr,
    b_ptr,
    y_ptr,
    stride_xm,
    stride_xn,
    stride_w,
    stride_b,
    stride_ym,
    m,
    n,
    eps,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    PADDED_VARIANCE: tl.constexpr,
    ONE_PASS: tl.constexpr,
):
    """y[i, :] = (x[i, :] - mean) / sqrt(variance + eps) * w + b, in float32."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, BLOCK)[None, :].to(tl.int64)  # a stride may multiply it
    x_rows = x_ptr + rows * stride_xm
    y_rows = y_ptr + rows * stride_ym

    total = tl.full([ROWS, BLOCK], 0.0, tl.float32)
    squares = tl.full([ROWS, BLOCK], 0.0, tl.float32)
    for start in range(0, n, BLOCK):
        offs = start + lanes
        mask = (rows < m) & (offs < n)
        x = tl.load(x_rows + offs * stride_xn, mask=mask, other=0.0).to(tl.float32)
        total += x
        if ONE_PASS:
            squares += x * x
    mean = tl.sum(total, axis=1)[:, None] / n

    if not ONE_PASS:
        for start in range(0, n, BLOCK):
            offs = start + lanes
            mask = (rows < m) & (offs < n)
            x = tl.load(x_rows + offs * stride_xn, mask=mask, other=0.0)
            d = x.to(tl.float32) - mean
            if not PADDED_VARIANCE:
                d = tl.where(offs < n, d, 0.0)
            squares += d * d
    variance = tl.sum(squares, axis=1)[:, None] / n
    if ONE_PASS:
        variance -= mean * mean
    scale = tl.rsqrt(variance + eps)

    for start in range(0, n, BLOCK):
        offs = start + lanes
        mask = (rows < m) & (offs < n)
        x = tl.load(x_rows + offs * stride_xn, mask=mask, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + offs * stride_w, mask=offs < n, other=0.0).to(tl.float32)
        b = tl.load(b_ptr + offs * stride_b, mask=offs < n, other=0.0).to(tl.float32)
        y = (x - mean) * scale * w + b
        tl.store(y_rows + offs, y.to(y_ptr.dtype.element_ty), mask=mask)


def launch(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    eps: float,
    *,
    padded_variance: bool = False,
    one_pass: bool = False,
) -> Tensor:
    """Return layer_norm(x); a flag that is not at its default is a fault."""
    rows = as_rows(x, -1)
    y = empty_rows(rows)
    constants = tile(rows.shape[1])
    if y.numel():
        layer_norm_kernel[(triton.cdiv(rows.shape[0], constants["ROWS"]),)](
            rows,
            weight,
            bias,
            y,
            rows.stride(0),
            rows.stride(1),
            weight.stride(0),
            bias.stride(0),
            y.stride(0),
            *rows.shape,
            eps,
            **constants,
            PADDED_VARIANCE=padded_variance,
            ONE_PASS=one_pass,
        )
    return restored(y, x, -1)


@witness(LONG_ROWS, (1024,), (1024,))
@kernel(ops.layer_norm)
def triton_layer_norm(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5
) -> Tensor:
    """Conforming."""
    return launch(x, weight, bias, eps)


@witness(
    LONG_ROWS, (1024,), (1024,), breaks="C-CMP-03", most=(9, 2),
    minimal="one row, width 3: one element of x and its weight set",
)  # fmt: skip
@kernel(ops.layer_norm)
def layer_norm_padded_variance(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5
) -> Tensor:
    """Violates C-CMP-03: each padded lane adds (0 - mean)^2 to the variance."""
    return launch(x, weight, bias, eps, padded_variance=True)


@witness(
    LONG_ROWS, (1024,), (1024,), breaks="C-PRC-02", most=(21, 7),
    minimal="one row, width 2 or 3: large neighbours and one weight; up to 7 equal "
    "elements where the variance comes out negative",
)  # fmt: skip
@kernel(ops.layer_norm)
def layer_norm_one_pass(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5
) -> Tensor:
    """Violates C-PRC-02: E[x^2] - E[x]^2 cancels where the mean is large."""
    return launch(x, weight, bias, eps, one_pass=True)
