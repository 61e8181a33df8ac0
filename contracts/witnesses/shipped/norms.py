"""Normalisations with gates, without parameters and of weights, in other algorithms."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.normalisations import rms_norm, triton_group_norm
from kfuzz.contracts.witnesses.rows import as_rows, empty_rows, few_tiles, restored
from kfuzz.contracts.witnesses.witness import LONG_ROWS, SQUARE, witness


@triton.jit
def gated(x, z, BEFORE: tl.constexpr):
    """Return x, or x silu(z) where the gate comes before the norm."""
    return x if BEFORE else x * (z / (1.0 + tl.exp(-z)))


@triton.jit(do_not_specialize=["m", "n", "eps"])
def gated_norm_kernel(
    x_ptr, z_ptr, w_ptr, b_ptr, y_ptr, stride_w, stride_b, m, n, eps,
    CENTRED: tl.constexpr, BEFORE: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the gated norm of contiguous rows to y, computed in float32.

    Args:
        x_ptr: [m, n].
        z_ptr: the gates, [m, n].
        w_ptr: weight, [n].
        b_ptr: bias, [n]; not read without CENTRED.
        y_ptr: [m, n].
        stride_w: of the weight.
        stride_b: of the bias.
        m: rows.
        n: columns.
        eps: added to the variance.
        CENTRED: whether the mean is subtracted, and the bias added.
        BEFORE: whether the norm comes before the gate.
        ROWS: rows of a program.
        BLOCK: columns of a step.
    """
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    for start in range(0, n, BLOCK):
        offs = start + lanes.to(tl.int64)
        mask = (rows < m) & (offs < n)
        x = tl.load(x_ptr + rows * n + offs, mask=mask, other=0.0).to(tl.float32)
        z = tl.load(z_ptr + rows * n + offs, mask=mask, other=0.0).to(tl.float32)
        total += gated(x, z, BEFORE)
    mean = (
        tl.sum(total, axis=1)[:, None] / n
        if CENTRED
        else tl.zeros([ROWS, 1], tl.float32)
    )
    squares = tl.zeros([ROWS, BLOCK], tl.float32)
    for start in range(0, n, BLOCK):
        offs = start + lanes.to(tl.int64)
        mask = (rows < m) & (offs < n)
        x = tl.load(x_ptr + rows * n + offs, mask=mask, other=0.0).to(tl.float32)
        z = tl.load(z_ptr + rows * n + offs, mask=mask, other=0.0).to(tl.float32)
        d = tl.where(mask, gated(x, z, BEFORE) - mean, 0.0)
        squares += d * d
    scale = 1.0 / tl.sqrt(tl.sum(squares, axis=1)[:, None] / n + eps)
    for start in range(0, n, BLOCK):
        offs = start + lanes.to(tl.int64)
        mask = (rows < m) & (offs < n)
        x = tl.load(x_ptr + rows * n + offs, mask=mask, other=0.0).to(tl.float32)
        z = tl.load(z_ptr + rows * n + offs, mask=mask, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + offs * stride_w, mask=offs < n, other=0.0).to(tl.float32)
        y = (gated(x, z, BEFORE) - mean) * scale * w
        if CENTRED:
            b = tl.load(b_ptr + offs * stride_b, mask=offs < n, other=0.0)
            y += b.to(tl.float32)
        if BEFORE:
            y = y * (z / (1.0 + tl.exp(-z)))
        tl.store(y_ptr + rows * n + offs, y.to(y_ptr.dtype.element_ty), mask=mask)


def gated_norm(
    x: Tensor, gate: Tensor, weight: Tensor, bias: Tensor | None, eps: float,
    *, before: bool,
) -> Tensor:  # fmt: skip
    """Return the gated norm of rows, centred where there is a bias."""
    rows, gates = as_rows(x, -1).contiguous(), as_rows(gate, -1).contiguous()
    y = empty_rows(rows)
    if y.numel():
        tiles = few_tiles(rows.shape[1])
        gated_norm_kernel[(triton.cdiv(rows.shape[0], tiles["ROWS"]),)](
            rows, gates, weight, weight if bias is None else bias, y,
            weight.stride(0), 0 if bias is None else bias.stride(0), *rows.shape, eps,
            CENTRED=bias is not None, BEFORE=before, **tiles,
        )  # fmt: skip
    return restored(y, x, -1)


@witness(LONG_ROWS, LONG_ROWS, (1024,))
@kernel(ops.gated_rms_norm)
def triton_gated_rms_norm(
    x: Tensor, gate: Tensor, weight: Tensor, eps: float = 1e-5,
    norm_before_gate: bool = True,
) -> Tensor:  # fmt: skip
    """Conforming."""
    return gated_norm(x, gate, weight, None, eps, before=norm_before_gate)


@witness(LONG_ROWS, LONG_ROWS, (1024,), (1024,))
@kernel(ops.gated_layer_norm)
def triton_gated_layer_norm(
    x: Tensor, gate: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5,
    norm_before_gate: bool = True,
) -> Tensor:  # fmt: skip
    """Conforming."""
    return gated_norm(x, gate, weight, bias, eps, before=norm_before_gate)


@witness(LONG_ROWS)
@kernel(ops.rms_norm)
def triton_rms_norm_plain(x: Tensor, eps: float = 1e-6) -> Tensor:
    """Conforming: without a weight."""
    return rms_norm(x, x.new_ones(x.shape[-1]), eps)[0]


@witness((4, 8, 64), (8,), (8,))
@kernel(ops.instance_norm)
def triton_instance_norm(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5
) -> Tensor:
    """Conforming: groups of one channel."""
    groups = max(x.shape[1], 1)
    made: Tensor = triton_group_norm(x, weight, bias, num_groups=groups, eps=eps)
    return made


@witness(
    (4, 8, 64), (8,), (8,), breaks="C-PRC-02", most=(8, 8), backends=("cpu",),
    minimal="a row with a large mean",
)  # fmt: skip
@kernel(ops.instance_norm)
def instance_norm_one_pass(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5
) -> Tensor:
    """Violates C-PRC-02: the variance as mean square less squared mean."""
    wide = x.float()
    mean = wide.mean(-1, keepdim=True)
    variance = (wide * wide).mean(-1, keepdim=True) - mean * mean
    y = (wide - mean) * torch.rsqrt(variance + eps)
    return (y * weight.float()[:, None] + bias.float()[:, None]).to(x.dtype)


@witness(SQUARE, (64,), backends=("cpu",))
@kernel(ops.weight_norm)
def scaled_weight_norm(v: Tensor, g: Tensor) -> Tensor:
    """Conforming: by the reciprocal root."""
    wide = v.float()
    scale = torch.rsqrt((wide * wide).sum(-1))
    return (wide * (g.float() * scale)[:, None]).to(v.dtype)
