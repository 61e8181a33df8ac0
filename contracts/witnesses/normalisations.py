"""Normalisations of rows in Triton: a pass or two for the statistics, one to write."""

import triton
import triton.language as tl
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.rows import as_rows, empty_rows, few_tiles, restored
from kfuzz.contracts.witnesses.witness import LONG_ROWS, witness

# One binary for all sizes and strides: a search tries hundreds of them.
SIZES = ("stride_m", "stride_n", "stride_rm", "stride_rn", "stride_w", "m", "n")


@triton.jit(do_not_specialize=SIZES)
def rms_norm_kernel(
    x_ptr, r_ptr, w_ptr, y_ptr, h_ptr,
    stride_m, stride_n, stride_rm, stride_rn, stride_w, m, n, eps,
    RESIDUAL: tl.constexpr, EPS_OUTSIDE: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """y[i, :] = h / sqrt(mean(h^2) + eps) * w for h = x[i, :], plus r[i, :] if any."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, BLOCK)[None, :].to(tl.int64)  # a stride may multiply it
    squares = tl.full([ROWS, BLOCK], 0.0, tl.float32)
    for start in range(0, n, BLOCK):
        offs = start + lanes
        mask = (rows < m) & (offs < n)
        x = tl.load(x_ptr + rows * stride_m + offs * stride_n, mask=mask, other=0.0)
        h = x.to(tl.float32)
        if RESIDUAL:
            r_tile = r_ptr + rows * stride_rm + offs * stride_rn
            h += tl.load(r_tile, mask=mask, other=0.0).to(tl.float32)
            h_tile = h_ptr + rows * n + offs
            tl.store(h_tile, h.to(h_ptr.dtype.element_ty), mask=mask)
        squares += h * h
    mean_square = tl.sum(squares, axis=1)[:, None] / n
    if EPS_OUTSIDE:
        scale = 1.0 / (tl.sqrt(mean_square) + eps)
    else:
        scale = tl.rsqrt(mean_square + eps)
    for start in range(0, n, BLOCK):
        offs = start + lanes
        mask = (rows < m) & (offs < n)
        x = tl.load(x_ptr + rows * stride_m + offs * stride_n, mask=mask, other=0.0)
        h = x.to(tl.float32)
        if RESIDUAL:
            r_tile = r_ptr + rows * stride_rm + offs * stride_rn
            h += tl.load(r_tile, mask=mask, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + offs * stride_w, mask=offs < n, other=0.0).to(tl.float32)
        y = h * scale * w
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


def rms_norm(
    x: Tensor,
    weight: Tensor,
    eps: float,
    residual: Tensor | None = None,
    *,
    eps_outside: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return the norm of h = x + residual, and h; the flag is a fault."""
    rows = as_rows(x, -1)
    added = rows if residual is None else as_rows(residual, -1)
    y = empty_rows(rows)
    h = y if residual is None else empty_rows(rows)
    if y.numel():
        tiles = few_tiles(rows.shape[1])
        rms_norm_kernel[(triton.cdiv(rows.shape[0], tiles["ROWS"]),)](
            rows, added, weight, y, h,
            *rows.stride(), *added.stride(), weight.stride(0), *rows.shape, eps,
            RESIDUAL=residual is not None, EPS_OUTSIDE=eps_outside, **tiles,
        )  # fmt: skip
    return restored(y, x, -1), restored(h, x, -1)


@witness(LONG_ROWS, (1024,))
@kernel(ops.rms_norm)
def triton_rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    """Conforming."""
    return rms_norm(x, weight, eps)[0]


@witness(
    LONG_ROWS, (1024,), breaks="K-VAL-01", most=(2, 2),
    minimal="one small element and its weight",
)  # fmt: skip
@kernel(ops.rms_norm)
def rms_norm_eps_outside(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    """Violates K-VAL-01: eps is added to the root, not under it."""
    return rms_norm(x, weight, eps, eps_outside=True)[0]


@witness(LONG_ROWS, LONG_ROWS, (1024,))
@kernel(ops.add_rms_norm)
def triton_add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """Conforming."""
    return rms_norm(x, weight, eps, residual)


@witness(LONG_ROWS)
@kernel(ops.log_softmax)
def triton_log_softmax(x: Tensor, dim: int = -1) -> Tensor:
    """Conforming."""
    rows = as_rows(x, dim)
    y = empty_rows(rows)
    if y.numel():
        tiles = few_tiles(rows.shape[1])
        log_softmax_kernel[(triton.cdiv(rows.shape[0], tiles["ROWS"]),)](
            rows, y, *rows.stride(), *rows.shape, **tiles
        )
    return restored(y, x, dim)
