"""mse_loss(x, target, reduction): squared differences, their mean or their sum."""

from typing import Any

from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure, Tolerance
from kfuzz.contracts.operators.losses import BOUND, reduced, reduction


def reference(x: Any, target: Any, *, reduction: str) -> Any:
    """(x - target)^2, reduced."""
    difference = x - target
    return reduced(difference * difference, reduction)


mse_loss = Operator(
    "mse_loss",
    inputs={
        "x": ks.tensors("*"),
        "target": ks.tensors("*"),
        "reduction": reduction(),
    },
    oracle=reference,
    homogeneous={"x target": 2},
    tolerance=Tolerance(
        Structure.INTERVAL,
        BOUND,
        "one rounded difference and its square; then a sum in any order",
    ),
    special_values="as IEEE 754; undecided where a square overflows",
)
