"""kl_div(x, target, reduction, log_target): the Kullback-Leibler divergence."""

from typing import Any

from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.operators.losses import reduced, reduction
from kfuzz.contracts.prose import bounded


def reference(x: Any, target: Any, *, reduction: str, log_target: bool) -> Any:
    """T log t - t x of log-probabilities x, 0 log 0 = 0; exp(t) (t - x) of logarithms.

    Elements, their mean or sum, or the sum over the size of the first dimension.
    """
    import torch

    if log_target:
        return reduced(target.exp() * (target - x), reduction)
    return reduced(torch.xlogy(target, target) - target * x, reduction)


kl_div = Operator(
    "kl_div",
    inputs={
        "x": ks.tensors("*"),
        "target": ks.tensors("*", role="variance"),
        "reduction": reduction("batchmean"),
        "log_target": ks.scalar(False, domain=(True,)),
    },
    oracle=reference,
    **bounded("kl_div", Structure.INTERVAL),
)
