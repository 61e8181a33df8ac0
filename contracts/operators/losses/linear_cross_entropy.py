"""linear_cross_entropy(x, weight, target, bias, ...): the loss of a last layer."""

from typing import Any

from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure, Tolerance
from kfuzz.contracts.operators.losses.reducing import BOUND, reduction


def reference(
    x: Any,
    weight: Any,
    target: Any,
    bias: Any = None,
    *,
    ignore_index: int,
    label_smoothing: float,
    reduction: str,
) -> Any:
    """cross_entropy(x weight^T + bias, target): the logits are not results.

    Ignored rows are not counted; without a reduction they are 0.
    """
    import torch

    logits = torch.nn.functional.linear(x, weight, bias)
    log_p = torch.log_softmax(logits, -1)
    kept = target != ignore_index
    at = torch.where(kept, target, 0)
    loss = -log_p.gather(-1, at.unsqueeze(-1)).squeeze(-1)
    if label_smoothing:
        loss = (1 - label_smoothing) * loss - label_smoothing * log_p.mean(-1)
    loss = torch.where(kept, loss, 0.0)
    if reduction == "none":
        return loss
    return loss.sum() / kept.sum() if reduction == "mean" else loss.sum()


linear_cross_entropy = Operator(
    "linear_cross_entropy",
    inputs={
        "x": ks.tensors("N K"),
        "weight": ks.tensors("C K"),
        "target": ks.indices("N", below="C", ignored="ignore_index"),
        "bias": ks.tensors("C", role="bias", optional=True),
        "ignore_index": ks.scalar(-100, domain=(-1, 0)),
        "label_smoothing": ks.scalar(0.0, domain=(0.1, 0.5)),
        "reduction": reduction(),
    },
    oracle=reference,
    chain=("linear", "cross_entropy"),
    batch="N",
    reduced="C",
    empty_reduction=False,
    workspaces=("N C",),
    tolerance=Tolerance(
        Structure.INTERVAL,
        BOUND,
        "the logits as linear's, K products in any order; the maximum, exp, their sum "
        "in any order and the logarithm; then as cross_entropy's sums",
    ),
    special_values="as linear's, then as cross_entropy's; ignored rows count for "
    "nothing; a mean of no row is NaN; undecided where a logit is not finite and "
    "some kernel may leave it out",
)
