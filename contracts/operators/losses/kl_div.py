"""kl_div(x, target, reduction, log_target): the Kullback-Leibler divergence."""

from typing import Any

from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure, Tolerance
from kfuzz.contracts.operators.losses import BOUND, reduced, reduction


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
    tolerance=Tolerance(
        Structure.INTERVAL,
        BOUND,
        "|t log t| and |t x| each within a few roundings, absolute where they cancel: "
        "t (log t - x) rounds quantities of the same size; then a sum in any order",
    ),
    special_values="0 where the target is 0 and x is finite; NaN where the target is "
    "negative",
)
