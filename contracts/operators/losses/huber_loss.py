"""huber_loss(x, target, delta, reduction): squares, beyond delta straight lines."""

from typing import Any

from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.operators.losses import reduction
from kfuzz.contracts.prose import bounded


def reference(x: Any, target: Any, *, delta: float, reduction: str) -> Any:
    """d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2); d = x - target."""
    import torch

    return torch.nn.functional.huber_loss(x, target, reduction=reduction, delta=delta)


huber_loss = Operator(
    "huber_loss",
    inputs={
        "x": ks.tensors("*"),
        "target": ks.tensors("*"),
        "delta": ks.scalar(1.0, domain=(0.5, 0.1, 5.0)),
        "reduction": reduction(),
    },
    oracle=reference,
    **bounded("huber_loss", Structure.INTERVAL),
)
