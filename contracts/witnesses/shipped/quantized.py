"""Products of codes with scales, group by group, in torch."""

import torch
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.witness import Shape, witness

BLOCKS: tuple[Shape, ...] = ((16, 256), (256, 128), (16, 2), (2, 1))
MX: tuple[Shape, ...] = ((16, 64), (64, 16), (16, 2), (2, 16))


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
