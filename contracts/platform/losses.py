"""Torch's losses."""

from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional

from kfuzz.contracts import operators as ops
from kfuzz.contracts.operators.losses import reduced
from kfuzz.contracts.platform.table import implements, stored

IN_STEPS: Final = stored(
    "torch/nn/functional.py and aten/src/ATen/native/Loss.cpp: each step is an "
    "operator whose result is a tensor of the data's format",
)  # fmt: skip
POINTWISE: Final = stored(
    "aten/src/ATen/native/Loss.cpp: losses of elements are a tensor of the data's "
    "format, of which the mean or the sum is taken",
)  # fmt: skip


@implements(ops.kl_div, IN_STEPS)
def torch_kl_div(
    x: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False
) -> Tensor:
    """Take the divergence with `torch.nn.functional.kl_div`."""
    if reduction == "mean":  # which that warns of, and hands on as the number 1
        return torch.kl_div(x, target, 1, log_target=log_target)
    return functional.kl_div(x, target, reduction=reduction, log_target=log_target)


@implements(ops.js_div, stored("a chain of torch's operators, each of which stores"))
def torch_js_div(
    x: Tensor, target: Tensor, beta: float = 0.5, reduction: str = "mean"
) -> Tensor:
    """Take the two divergences from the middle with torch's operators."""

    def divergence(log_q: Tensor, log_p: Tensor) -> Tensor:
        return functional.kl_div(log_q, log_p, reduction="none", log_target=True)

    if beta in (0.0, 1.0):
        loss = divergence(x, target) if beta == 0.0 else divergence(target, x)
    else:
        middle = (beta * target.exp() + (1 - beta) * x.exp()).log()
        loss = beta * divergence(middle, target) + (1 - beta) * divergence(middle, x)
    made: Tensor = reduced(loss, reduction)
    return made


@implements(ops.nll_loss, POINTWISE)
def torch_nll_loss(
    log_p: Tensor, target: Tensor, weight: Tensor | None = None,
    ignore_index: int = -100, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Take the loss with `torch.nn.functional.nll_loss`."""
    return functional.nll_loss(
        log_p, target, weight, ignore_index=ignore_index, reduction=reduction
    )


@implements(ops.linear_cross_entropy, IN_STEPS)
def torch_linear_cross_entropy(
    x: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None = None,
    ignore_index: int = -100, label_smoothing: float = 0.0, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Take the loss of stored logits."""
    return functional.cross_entropy(
        functional.linear(x, weight, bias),
        target,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
        reduction=reduction,
    )


@implements(ops.bce_with_logits, IN_STEPS)
def torch_bce_with_logits(
    x: Tensor, target: Tensor, weight: Tensor | None = None,
    pos_weight: Tensor | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Take the loss with `torch.nn.functional.binary_cross_entropy_with_logits`."""
    return functional.binary_cross_entropy_with_logits(
        x, target, weight, pos_weight=pos_weight, reduction=reduction
    )


def _of_differences(name: str) -> Any:
    return getattr(functional, name)


for _name in ("mse_loss", "smooth_l1_loss", "huber_loss"):
    implements(ops.OPERATORS[_name], POINTWISE, name=f"torch_{_name}")(
        _of_differences(_name)
    )
