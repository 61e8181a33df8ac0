"""Rotary embeddings and gated activations of Liger-Kernel."""

import torch

import kfuzz
from kfuzz import strategies as ks
from kfuzz.contracts import operators as ops
from tests.benchmarks.known_faults.bindings.released import apply, liger

_SECTIONS = (2, 3, 3)  # of the half of a head, for time, height and width


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    left, right = x.chunk(2, -1)
    return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)


def _multimodal(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    def chosen(angle: torch.Tensor) -> torch.Tensor:
        parts = angle.split(_SECTIONS, -1)
        return torch.cat([parts[i][i] for i in range(3)], -1).unsqueeze(1)

    return _rotate(x, chosen(cos), chosen(sin))


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
multimodal_rope = kfuzz.Operator(
    "multimodal_rope",
    inputs={
        "x": ks.tensors("B H S D"),
        "cos": ks.tensors("T B S E"),
        "sin": ks.tensors("T B S E"),
    },
    oracle=_multimodal,
    shape_class="D == 16 and E == 8 and T == 3 and B >= 1 and H >= 1 and S >= 1",
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


@kfuzz.kernel(multimodal_rope, intermediates="output")
def mrope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    turned, _ = apply(
        liger("LigerQwen2VLMRopeFunction", "ops.qwen2vl_mrope"),
        q=x.clone(),
        k=x.clone(),
        cos=torch.cat([cos, cos], -1),
        sin=torch.cat([sin, sin], -1),
        mrope_section=list(_SECTIONS),
    )
    result: torch.Tensor = turned
    return result


@kfuzz.kernel(ops.swiglu, shape_class="N >= 1 and N <= 65536")
def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    function = liger("LigerSiLUMulFunction", "ops.swiglu")
    result: torch.Tensor = apply(function, a=gate, b=up)
    return result


@kfuzz.kernel(ops.geglu, algorithm="tanh_form", shape_class="N >= 1 and N <= 65536")
def geglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    function = liger("LigerGELUMulFunction", "ops.geglu")
    result: torch.Tensor = apply(function, a=gate, b=up)
    return result
