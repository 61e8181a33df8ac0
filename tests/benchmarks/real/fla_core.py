"""Kernels of fla-core 0.6.0 as released, each bound in a line.

Where its code says so, a claim stands beside: a row of the norms has at most 64
KiB, some take contiguous tensors alone.
"""

import torch
from fla.modules import activations, rotary
from fla.modules.fused_cross_entropy import cross_entropy_loss
from fla.modules.norm.l2norm import l2norm as fla_l2norm
from fla.modules.norm.layernorm import layer_norm, rms_norm
from fla.modules.token_shift import token_shift
from fla.ops.utils.cumsum import chunk_local_cumsum
from fla.ops.utils.logsumexp import logsumexp_fwd
from fla.ops.utils.matmul import matmul
from fla.ops.utils.softmax import softmax_fwd

import kfuzz
from kfuzz import strategies as ks
from kfuzz.contracts import operators as ops


def _cumsum_of_chunks(g: torch.Tensor) -> torch.Tensor:
    steps = g.shape[1]
    whole = torch.nn.functional.pad(g, (0, 0, 0, -steps % 64))
    return whole.unflatten(1, (-1, 64)).cumsum(2).flatten(1, 2)[:, :steps]


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
