"""top_p_filter(logits, p): -Inf in place of what the nucleus of a row leaves out."""

import math
from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded
from kfuzz.core.declaration import Declaration


def reference(logits: Any, *, p: float) -> Any:
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


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return logits as they are before the bound, either where a sum may reach it."""
    return nm.sampling.nucleus(problem)


def related(problem: "nm.Problem", outputs: "nm.Tensors") -> "nm.Tensors":
    """What a row keeps has the probability p or more, and is one element at least."""
    return nm.sampling.heavy_enough(problem, outputs)


top_p_filter = Operator(
    "top_p_filter",
    inputs={
        "logits": ks.tensors("* N"),
        "p": ks.scalar(0.9, (0.5, 0.1, 0.95, 1.0)),
    },
    oracle=reference,
    error_model=accept,
    relation=related,
    reduced="N",
    defaults=Declaration(subnormals="preserve"),
    recentres=True,
    **bounded("top_p_filter", Structure.EXACT),
)
