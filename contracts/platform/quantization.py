"""Conversions by torch, and quantisation as a chain of its calls."""

import torch
from torch import Tensor

from kfuzz.contracts import operators as ops
from kfuzz.contracts.operators.quantization import MIDDLE
from kfuzz.contracts.platform.table import Claim, implements
from kfuzz.core.dtypes import FLOAT8


@implements(
    ops.cast,
    Claim(
        "dtypes",
        ("float32", "float16", "bfloat16", *FLOAT8),
        "torch.Tensor.to converts between all of them",
    ),
)
def torch_cast(x: Tensor, *, dtype: torch.dtype = torch.float16) -> Tensor:
    """Convert with `torch.Tensor.to`, to a tensor of its own."""
    return x.to(dtype, copy=True)


@implements(ops.quantize_int8)
def torch_quantize_int8(x: Tensor, *, eps: float = 0.0) -> tuple[Tensor, Tensor]:
    """Divide by the scale, round, clamp and convert, in float32."""
    scale = x.float().abs().amax(-1).clamp(min=eps) / 127
    safe = torch.where(scale == 0, 1, scale).unsqueeze(-1)
    codes = torch.round(x.float() / safe).clamp(-127, 127)
    return codes.to(torch.int8), scale


@implements(ops.quantize_fp8)
def torch_quantize_fp8(x: Tensor, *, eps: float = 0.0) -> tuple[Tensor, Tensor]:
    """Multiply by 448 / max|x|, clamp and convert, in float32."""
    greatest = x.float().abs().amax(-1).clamp(min=eps)
    inverse = torch.where(greatest == 0, 1, 448 / greatest).unsqueeze(-1)
    codes = (x.float() * inverse).clamp(-448, 448)
    return codes.to(torch.float8_e4m3fn), greatest / 448


@implements(ops.dequantize_int8)
def torch_dequantize_int8(
    q: Tensor, scale: Tensor, *, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Multiply in float32 and convert."""
    return (q.float() * scale.unsqueeze(-1)).to(dtype)


@implements(ops.dequantize_fp8)
def torch_dequantize_fp8(
    q: Tensor, scale: Tensor, *, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Multiply in float32 and convert."""
    return (q.float() * scale.unsqueeze(-1)).to(dtype)


@implements(ops.scaled_matmul_int8)
def torch_scaled_matmul_int8(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, bias: Tensor | None = None,
    *, dtype: torch.dtype = torch.float32,
) -> Tensor:  # fmt: skip
    """Multiply exactly, scale rows, then columns, in float32."""
    y = (a.double() @ b.double()).float() * scale_a.unsqueeze(-1) * scale_b
    return (y if bias is None else y + bias).to(dtype)


@implements(ops.scaled_matmul_fp8)
def torch_scaled_matmul_fp8(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, bias: Tensor | None = None,
    *, dtype: torch.dtype = torch.float32,
) -> Tensor:  # fmt: skip
    """Multiply, and the product of the scales, in float32."""
    y = (a.float() @ b.float()) * (scale_a.unsqueeze(-1) * scale_b)
    return (y if bias is None else y + bias).to(dtype)


def _wide(codes: Tensor, scale: Tensor, dim: int) -> Tensor:
    """Return codes times their scales, each of which serves several along dim."""
    each = codes.shape[dim] // max(scale.shape[dim], 1)
    return codes.float() * scale.repeat_interleave(each, dim)


@implements(ops.scaled_matmul_blocks)
def torch_scaled_matmul_blocks(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, *, block: int = 128,
    dtype: torch.dtype = torch.float32,
) -> Tensor:  # fmt: skip
    """Scale both operands, then multiply, in float32."""
    right = _wide(b, scale_b.repeat_interleave(block, 1), 0)
    return (_wide(a, scale_a, 1) @ right).to(dtype)


def _powers(codes: Tensor) -> Tensor:
    power = torch.ldexp(torch.ones_like(codes, dtype=torch.float32), codes.int() - 127)
    return torch.where(codes == 255, float("nan"), power)


@implements(ops.mx_matmul)
def torch_mx_matmul(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, *,
    dtype: torch.dtype = torch.float32,
) -> Tensor:  # fmt: skip
    """Scale both operands, then multiply, in float32."""
    left, right = _wide(a, _powers(scale_a), 1), _wide(b, _powers(scale_b), 0)
    return (left @ right).to(dtype)


def _nibbles(packed: Tensor, count: int, dim: int) -> Tensor:
    shifted = [(packed >> 4 * i) & 15 for i in range(count)]
    return torch.stack(shifted, dim).flatten(dim - 1, dim)


def _weighted(x: Tensor, codes: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    """Return x times weights in the data's format."""
    each = codes.shape[0] // scale.shape[0]
    scale, zero = (t.repeat_interleave(each, 0) for t in (scale, zero))
    return x @ ((codes.to(x.dtype) - zero.to(x.dtype)) * scale)


@implements(ops.int4_matmul)
def torch_int4_matmul(
    x: Tensor, codes: Tensor, scale: Tensor, zero: Tensor | None = None
) -> Tensor:
    """Unpack and scale the weights in the data's format, then multiply."""
    zero = torch.full_like(scale, MIDDLE) if zero is None else zero
    return _weighted(x, _nibbles(codes, 2, -2), scale, zero)


@implements(ops.gptq_matmul)
def torch_gptq_matmul(x: Tensor, codes: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    """Unpack weights and zero points, scale in the data's format, then multiply."""
    zeros = _nibbles(zero, 8, -1) + 1
    return _weighted(x, _nibbles(codes, 8, -2), scale, zeros)
