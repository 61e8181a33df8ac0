"""smooth_l1_loss(x, target, beta, reduction): squares, beyond beta straight lines."""

from typing import Any

from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.operators.losses import reduction
from kfuzz.contracts.prose import bounded


def reference(x: Any, target: Any, *, beta: float, reduction: str) -> Any:
    """d^2 / (2 beta) where |d| < beta, else |d| - beta / 2; d = x - target."""
    import torch

    return torch.nn.functional.smooth_l1_loss(x, target, reduction=reduction, beta=beta)


smooth_l1_loss = Operator(
    "smooth_l1_loss",
    inputs={
        "x": ks.tensors("*"),
        "target": ks.tensors("*"),
        "beta": ks.scalar(1.0, domain=(0.5, 0.1, 0.0)),
        "reduction": reduction(),
    },
    oracle=reference,
    **bounded("smooth_l1_loss", Structure.INTERVAL),
)
