"""mse_loss(x, target, reduction): squared differences, their mean or their sum."""

from typing import Any

from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.operators.losses import reduced, reduction
from kfuzz.contracts.prose import bounded


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
    **bounded("mse_loss", Structure.INTERVAL),
)
