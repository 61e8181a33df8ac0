"""Kernels of conch-triton-kernels 1.3 as released."""

import torch
import torch.nn.functional as F
from conch.ops.activation.gelu_tanh_and_mul import gelu_tanh_and_mul
from conch.ops.activation.silu_and_mul import silu_and_mul
from conch.ops.normalization.rms_norm import rms_norm

import kfuzz
from kfuzz import strategies as ks
from kfuzz.contracts import operators as ops

PACKAGE = "conch-triton-kernels"
VERSION = "1.3"
NEEDS: tuple[str, ...] = ()


def _halves(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]


silu_mul = kfuzz.Operator(
    "silu_and_mul",
    inputs={"x": ks.tensors("T D")},
    oracle=lambda x: F.silu(_halves(x)[0]) * _halves(x)[1],
    shape_class="D % 2 == 0",
)
gelu_mul = kfuzz.Operator(
    "gelu_tanh_and_mul",
    inputs={"x": ks.tensors("T D")},
    oracle=lambda x: F.gelu(_halves(x)[0], approximate="tanh") * _halves(x)[1],
    shape_class="D % 2 == 0",
)
conch_silu_and_mul = kfuzz.kernel(
    silu_mul, name="conch_silu_and_mul", layouts="contiguous", intermediates="output"
)(silu_and_mul)
conch_gelu_tanh_and_mul = kfuzz.kernel(
    gelu_mul, name="conch_gelu_tanh_and_mul", layouts="contiguous"
)(gelu_tanh_and_mul)


@kfuzz.kernel(
    ops.rms_norm, name="conch_rms_norm", layouts="contiguous", intermediates="output"
)
def conch_rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Without the residual."""
    return rms_norm(x, weight, eps)
