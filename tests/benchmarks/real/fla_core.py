"""Kernels of fla-core 0.6.0 as released, each bound in a line.

Where its code says so, a claim stands beside: a row of the norms has at most 64
KiB, some take contiguous tensors alone.
"""

import torch
from fla.modules import activations, rotary
from fla.modules.fused_cross_entropy import cross_entropy_loss
from fla.modules.norm.layernorm import layer_norm, rms_norm
from fla.ops.utils.cumsum import chunk_local_cumsum
from fla.ops.utils.matmul import matmul
from fla.ops.utils.softmax import softmax_fwd

import kfuzz
from kfuzz import strategies as ks
from kfuzz.contracts import operators as ops


def _cumsum_of_chunks(g: torch.Tensor) -> torch.Tensor:
    steps = g.shape[1]
    whole = torch.nn.functional.pad(g, (0, 0, 0, -steps % 64))
    return whole.unflatten(1, (-1, 64)).cumsum(2).flatten(1, 2)[:, :steps]


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
kfuzz.kernel(ops.softmax, dims={-1}, layouts="contiguous", name="fla_softmax")(
    lambda x, dim=-1: softmax_fwd(x, x.dtype)
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
kfuzz.kernel(ops.silu, name="fla_swish")(activations.swish)
kfuzz.kernel(ops.rope.fixed(repeats=2), name="fla_rotary")(
    lambda x, cos, sin, interleaved=False: rotary.rotary_embedding(
        x, cos, sin, interleaved
    )
)
kfuzz.kernel(local_cumsum, name="fla_local_cumsum")(
    lambda g: chunk_local_cumsum(g, 64, output_dtype=g.dtype)
)
kfuzz.kernel(ops.matmul, name="fla_matmul")(matmul)
