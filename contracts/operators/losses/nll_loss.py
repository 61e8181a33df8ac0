"""nll_loss(log_p, target, weight, ignore_index, reduction): given log-probabilities."""

from typing import Any

from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.operators.losses import reduction
from kfuzz.contracts.prose import bounded


def reference(
    log_p: Any, target: Any, weight: Any = None, *, ignore_index: int, reduction: str
) -> Any:
    """-w[t] log_p[t] of each row; their sum, or that over the sum of the weights.

    Ignored rows are not counted; without a reduction they are 0.
    """
    import torch

    kept = target != ignore_index
    at = torch.where(kept, target, 0)
    loss = -log_p.gather(-1, at.unsqueeze(-1)).squeeze(-1)
    share = torch.ones_like(loss) if weight is None else weight[at]
    loss = torch.where(kept, loss * share, 0.0)
    if reduction == "none":
        return loss
    if reduction == "sum":
        return loss.sum()
    return loss.sum() / torch.where(kept, share, 0.0).sum()


nll_loss = Operator(
    "nll_loss",
    inputs={
        "log_p": ks.tensors("N C"),
        "target": ks.indices("N", below="C", ignored="ignore_index"),
        "weight": ks.tensors("C", role="variance", optional=True),
        "ignore_index": ks.scalar(-100, domain=(-1, 0)),
        "reduction": reduction(),
    },
    oracle=reference,
    batch="N",
    empty_reduction=False,
    reduced="C",
    **bounded("nll_loss", Structure.INTERVAL),
)
