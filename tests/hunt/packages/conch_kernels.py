"""Kernels of conch-triton-kernels 1.3 as released."""

import torch
from conch.ops.activation.gelu_tanh_and_mul import gelu_tanh_and_mul
from conch.ops.activation.silu_and_mul import silu_and_mul
from conch.ops.normalization.gemma_rms_norm import gemma_rms_norm
from conch.ops.normalization.rms_norm import rms_norm
from conch.ops.quantization.int8 import scaled_int8_quant
from conch.ops.vision.voxelization import VoxelizationParameter, generate_voxels
from conch.ops.vllm.reshape_and_cache import reshape_and_cache

import kfuzz
from kfuzz import strategies as ks
from kfuzz.contracts import operators as ops

PACKAGE = "conch-triton-kernels"
VERSION = "1.3"
NEEDS: tuple[str, ...] = ()


conch_silu_and_mul = kfuzz.kernel(
    ops.silu_and_mul,
    name="conch_silu_and_mul",
    ranks={2},
    layouts="contiguous",
    intermediates="output",
)(silu_and_mul)
conch_gelu_tanh_and_mul = kfuzz.kernel(
    ops.gelu_tanh_and_mul,
    name="conch_gelu_tanh_and_mul",
    ranks={2},
    layouts="contiguous",
)(gelu_tanh_and_mul)


@kfuzz.kernel(
    ops.rms_norm, name="conch_rms_norm", layouts="contiguous", intermediates="output"
)
def conch_rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Without the residual."""
    return rms_norm(x, weight, eps)


def _cached(
    key: torch.Tensor, cache: torch.Tensor, slots: torch.Tensor
) -> torch.Tensor:
    made = cache.clone()
    made[0, slots] = key
    return made


kfuzz.kernel(
    kfuzz.Operator(
        "reshape_and_cache",
        inputs={
            "key": ks.tensors("T H D"), "cache": ks.tensors("P S H D"),
            "slots": ks.indices("T", below="S", distinct=True),
        },
        oracle=_cached,
        shape_class="P == 1 and T <= S and D >= 1",
    ),
    name="conch_reshape_and_cache", layouts="inner_contiguous", inplace=("cache",),
)(
    lambda key, cache, slots: reshape_and_cache(key, key, cache, cache, slots)
)  # fmt: skip


def _gemma(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    both = x + residual
    scale = torch.rsqrt((both * both).mean(-1, keepdim=True) + 1e-6)
    return both * scale * (1 + weight), both


kfuzz.kernel(
    kfuzz.Operator(
        "gemma_add_rms_norm",
        inputs={
            "x": ks.tensors("T D"), "residual": ks.tensors("T D"),
            "weight": ks.tensors("D", role="weight"),
        },
        oracle=_gemma,
        outputs=("y", "h"),
        shape_class="D >= 1",
    ),
    name="conch_gemma_add_rms_norm", layouts="contiguous", intermediates="output",
)(lambda x, residual, weight: gemma_rms_norm(x, weight, 1e-6, residual))  # fmt: skip
kfuzz.kernel(
    kfuzz.Operator(
        "static_int8_quant",
        inputs={"x": ks.tensors("T D")},
        oracle=lambda x: x.round().clamp(-128, 127).to(torch.int8),
        results={"y": "int8"},
    ),
    name="conch_int8_quant", layouts="contiguous", nonfinite="undefined",
)(lambda x: scaled_int8_quant(x, torch.ones(1, device=x.device))[0])  # fmt: skip


def _voxels(points: torch.Tensor) -> torch.Tensor:
    places = points[((points >= 0) & (points < 2))[:, :3].all(-1), :3].floor()
    return torch.tensor([len(set(map(tuple, places.tolist())))])


kfuzz.kernel(
    kfuzz.Operator(
        "count_voxels",
        inputs={"points": ks.tensors("N F")},
        oracle=_voxels,
        results={"y": "int32"},
        shape_class="F == 4",
    ),
    name="conch_voxels", dtypes={"float32"}, nonfinite="undefined",
)(
    lambda points: generate_voxels(
        points, VoxelizationParameter((0.0,) * 3, (2.0,) * 3, (1.0,) * 3, 4)
    )[0]
)  # fmt: skip
