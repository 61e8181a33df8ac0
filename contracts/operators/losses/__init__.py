"""Losses: how one is reduced, and the parameters that many of them share."""

from typing import Any

from kfuzz import strategies as ks
from kfuzz.strategies.parameters import ScalarParameter


def reduction(*more: str) -> ScalarParameter:
    """Return the parameter: mean by default, sum or none, and others."""
    return ks.scalar("mean", domain=("sum", "none", *more))


def reduced(loss: Any, reduction: str) -> Any:
    """Return the losses of elements as they are, their mean, or their sum.

    "batchmean" divides the sum by the size of the first dimension.
    """
    if reduction == "none":
        return loss
    if reduction == "batchmean":
        return loss.sum() / loss.shape[0]
    return loss.mean() if reduction == "mean" else loss.sum()
