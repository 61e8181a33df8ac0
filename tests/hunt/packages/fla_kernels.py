"""Kernels of fla-core 0.6.0 as released, each bound in a line.

Where its code says so, a claim stands beside: a row of the norms has at most 64
KiB, some take contiguous tensors alone, weights of chunks are rounded to the data's
format before they meet the values.
"""

import torch
import torch.nn.functional as F
from fla.modules import activations, rotary
from fla.modules.causal_conv1d import causal_conv1d
from fla.modules.fused_cross_entropy import cross_entropy_loss
from fla.modules.fused_linear_cross_entropy import fused_linear_cross_entropy_loss
from fla.modules.norm.fused_norm_gate import rms_norm_gated
from fla.modules.norm.l2norm import l2norm as fla_l2norm
from fla.modules.norm.layernorm import layer_norm, rms_norm
from fla.modules.norm.layernorm_gated import rmsnorm_fn
from fla.modules.token_shift import token_shift
from fla.ops.attn import parallel_attn
from fla.ops.gla import fused_recurrent_gla
from fla.ops.hgrn import chunk_hgrn, fused_recurrent_hgrn
from fla.ops.linear_attn import chunk_linear_attn, fused_recurrent_linear_attn
from fla.ops.retention import chunk_retention, parallel_retention
from fla.ops.simple_gla import chunk_simple_gla
from fla.ops.utils.cumsum import chunk_global_cumsum, chunk_local_cumsum
from fla.ops.utils.logsumexp import logsumexp_fwd
from fla.ops.utils.matmul import matmul
from fla.ops.utils.pooling import mean_pooling
from fla.ops.utils.softmax import softmax_fwd

import kfuzz
from kfuzz import strategies as ks
from kfuzz.contracts import operators as ops
from kfuzz.contracts.gradients.rules import differentiable

PACKAGE = "fla-core"
VERSION = "0.6.0"
NEEDS = ("einops==0.8.2",)


def _cumsum_of_chunks(g: torch.Tensor) -> torch.Tensor:
    steps = g.shape[1]
    whole = torch.nn.functional.pad(g, (0, 0, 0, -steps % 64))
    return whole.unflatten(1, (-1, 64)).cumsum(2).flatten(1, 2)[:, :steps]


global_cumsum = kfuzz.Operator(
    "global_cumsum",
    inputs={"g": ks.tensors("B T H")},
    oracle=lambda g: g.cumsum(1),
)


def _linear(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Causal attention without softmax; all of B T H D."""
    scores = torch.einsum("bthd,bshd->bhts", q, k).tril() * q.shape[-1] ** -0.5
    return torch.einsum("bhts,bshd->bthd", scores, v)


def _decayed(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor
) -> torch.Tensor:
    """The same, each pair weighted with what decays between; g of B T H, at most 0."""
    total = g.cumsum(1).transpose(1, 2)
    between = (total[..., :, None] - total[..., None, :]).tril()
    scores = torch.einsum("bthd,bshd->bhts", q, k) * between.exp()
    return torch.einsum("bhts,bshd->bthd", scores.tril() * q.shape[-1] ** -0.5, v)


def _retention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    heads = torch.arange(q.shape[2], dtype=q.dtype)
    g = torch.log1p(-torch.exp2(-5 - heads)).expand(q.shape[:3])
    return _decayed(q, k, v, g)


def _gla(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor
) -> torch.Tensor:
    total = -g.abs().cumsum(1)
    between = total[:, :, None] - total[:, None]  # B T S H D
    seen = torch.ones(q.shape[1], q.shape[1]).tril()[None, :, :, None, None] > 0
    pairs = (q[:, :, None] * k[:, None] * between.exp()).masked_fill(~seen, 0.0)
    return torch.einsum("btsh,bshd->bthd", pairs.sum(-1) * q.shape[-1] ** -0.5, v)


def _hgrn(x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    h, found = torch.zeros_like(x[:, 0]), []
    for place in range(x.shape[1]):
        h = torch.exp(-g[:, place].abs()) * h + x[:, place]
        found.append(h)
    return torch.stack(found, 1)


def _convolved(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    padded = F.pad(x.transpose(1, 2), (weight.shape[1] - 1, 0))
    return F.silu(F.conv1d(padded, weight[:, None], groups=len(weight)).transpose(1, 2))


def _gated(x: torch.Tensor, g: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * weight * F.silu(g)


l2norm = kfuzz.Operator(
    "l2norm",  # eps under the root, where torch's normalize takes the greater
    inputs={"x": ks.tensors("* N"), "eps": ks.scalar(1e-6, domain=(1e-12, 1e-3))},
    oracle=lambda x, eps: x * torch.rsqrt((x * x).sum(-1, keepdim=True) + eps),
)
logsigmoid = kfuzz.Operator(
    "logsigmoid",
    inputs={"x": ks.tensors("*")},
    oracle=torch.nn.functional.logsigmoid,
)
shifted = kfuzz.Operator(
    "token_shift",
    inputs={"x": ks.tensors("B T D")},
    oracle=lambda x: torch.nn.functional.pad(x, (0, 0, 1, 0))[:, :-1] - x,
)
local_cumsum = kfuzz.Operator(
    "local_cumsum", inputs={"g": ks.tensors("B T H")}, oracle=_cumsum_of_chunks
)

heads = {name: ks.tensors("B T H D") for name in "qkv"}
WIDTHS = "D % 16 == 0 and D >= 16 and D <= 64 and T >= 1"
linear = kfuzz.Operator(
    "linear_attention", inputs=heads, oracle=_linear, shape_class=WIDTHS
)
retention = kfuzz.Operator(
    "retention", inputs=heads, oracle=_retention, shape_class=WIDTHS
)
simple_gla = kfuzz.Operator(
    "simple_gla",
    inputs={**heads, "g": ks.tensors("B T H")},
    oracle=lambda q, k, v, g: _decayed(q, k, v, -g.abs()),
    shape_class=WIDTHS,
)
gla = kfuzz.Operator(
    "gla",
    inputs={**heads, "g": ks.tensors("B T H D")},
    oracle=_gla,
    shape_class=WIDTHS,
)
hgrn = kfuzz.Operator(
    "hgrn",
    inputs={"x": ks.tensors("B T D"), "g": ks.tensors("B T D")},
    oracle=_hgrn,
    shape_class="T >= 1 and D >= 1",
)
convolution = kfuzz.Operator(
    "causal_conv1d",
    inputs={"x": ks.tensors("B T D"), "weight": ks.tensors("D W", role="weight")},
    oracle=_convolved,
    shape_class="W >= 2 and W <= 4 and T >= 1 and D >= 1",
)
gated_norm = kfuzz.Operator(
    "rms_norm_gated",
    inputs={
        "x": ks.tensors("M N"),
        "g": ks.tensors("M N"),
        "weight": ks.tensors("N", role="weight"),
    },
    oracle=_gated,
    shape_class="N <= 512",
)
linear_cross_entropy = kfuzz.Operator(
    "linear_cross_entropy",
    inputs={
        "x": ks.tensors("M K"),
        "weight": ks.tensors("V K", role="weight"),
        "target": ks.indices("M", below="V"),
    },
    oracle=lambda x, weight, target: F.cross_entropy(x @ weight.T, target),
    shape_class="M >= 1 and V >= 1",
    gradient=differentiable("x weight", ""),
)
pooling = kfuzz.Operator(
    "mean_pooling",
    inputs={"x": ks.tensors("B T H D")},
    oracle=lambda x: torch.stack([c.mean(1) for c in x.split(8, dim=1)], 1),
    shape_class="T >= 1",
)
elu_1 = kfuzz.Operator(
    "elu_p1", inputs={"x": ks.tensors("* N")}, oracle=lambda x: F.elu(x) + 1
)
squared = kfuzz.Operator(
    "sqrelu",
    inputs={"x": ks.tensors("*")},
    oracle=lambda x: torch.relu(x) * torch.relu(x),
)

ROWS = "N <= 16384"

kfuzz.kernel(ops.rms_norm, shape_class=ROWS, name="fla_rms_norm")(
    lambda x, weight=None, eps=1e-6: rms_norm(x, weight, None, eps=eps)
)
kfuzz.kernel(ops.layer_norm, shape_class=ROWS, name="fla_layer_norm")(
    lambda x, weight=None, bias=None, eps=1e-5: layer_norm(x, weight, bias, eps=eps)
)
kfuzz.kernel(l2norm, shape_class=ROWS, name="fla_l2norm")(fla_l2norm)
kfuzz.kernel(ops.softmax, dims={-1}, layouts="contiguous", name="fla_softmax")(
    lambda x, dim=-1: softmax_fwd(x, x.dtype)
)
kfuzz.kernel(ops.logsumexp, dims={-1}, layouts="contiguous", name="fla_logsumexp")(
    lambda x, dim=-1: logsumexp_fwd(x, dtype=x.dtype)
)
kfuzz.kernel(
    ops.cross_entropy.fixed(reduction="none"),
    out_of_bounds="undefined",
    name="fla_cross_entropy",
)(
    lambda logits, target, ignore_index=-100, label_smoothing=0.0: cross_entropy_loss(
        logits, target, label_smoothing, ignore_index=ignore_index
    )[0].to(logits.dtype)
)
kfuzz.kernel(ops.swiglu, name="fla_swiglu")(activations.swiglu)
kfuzz.kernel(ops.silu, name="fla_swish")(activations.swish)
kfuzz.kernel(logsigmoid, name="fla_logsigmoid")(activations.logsigmoid)
kfuzz.kernel(ops.rope.fixed(repeats=2), name="fla_rotary")(
    lambda x, cos, sin, interleaved=False: rotary.rotary_embedding(
        x, cos, sin, interleaved
    )
)
kfuzz.kernel(shifted, name="fla_token_shift")(token_shift)
kfuzz.kernel(local_cumsum, name="fla_local_cumsum")(
    lambda g: chunk_local_cumsum(g, 64, output_dtype=g.dtype)
)
kfuzz.kernel(ops.matmul, name="fla_matmul")(matmul)
kfuzz.kernel(linear, intermediates="output", name="fla_linear_attention")(
    lambda q, k, v: chunk_linear_attn(q, k, v, normalize=False)[0]
)
kfuzz.kernel(linear, name="fla_linear_attention_recurrent")(
    lambda q, k, v: fused_recurrent_linear_attn(q, k, v, normalize=False)[0]
)
kfuzz.kernel(retention, intermediates="output", name="fla_retention")(
    lambda q, k, v: chunk_retention(q, k, v)[0]
)
kfuzz.kernel(retention, intermediates="output", name="fla_retention_parallel")(
    lambda q, k, v: parallel_retention(q, k, v)[0]
)
kfuzz.kernel(simple_gla, intermediates="output", name="fla_simple_gla")(
    lambda q, k, v, g: chunk_simple_gla(q, k, v, -g.abs())[0]
)
kfuzz.kernel(gla, name="fla_gla_recurrent")(
    lambda q, k, v, g: fused_recurrent_gla(q, k, v, -g.abs())[0]
)
kfuzz.kernel(hgrn, name="fla_hgrn")(lambda x, g: chunk_hgrn(x, -g.abs())[0])
kfuzz.kernel(hgrn, name="fla_hgrn_recurrent")(
    lambda x, g: fused_recurrent_hgrn(x, -g.abs())[0]
)
kfuzz.kernel(
    ops.attention.fixed(causal=True, scale=None),
    name="fla_attention",
    shape_class="S == T",
)(
    lambda q, k, v: parallel_attn(
        *(each.transpose(1, 2).contiguous() for each in (q, k, v))
    ).transpose(1, 2)
)
kfuzz.kernel(convolution, name="fla_causal_conv1d")(
    lambda x, weight: causal_conv1d(x, weight, activation="silu")[0]
)
kfuzz.kernel(gated_norm, name="fla_rms_norm_gated")(
    lambda x, g, weight: rms_norm_gated(x, g, weight, None)
)
kfuzz.kernel(gated_norm, name="fla_layernorm_gated")(
    lambda x, g, weight: rmsnorm_fn(x, weight, None, z=g)
)
kfuzz.kernel(
    linear_cross_entropy, out_of_bounds="undefined", intermediates="output",
    gradients=True,
    name="fla_linear_cross_entropy",
)(
    lambda x, weight, target: fused_linear_cross_entropy_loss(x, target, weight)
)  # fmt: skip
kfuzz.kernel(pooling, name="fla_mean_pooling")(lambda x: mean_pooling(x, 8))
kfuzz.kernel(elu_1, name="fla_elu_p1")(activations.elu_p1)
kfuzz.kernel(squared, name="fla_sqrelu")(activations.sqrelu)
kfuzz.kernel(global_cumsum, name="fla_global_cumsum")(
    lambda g: chunk_global_cumsum(g, output_dtype=g.dtype)
)
