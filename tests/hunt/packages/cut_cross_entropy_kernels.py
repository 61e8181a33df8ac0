"""cut-cross-entropy 25.1.1 as released: without gradients, which it filters."""

import torch
from cut_cross_entropy import linear_cross_entropy

import kfuzz
from kfuzz import strategies as ks
from kfuzz.contracts import operators as ops

PACKAGE = "cut-cross-entropy"
VERSION = "25.1.1"
NEEDS = ()

kfuzz.kernel(
    ops.linear_cross_entropy.fixed(label_smoothing=0.0),
    name="cce",
    out_of_bounds="undefined",
    layouts="contiguous",
    shape_class="N >= 1 and K >= 1 and C >= 1",
)(
    lambda x, weight, target, ignore_index, label_smoothing, reduction: (
        linear_cross_entropy(
            x, weight, target, ignore_index=ignore_index, reduction=reduction,
            impl="cce",
        )
    )
)  # fmt: skip


def _capped(
    x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor
) -> torch.Tensor:
    logits = torch.tanh(x @ weight.T / 5) * 5
    return torch.nn.functional.cross_entropy(logits, target, reduction="none")


kfuzz.kernel(
    kfuzz.Operator(
        "softcapped_linear_cross_entropy",
        inputs={
            "x": ks.tensors("N K"), "weight": ks.tensors("C K"),
            "target": ks.indices("N", below="C"),
        },
        oracle=_capped,
        shape_class="N >= 1 and K >= 1 and C >= 1",
    ),
    name="cce_softcap", layouts="contiguous",
)(lambda x, weight, target: linear_cross_entropy(
    x, weight, target, softcap=5.0, reduction="none", impl="cce"
))  # fmt: skip
