"""topk_routing(logits, k, renormalize): the experts of tokens, and their weights."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded


def reference(logits: Any, *, k: int, renormalize: bool) -> Any:
    """The k greatest of softmax(logits), sorted, and their indices, int64.

    With `renormalize` divided by their sum. Weights are stored in float32.
    """
    import torch

    p = torch.softmax(logits, -1)
    weights, indices = p.sort(dim=-1, descending=True, stable=True)
    weights, indices = weights[..., :k], indices[..., :k]
    if renormalize:
        weights = weights / weights.sum(-1, keepdim=True)
    return weights, indices


def accept(problem: "nm.Problem") -> "nm.Accepted":
    """Return the greatest probabilities within their errors, and any index."""
    return nm.sampling.routed(problem)


def related(problem: "nm.Problem", outputs: "nm.Tensors") -> "nm.Tensors":
    """Each index names one of the k greatest, none twice, with its own weight."""
    return nm.sampling.consistent(problem, outputs)


topk_routing = Operator(
    "topk_routing",
    inputs={
        "logits": ks.tensors("M E"),
        "k": ks.scalar(2, (1, 4, 6, 8)),
        "renormalize": ks.scalar(False, (True,)),
    },
    oracle=reference,
    error_model=accept,
    relation=related,
    outputs=("weights", "indices"),
    integers=("indices",),
    reduced="E",
    empty_reduction=False,
    shape_class="k <= E and E >= 1",
    batch="M",
    recentres=True,
    **bounded("topk_routing", Structure.COMPOSITE),
)
