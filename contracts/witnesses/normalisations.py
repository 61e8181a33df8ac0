"""Normalisations of rows in Triton: passes for the statistics, one to write."""

import triton
import triton.language as tl
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.rows import (
    as_rows,
    each_of_rows,
    empty,
    few_tiles,
    restored,
)
from kfuzz.contracts.witnesses.witness import LONG_ROWS, witness

# One binary for all sizes and strides: a search tries hundreds of them.
SIZES = (
    "stride_m", "stride_n", "stride_rm", "stride_rn", "stride_w", "stride_b", "m", "n",
)  # fmt: skip


@triton.jit
def added(x_ptr, r_ptr, x_at, r_at, mask, RESIDUAL: tl.constexpr):
    """Return h = x, plus r if any, in float32."""
    h = tl.load(x_ptr + x_at, mask=mask, other=0.0).to(tl.float32)
    if RESIDUAL:
        h += tl.load(r_ptr + r_at, mask=mask, other=0.0).to(tl.float32)
    return h


@triton.jit(do_not_specialize=SIZES)
def norm_kernel(
    x_ptr, r_ptr, w_ptr, b_ptr, y_ptr, h_ptr,
    stride_m, stride_n, stride_rm, stride_rn, stride_w, stride_b, m, n, eps,
    CENTRED: tl.constexpr, RESIDUAL: tl.constexpr, EPS_OUTSIDE: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """y[i, :] = (h - mean) / sqrt(variance + eps) * w + b, mean and b where CENTRED."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, BLOCK)[None, :].to(tl.int64)  # a stride may multiply it
    total = tl.full([ROWS, BLOCK], 0.0, tl.float32)
    squares = tl.full([ROWS, BLOCK], 0.0, tl.float32)
    for start in range(0, n, BLOCK):
        offs = start + lanes
        mask = (rows < m) & (offs < n)
        x_at = rows * stride_m + offs * stride_n
        r_at = rows * stride_rm + offs * stride_rn
        h = added(x_ptr, r_ptr, x_at, r_at, mask, RESIDUAL)
        if RESIDUAL:
            tl.store(h_ptr + rows * n + offs, h.to(h_ptr.dtype.element_ty), mask=mask)
        total += h
    mean = tl.zeros([ROWS, 1], tl.float32)
    if CENTRED:
        mean = tl.sum(total, axis=1)[:, None] / n
    for start in range(0, n, BLOCK):
        offs = start + lanes
        mask = (rows < m) & (offs < n)
        x_at = rows * stride_m + offs * stride_n
        r_at = rows * stride_rm + offs * stride_rn
        d = added(x_ptr, r_ptr, x_at, r_at, mask, RESIDUAL) - mean
        d = tl.where(offs < n, d, 0.0)
        squares += d * d
    variance = tl.sum(squares, axis=1)[:, None] / n
    scale = tl.rsqrt(variance + eps)
    if EPS_OUTSIDE:
        scale = 1.0 / (tl.sqrt(variance) + eps)
    for start in range(0, n, BLOCK):
        offs = start + lanes
        mask = (rows < m) & (offs < n)
        x_at = rows * stride_m + offs * stride_n
        r_at = rows * stride_rm + offs * stride_rn
        h = added(x_ptr, r_ptr, x_at, r_at, mask, RESIDUAL)
        w = tl.load(w_ptr + offs * stride_w, mask=offs < n, other=0.0).to(tl.float32)
        y = (h - mean) * scale * w
        if CENTRED:
            b = tl.load(b_ptr + offs * stride_b, mask=offs < n, other=0.0)
            y += b.to(tl.float32)
        tl.store(y_ptr + rows * n + offs, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=SIZES)
def log_softmax_kernel(
    x_ptr, y_ptr, stride_m, stride_n, m, n, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """y[i, :] = x[i, :] - max - log sum exp(x[i, :] - max), the sum rescaled online."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, BLOCK)[None, :].to(tl.int64)  # a stride may multiply it
    x_rows = x_ptr + rows * stride_m
    top = tl.full([ROWS, 1], float("-inf"), tl.float32)
    total = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, n, BLOCK):
        offs = start + lanes
        mask = (rows < m) & (offs < n)
        x = tl.load(x_rows + offs * stride_n, mask=mask, other=float("-inf"))
        x = x.to(tl.float32)
        new = tl.maximum(top, tl.max(x, axis=1, keep_dims=True))
        # Nothing is shifted by -Inf: an element to come may be finite.
        shift = tl.where(new == float("-inf"), 0.0, new)
        total *= tl.exp(top - shift)
        total += tl.sum(tl.exp(x - shift), axis=1, keep_dims=True)
        top = new
    log_total = tl.log(total)
    for start in range(0, n, BLOCK):
        offs = start + lanes
        mask = (rows < m) & (offs < n)
        x = tl.load(x_rows + offs * stride_n, mask=mask, other=0.0).to(tl.float32)
        y = x - top - log_total
        tl.store(y_ptr + rows * n + offs, y.to(y_ptr.dtype.element_ty), mask=mask)


def norm(
    x: Tensor, weight: Tensor, eps: float, *, bias: Tensor | None = None,
    residual: Tensor | None = None, eps_outside: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return the norm of h = x + residual, and h; centred with a bias.

    With `eps_outside`, a fault, eps is added to the root.
    """
    rows = as_rows(x, -1)
    others = rows if residual is None else as_rows(residual, -1)
    y = empty(rows)
    h = y if residual is None else empty(rows)
    if y.numel():
        tiles = few_tiles(rows.shape[1])
        norm_kernel[(triton.cdiv(rows.shape[0], tiles["ROWS"]),)](
            rows, others, weight, weight if bias is None else bias, y, h,
            *rows.stride(), *others.stride(), weight.stride(0),
            0 if bias is None else bias.stride(0), *rows.shape, eps,
            CENTRED=bias is not None, RESIDUAL=residual is not None,
            EPS_OUTSIDE=eps_outside, **tiles,
        )  # fmt: skip
    return restored(y, x, -1), restored(h, x, -1)


@witness(LONG_ROWS, (1024,))
@kernel(ops.rms_norm)
def triton_rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    """Conforming."""
    return norm(x, weight, eps)[0]


@witness(LONG_ROWS, (1024,), breaks="K-VAL-01")
@kernel(ops.rms_norm)
def rms_norm_eps_outside(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    """Violates K-VAL-01: eps is added to the root, not under it."""
    return norm(x, weight, eps, eps_outside=True)[0]


@witness(LONG_ROWS, LONG_ROWS, (1024,))
@kernel(ops.add_rms_norm)
def triton_add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """Conforming."""
    return norm(x, weight, eps, residual=residual)


@witness(LONG_ROWS)
@kernel(ops.log_softmax)
def triton_log_softmax(x: Tensor, dim: int = -1) -> Tensor:
    """Conforming."""
    return each_of_rows(log_softmax_kernel, x, dim, few_tiles)


@witness(LONG_ROWS, (1024,), (1024,))
@kernel(ops.layer_norm)
def triton_layer_norm(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5
) -> Tensor:
    """Conforming."""
    return norm(x, weight, eps, bias=bias)[0]
