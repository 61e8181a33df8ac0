"""bce_with_logits(x, target, weight, pos_weight, reduction): binary cross-entropy."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.operators.losses import reduced, reduction
from kfuzz.contracts.prose import bounded


def reference(
    x: Any, target: Any, weight: Any = None, pos_weight: Any = None, *, reduction: str
) -> Any:
    """W (p t log(1 + exp(-x)) + (1 - t) log(1 + exp(x))), stable for either sign.

    Two forms in use, of which the half sum is taken: with p = 1 max(x, 0) - x t +
    log(1 + exp(-|x|)), else the sum above; and (1-t) x + l (max(-x, 0) +
    log(1 + exp(-|x|))), l = 1 + (p-1) t.
    """
    soft = (-x.abs()).exp().log1p()
    below = (-x).clamp(min=0) + soft
    scale = 1.0 if pos_weight is None else 1 + (pos_weight - 1) * target
    one = (1 - target) * x + scale * below
    if pos_weight is None:
        other = x.clamp(min=0) - x * target + soft
    else:
        above = x.clamp(min=0) + soft
        other = pos_weight * target * below + (1 - target) * above
    # Equal but for rounding: under the shadow half of the greater error remains, of
    # which its safety makes twice that error.
    loss = (one + other) / 2
    return reduced(loss if weight is None else loss * weight, reduction)


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return the shadow's acceptance, undecided beside an infinity without a NaN."""
    given = bce_with_logits.oracle_on(problem.tensors)
    (made,) = nm.shadowed(given, problem, name=bce_with_logits.name)
    return nm.undecided_at_infinities(problem, made)


bce_with_logits = Operator(
    "bce_with_logits",
    inputs={
        "x": ks.tensors("* N"),
        "target": ks.tensors("* N", role="variance"),
        "weight": ks.tensors("N", role="variance", optional=True),
        "pos_weight": ks.tensors("N", role="variance", optional=True),
        "reduction": reduction(),
    },
    oracle=reference,
    error_model=accept,
    **bounded("bce_with_logits", Structure.INTERVAL),
)
