"""Filters of logits before sampling."""

from __future__ import annotations

import math
from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Structure
from kfuzz.contracts.prose import defined
from kfuzz.core.declaration import Declaration


def reference_top_k_filter(logits: Any, *, k: int) -> Any:
    """Logits not below the k-th greatest of their row; -Inf elsewhere."""
    import torch

    if k == 0 or logits.numel() == 0:
        return torch.full_like(logits, -math.inf)
    least = logits.sort(-1, descending=True).values[..., k - 1 : k]
    return logits.masked_fill(logits < least, -math.inf)


def relate_top_k_filter(problem: nm.Problem, outputs: nm.Tensors) -> nm.Tensors:
    """At least k elements of a row are kept, or all above -Inf."""
    return nm.sampling.enough(problem, outputs)


top_k_filter = defined(
    "top_k_filter",
    inputs={
        "logits": ks.tensors("* N"),
        "k": ks.scalar(1, (2, 3, 5, 8, 17, 50)),
    },
    oracle=reference_top_k_filter,
    error_model=lambda problem: nm.sampling.greatest(problem),
    relation=relate_top_k_filter,
    reduced="N",
    shape_class="k <= N",
    defaults=Declaration(subnormals="preserve"),
    structure=Structure.EXACT,
)


def reference_top_p_filter(logits: Any, *, p: float) -> Any:
    """Logits before which probabilities sum to less than p, in falling order.

    Elsewhere -Inf. The greatest is always kept (Holtzman et al. 2020).
    """
    import torch

    if logits.numel() == 0:
        return logits.clone()
    weights, order = torch.softmax(logits, -1).sort(
        dim=-1, descending=True, stable=True
    )
    gone = weights.cumsum(-1) - weights >= p
    gone[..., 0] = False
    return logits.masked_fill(
        torch.zeros_like(gone).scatter(-1, order, gone), -math.inf
    )


def relate_top_p_filter(problem: nm.Problem, outputs: nm.Tensors) -> nm.Tensors:
    """What a row keeps has the probability p or more, and is one element at least."""
    return nm.sampling.heavy_enough(problem, outputs)


top_p_filter = defined(
    "top_p_filter",
    inputs={
        "logits": ks.tensors("* N"),
        "p": ks.scalar(0.9, (0.5, 0.1, 0.95, 1.0)),
    },
    oracle=reference_top_p_filter,
    error_model=lambda problem: nm.sampling.nucleus(problem),
    relation=relate_top_p_filter,
    reduced="N",
    defaults=Declaration(subnormals="preserve"),
    recentres=True,
    structure=Structure.EXACT,
)
