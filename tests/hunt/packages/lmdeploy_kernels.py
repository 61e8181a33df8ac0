"""Triton kernels of lmdeploy 0.18.0 as released, each module loaded by its file.

The package's own `__init__` imports the server. Placeholders say how many processors
there are, which the launches ask. Tables of rotary embeddings, weights and masks are
contiguous, as the callers' are; the other tensors may have any strides that their
launches pass on.
"""

import importlib
from types import ModuleType

import torch
import torch.nn.functional as F

import kfuzz
from kfuzz import strategies as ks
from kfuzz.contracts import operators as ops
from tests.hunt.bare import absent, bare

PACKAGE = "lmdeploy"
VERSION = "0.18.0"
NEEDS = ()

_KERNELS = "lmdeploy.pytorch.kernels"
bare("lmdeploy")
absent("lmdeploy.pytorch.config")
_device = {"multi_processor_count": 4, "warps_per_sm": 16, "blocks_per_sm": 4}
absent(f"{_KERNELS}.cuda.utils", get_device_props=lambda _: _device)


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"{_KERNELS}.{name}")


norms = _module("cuda.rms_norm")
activation = _module("cuda.activation")
rotary = _module("cuda.apply_rotary_pos_emb")
sampling = _module("cuda.multinomial_sampling")
awq = _module("cuda.awq_kernels")
w8a8 = _module("cuda.w8a8_triton_kernels")
noaux = _module("cuda.moe.route_noaux_tc")
single = _module("cuda.moe.route_single_group")
topk = _module("cuda.bitonic_topk")
copies = _module("cuda.copy_cache")
preprocess = _module("cuda.gated_delta_preprocess")
rejection = _module("cuda.rejection_sampling")

kfuzz.kernel(
    ops.rms_norm, ranks={1, 2, 3}, shape_class="N <= 16384", name="lmdeploy_rms_norm"
)(lambda x, weight, eps=1e-6: norms.rms_norm(x, weight.contiguous(), eps))
kfuzz.kernel(
    ops.add_rms_norm, ranks={1, 2, 3}, shape_class="N <= 16384",
    intermediates="output", name="lmdeploy_add_rms_norm",
)(
    lambda x, residual, weight, eps=1e-6: norms.rms_norm(
        x, weight.contiguous(), eps, residual
    )
)  # fmt: skip
kfuzz.kernel(
    ops.swiglu, ranks={2}, intermediates="output", name="lmdeploy_silu_and_mul"
)(lambda gate, up: activation.silu_and_mul(torch.cat((gate, up), -1)))


def _experts(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return F.silu(gate) * up


kfuzz.kernel(
    kfuzz.Operator(
        "silu_and_mul_of_experts",
        inputs={"gate": ks.tensors("E M N"), "up": ks.tensors("E M N")},
        oracle=_experts,
        shape_class="E >= 1 and M >= 1 and N >= 1",
    ),
    intermediates="output",
    name="lmdeploy_silu_and_mul_moe",
)(
    lambda gate, up: activation.silu_and_mul_moe_ep(
        torch.cat((gate, up), -1),
        torch.full(gate.shape[:1], gate.shape[1], device=gate.device),
    )
)


def _turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    left, right = x.chunk(2, -1)
    half = torch.cat((-right, left), -1)
    return x * cos[:, None] + half * sin[:, None]


heads = {
    "x": ks.tensors("S H D"),
    "cos": ks.tensors("S D", role="weight"),
    "sin": ks.tensors("S D", role="weight"),
}
kfuzz.kernel(
    kfuzz.Operator(
        "rotary",
        inputs=heads,
        oracle=_turned,
        shape_class="S >= 1 and H >= 1 and D >= 2 and D % 2 == 0",
    ),
    intermediates="output",
    name="lmdeploy_rotary",
)(lambda x, cos, sin: rotary.apply_rotary_pos_emb(x, x.contiguous(), cos, sin)[0])
kfuzz.kernel(
    kfuzz.Operator(
        "partial_rotary",  # what is beyond the table passes through
        inputs={**heads, "x": ks.tensors("S H E")},
        oracle=lambda x, cos, sin: torch.cat(
            (_turned(x[..., : cos.shape[1]], cos, sin), x[..., cos.shape[1] :]), -1
        ),
        shape_class="S >= 1 and H >= 1 and D >= 2 and D % 2 == 0 and E == 2 * D",
    ),
    intermediates="output",
    name="lmdeploy_partial_rotary",
)(lambda x, cos, sin: rotary.apply_rotary_pos_emb(x, x.contiguous(), cos, sin)[0])


def _complex(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    even, odd = x[..., 0::2], x[..., 1::2]
    cos, sin = cos[:, None], sin[:, None]
    return torch.stack((even * cos - odd * sin, odd * cos + even * sin), -1).flatten(-2)


kfuzz.kernel(
    kfuzz.Operator(
        "complex_rotary",
        inputs={**heads, "x": ks.tensors("S H E")},
        oracle=_complex,
        shape_class="S >= 1 and H >= 1 and D >= 1 and E == 2 * D",
    ),
    intermediates="output",
    name="lmdeploy_complex_rotary",
)(
    lambda x, cos, sin: rotary.apply_rotary_pos_emb(
        x, x.contiguous(), cos, sin, complex_mode=True
    )[0]
)
kfuzz.kernel(
    kfuzz.Operator(
        "sampled",  # all mass on one of two candidates: its index
        inputs={"indices": ks.tensors("B O", dtype="int64", within=(0, 999))},
        oracle=lambda indices: indices[:, 0],
        results={"y": "int64"},
        shape_class="O == 2 and B >= 1",
    ),
    name="lmdeploy_multinomial_sampling",
)(
    lambda indices: sampling.multinomial_sampling(
        torch.tensor([[1.0, 0.0]], device=indices.device).expand(len(indices), 2),
        torch.zeros_like(indices[:, 0]),
        torch.zeros_like(indices[:, 0]),
        indices,
    )
)


def _routed(logits: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    scores = torch.sigmoid(logits)
    chosen = (scores + bias).topk(8).indices
    weights = scores.gather(-1, chosen)
    return weights / (weights.sum(-1, keepdim=True) + 1e-20) * 2.5


kfuzz.kernel(
    kfuzz.Operator(
        "route_noaux",
        inputs={"logits": ks.tensors("M E"), "bias": ks.tensors("E", role="bias")},
        oracle=_routed,
        shape_class="E == 32 and M >= 1",
    ),
    dtypes={"float32"},
    name="lmdeploy_route_noaux",
)(
    lambda logits, bias: noaux.fused_noaux_tc_routing(
        logits, bias, num_experts=32, n_group=1, topk_group=1
    )[0]
)
kfuzz.kernel(
    kfuzz.Operator(
        "route_single_group",
        inputs={
            "logits": ks.tensors("M E", within=(-20, 20)),
            "bias": ks.tensors("E", role="bias"),
        },
        oracle=_routed,
        shape_class="E == 192 and M >= 1",
    ),
    dtypes={"float32"},
    name="lmdeploy_route_single_group",
)(
    lambda logits, bias: single.fused_single_group_topk_router(
        torch.sigmoid(logits), bias, num_experts=192, top_k=8, routed_scaling_factor=2.5
    )[0]
)
kfuzz.kernel(
    kfuzz.Operator(
        "topk_indices",
        inputs={"scores": ks.tensors("B N", within=(-1000, 1000))},
        oracle=lambda scores: scores.topk(4).values,
        shape_class="B >= 1 and N >= 4",
    ),
    dtypes={"float32"},
    layouts="inner_contiguous",
    name="lmdeploy_bitonic_topk",
)(
    lambda scores: scores.gather(
        1,
        topk.bitonic_topk(
            scores,
            torch.ones(len(scores), dtype=torch.int64, device=scores.device),
            torch.full((len(scores),), scores.shape[1], device=scores.device),
            4,
        )
        .long()
        .clamp(0, scores.shape[1] - 1),
    )
)


def _copied(cache: torch.Tensor) -> torch.Tensor:
    copied = cache.clone()
    ends = torch.tensor([[0], [1]], device=cache.device)
    copies.copy_cache_blocks(copied, 0, ends[0], ends[1], 1)
    return copied


kfuzz.kernel(
    kfuzz.Operator(
        "copy_blocks",
        inputs={"cache": ks.tensors("P W D")},
        oracle=lambda cache: torch.cat((cache[:1], cache[:1], cache[2:])),
        shape_class="P >= 2 and W >= 1 and D >= 1",
    ),
    layouts="contiguous",
    name="lmdeploy_copy_cache_blocks",
)(_copied)
delta = {
    "q": ks.tensors("B T H D"),
    "k": ks.tensors("B T H D"),
    "b": ks.tensors("B T H"),
    "a": ks.tensors("B T H"),
    "dt_bias": ks.tensors("H", role="bias", dtype="float32"),
    "a_log_exp": ks.tensors("H", dtype="float32", within=(None, 0)),
}


def _prepared(q, k, b, a, dt_bias, a_log_exp):
    """Normal queries and keys, the weight of the update, the decay."""
    q, k = (x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6) for x in (q, k))
    return q, k, torch.sigmoid(b), a_log_exp * F.softplus(a + dt_bias)


kfuzz.kernel(
    kfuzz.Operator(
        "gated_delta_preprocess",
        inputs=delta,
        oracle=_prepared,
        outputs=("q", "k", "beta", "g"),
        results={"g": "float32"},
        shape_class="B >= 1 and T >= 1 and H >= 1 and D >= 1 and D <= 256",
    ),
    dtypes={"float32", "bfloat16"},
    name="lmdeploy_gated_delta_preprocess",
)(lambda q, k, b, a, bias, scale: preprocess.gated_delta_preprocess(
    q, k, b, a, bias.contiguous(), scale.contiguous(), 1
))  # fmt: skip
