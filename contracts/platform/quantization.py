"""Conversions by torch, and quantisation as a chain of its calls."""

import torch
from torch import Tensor

from kfuzz.contracts import operators as ops
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
