"""top_k_filter(logits, k): -Inf in place of what is not among the k greatest."""

import math
from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded
from kfuzz.core.declaration import Declaration


def reference(logits: Any, *, k: int) -> Any:
    """Logits not below the k-th greatest of their row; -Inf elsewhere."""
    import torch

    if k == 0 or logits.numel() == 0:
        return torch.full_like(logits, -math.inf)
    least = logits.sort(-1, descending=True).values[..., k - 1 : k]
    return logits.masked_fill(logits < least, -math.inf)


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return logits as they are above the k-th greatest, either where equal to it."""
    return nm.sampling.greatest(problem)


def related(problem: "nm.Problem", outputs: "nm.Tensors") -> "nm.Tensors":
    """At least k elements of a row are kept, or all above -Inf."""
    return nm.sampling.enough(problem, outputs)


top_k_filter = Operator(
    "top_k_filter",
    inputs={
        "logits": ks.tensors("* N"),
        "k": ks.scalar(1, (2, 3, 5, 8, 17, 50)),
    },
    oracle=reference,
    error_model=accept,
    relation=related,
    reduced="N",
    shape_class="k <= N",
    defaults=Declaration(subnormals="preserve"),
    **bounded("top_k_filter", Structure.EXACT),
)
