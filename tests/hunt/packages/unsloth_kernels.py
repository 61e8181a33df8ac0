"""Kernels of unsloth 2026.10.9 as released.

Its modules of kernels are imported by file, and what stands above them (transformers,
unsloth_zoo, bitsandbytes, low-precision formats) is absent: none of these kernels uses
it. Where its code says so, a claim stands beside: `normed` is rounded to the weight's
format, gates before the product, the shapes are those that each launcher unpacks, and
what is written is what was allocated for it.
"""

import importlib
from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from packaging.version import Version

import kfuzz
from kfuzz import strategies as ks
from kfuzz.contracts import operators as ops
from tests.hunt.bare import absent, bare

PACKAGE = "unsloth"
VERSION = "2026.10.9"
NEEDS: tuple[str, ...] = ()


bare("unsloth")
_MODELS = "transformers.models"
absent(
    "unsloth_zoo", "unsloth_zoo.loss_utils", "unsloth_zoo.patching_utils",
    "unsloth.kernels.fp8", "unsloth.kernels.nvfp4", "transformers", _MODELS,
    f"{_MODELS}.llama", f"{_MODELS}.llama.modeling_llama",
    f"{_MODELS}.mllama", f"{_MODELS}.mllama.modeling_mllama",
)  # fmt: skip
absent("unsloth_zoo.utils", Version=Version)
absent(
    "unsloth.device_type", DEVICE_COUNT=0, DEVICE_TYPE="cuda", DEVICE_TYPE_TORCH="cuda"
)


def _module(name: str) -> Any:
    return importlib.import_module(f"unsloth.kernels.{name}")


@triton.jit
def _cast(x, dtype):  # type: ignore[no-untyped-def]
    """tl.cast, which the interpreter finds where it is called by this name."""
    return tl.cast(x, dtype)


losses, norms, layer_norms = map(
    _module, ("cross_entropy_loss", "rms_layernorm", "layernorm")
)
gates, gelus, ropes = map(_module, ("swiglu", "geglu", "rope_embedding"))
added = _module("fused_add_rms_layernorm")
losses.triton_cast = _cast

ROWS = "N <= 65536"

gemma = kfuzz.Operator(
    "gemma_rms_norm",
    inputs={
        "x": ks.tensors("* N"),
        "weight": ks.tensors("N", role="weight"),
        "eps": ks.scalar(1e-6, domain=(1e-6, 1e-5)),
    },
    oracle=lambda x, weight, eps: (
        x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * (1 + weight)
    ),
    reduced="N",
    empty_reduction=False,
)
geglu_tanh = kfuzz.Operator(
    "geglu_tanh",
    inputs={"gate": ks.tensors("B S D"), "up": ks.tensors("B S D")},
    oracle=lambda gate, up: F.gelu(gate, approximate="tanh") * up,
)


def _swiglu_gradients(
    dw: torch.Tensor, e: torch.Tensor, g: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    s = torch.sigmoid(e)
    return s * e * g, dw * (s * e), dw * g * s * (1 + e * (1 - s))


def _geglu_gradients(
    dw: torch.Tensor, e: torch.Tensor, g: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    half = (1 + torch.erf(e * 2**-0.5)) / 2
    slope = half + e * torch.exp(-e * e / 2) * (2 * torch.pi) ** -0.5
    return half * e * g, dw * (half * e), dw * g * slope


swiglu_gradients, geglu_gradients = (
    kfuzz.Operator(
        f"{name}_gradients",
        inputs={each: ks.tensors("M N") for each in ("dw", "e", "g")},
        oracle=oracle,
        outputs=("h", "df", "de"),
    )
    for name, oracle in (("swiglu", _swiglu_gradients), ("geglu", _geglu_gradients))
)


kfuzz.kernel(
    ops.rms_norm, algorithm="cast_before_weight", shape_class=ROWS,
    name="unsloth_rms_norm",
)(
    lambda x, weight, eps: norms.Fast_RMS_Layernorm.apply(x, weight, eps, False)
)  # fmt: skip
kfuzz.kernel(gemma, shape_class=ROWS, name="unsloth_gemma_rms_norm")(
    lambda x, weight, eps: norms.Fast_RMS_Layernorm.apply(x, weight, eps, True)
)
kfuzz.kernel(ops.layer_norm, shape_class=ROWS, name="unsloth_layer_norm")(
    lambda x, weight, bias, eps: layer_norms.Fast_Layernorm.apply(x, weight, bias, eps)
)


@kfuzz.kernel(
    ops.add_rms_norm, intermediates="output", shape_class=ROWS, layouts="contiguous",
    name="unsloth_add_rms_norm",
)  # fmt: skip
def unsloth_add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Of copies, which it overwrites."""
    x, residual = x.clone(), residual.clone()
    return added.fast_add_rms_layernorm_inference(x, residual, weight, eps), residual


kfuzz.kernel(
    ops.swiglu, intermediates="output", ranks={3}, layouts="contiguous",
    name="unsloth_swiglu",
)(lambda gate, up: gates.swiglu_fg_kernel(gate, up))  # fmt: skip
kfuzz.kernel(
    ops.geglu, intermediates="output", ranks={3}, layouts="contiguous",
    name="unsloth_geglu",
)(lambda gate, up: gelus.geglu_exact_forward_kernel(gate, up))  # fmt: skip
kfuzz.kernel(
    geglu_tanh, intermediates="output", layouts="contiguous",
    name="unsloth_geglu_tanh",
)(lambda gate, up: gelus.geglu_approx_forward_kernel(gate, up))  # fmt: skip
kfuzz.kernel(
    swiglu_gradients, intermediates="output", layouts="contiguous",
    name="unsloth_swiglu_gradients",
)(
    lambda dw, e, g: gates.swiglu_DWf_DW_dfg_kernel(dw.clone(), e.clone(), g.clone())
)  # fmt: skip
kfuzz.kernel(
    geglu_gradients, intermediates="output", layouts="contiguous",
    name="unsloth_geglu_gradients",
)(
    lambda dw, e, g: gelus.geglu_exact_backward_kernel(dw.clone(), e.clone(), g.clone())
)  # fmt: skip
kfuzz.kernel(
    ops.cross_entropy.fixed(ignore_index=-100, label_smoothing=0.0, reduction="none"),
    out_of_bounds="undefined", shape_class="C <= 65536",
    name="unsloth_cross_entropy",
)(
    lambda logits, target: losses.Fast_CrossEntropyLoss.apply(logits, target).to(
        logits.dtype
    )
)  # fmt: skip
kfuzz.kernel(
    ops.rope.fixed(interleaved=False, repeats=2), intermediates="output",
    shape_class="D >= 4", name="unsloth_rope",
)(
    # Tables are the model's own, contiguous and of many columns; x is overwritten.
    lambda x, cos, sin: ropes.Fast_RoPE_Embedding.apply(
        x.clone(), cos.contiguous(), sin.contiguous()
    )
)  # fmt: skip
