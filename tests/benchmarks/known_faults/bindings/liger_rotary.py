"""Rotary embeddings and gated activations of Liger-Kernel."""

import torch

import kfuzz
from kfuzz import strategies as ks
from kfuzz.contracts import operators as ops
from tests.benchmarks.known_faults.bindings.released import apply, liger


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    left, right = x.chunk(2, -1)
    return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)


rope_by_item = kfuzz.Operator(
    "rope_by_item",  # every item of the batch has positions of its own
    inputs={
        "x": ks.tensors("B H S D"),
        "cos": ks.tensors("B S E"),
        "sin": ks.tensors("B S E"),
    },
    oracle=lambda x, cos, sin: _rotate(x, cos.unsqueeze(1), sin.unsqueeze(1)),
    # Of a sequence of one token the kernel takes the stride, which may be any number,
    # for the size of a row: items write each other's rows, in every release.
    shape_class="E == D // 2 and D % 2 == 0 and D >= 2 and B >= 1 and H >= 1 and S > 1",
)


@kfuzz.kernel(rope_by_item, intermediates="output")
def rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    turned, _ = apply(
        liger("LigerRopeFunction", "ops.rope"),
        q=x.clone(),  # both are overwritten
        k=x.clone(),
        cos=torch.cat([cos, cos], -1),
        sin=torch.cat([sin, sin], -1),
    )
    result: torch.Tensor = turned
    return result


@kfuzz.kernel(ops.swiglu, shape_class="N >= 1 and N <= 65536")
def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    function = liger("LigerSiLUMulFunction", "ops.swiglu")
    result: torch.Tensor = apply(function, a=gate, b=up)
    return result
