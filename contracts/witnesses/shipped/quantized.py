"""Products of codes with scales, group by group, in torch."""

import torch
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.witness import Shape, witness

ROWS: tuple[Shape, ...] = ((16, 32), (32, 16), (16,), (16,), (16,))
BLOCKS: tuple[Shape, ...] = ((16, 256), (256, 128), (16, 2), (2, 1))
MX: tuple[Shape, ...] = ((16, 64), (64, 16), (16, 2), (2, 16))
INT4: tuple[Shape, ...] = ((16, 64), (32, 16), (2, 16), (2, 16))
TILE = 16


def _tiled(a: Tensor, b: Tensor) -> Tensor:
    """Return a b, tile by tile of K, in the format of the operands."""
    y = a.new_zeros(a.shape[0], b.shape[1])
    for start in range(0, a.shape[1], TILE):
        y += a[:, start : start + TILE] @ b[start : start + TILE]
    return y


@witness(*ROWS, backends=("cpu",))
@kernel(ops.scaled_matmul_int8)
def tiled_scaled_matmul_int8(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, bias: Tensor | None = None,
    *, dtype: torch.dtype = torch.float32,
) -> Tensor:  # fmt: skip
    """Conforming: sums in int32, the product of the scales first."""
    y = _tiled(a.int(), b.int()).float() * (scale_a[:, None] * scale_b)
    return (y if bias is None else y + bias).to(dtype)


@witness(*ROWS, backends=("cpu",))
@kernel(ops.scaled_matmul_fp8)
def tiled_scaled_matmul_fp8(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, bias: Tensor | None = None,
    *, dtype: torch.dtype = torch.float32,
) -> Tensor:  # fmt: skip
    """Conforming: columns are scaled before rows."""
    y = _tiled(a.float(), b.float()) * scale_b * scale_a[:, None]
    return (y if bias is None else y + bias).to(dtype)


def _by_blocks(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, columns: int
) -> Tensor:
    """Return the sum over groups of K; b has a scale for so many columns."""
    y = torch.zeros(a.shape[0], b.shape[1])
    width = a.shape[1] // max(scale_a.shape[1], 1)
    of_column = (torch.arange(b.shape[1]) // columns).clamp(max=scale_b.shape[1] - 1)
    for g in range(scale_a.shape[1]):
        part = slice(g * width, (g + 1) * width)
        scale = scale_a[:, g, None] * scale_b[g, of_column]
        y += (a[:, part].float() @ b[part].float()) * scale
    return y


@witness(*BLOCKS, backends=("cpu",))
@kernel(ops.scaled_matmul_blocks)
def promoted_scaled_matmul_blocks(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, *, block: int = 128,
    dtype: torch.dtype = torch.float32,
) -> Tensor:  # fmt: skip
    """Conforming: each block is scaled and added in float32."""
    return _by_blocks(a, b, scale_a, scale_b, block).to(dtype)


def _powers(codes: Tensor, none: float) -> Tensor:
    made = torch.exp2(codes.double() - 127).float()
    return torch.where(codes == 255, none, made)


@witness(*MX, backends=("cpu",))
@kernel(ops.mx_matmul)
def promoted_mx_matmul(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, *,
    dtype: torch.dtype = torch.float32,
) -> Tensor:  # fmt: skip
    """Conforming: each block of 32 is scaled and added in float32."""
    left, right = _powers(scale_a, torch.nan), _powers(scale_b, torch.nan)
    return _by_blocks(a, b, left, right, 1).to(dtype)


@witness(*INT4, backends=("cpu",))
@kernel(ops.int4_matmul, intermediates="float32")
def halved_int4_matmul(
    x: Tensor, codes: Tensor, scale: Tensor, zero: Tensor | None = None
) -> Tensor:
    """Conforming."""
    zero = torch.full_like(scale, 8) if zero is None else zero
    s, z = scale.float(), zero.float()
    each = -(-codes.shape[0] // scale.shape[0])
    group = (torch.arange(codes.shape[0]) // each).clamp(max=scale.shape[0] - 1)
    s, z = s[group], z[group]
    low = (codes & 15).float() * s - z * s
    high = (codes >> 4).float() * s - z * s
    return (x[:, ::2].float() @ low + x[:, 1::2].float() @ high).to(x.dtype)


@witness((16, 64), (8, 16), (2, 16), (2, 2), backends=("cpu",))
@kernel(ops.gptq_matmul, intermediates="float32")
def late_gptq_matmul(x: Tensor, codes: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    """Conforming: zero points are taken off the sums."""
    n = torch.stack([(codes >> 4 * i) & 15 for i in range(8)], 1).flatten(0, 1).float()
    z = torch.stack([(zero >> 4 * i) & 15 for i in range(8)], -1).flatten(-2) + 1
    y = torch.zeros(x.shape[0], codes.shape[1])
    width = n.shape[0] // scale.shape[0]
    for g in range(scale.shape[0]):
        part = slice(g * width, (g + 1) * width)
        xg = x[:, part].float()
        y += (xg @ n[part] - xg.sum(-1, True) * z[g]) * scale[g].float()
    return y.to(x.dtype)
