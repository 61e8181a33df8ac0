"""Losses: how one is reduced, and the parameters that many of them share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.operators.elementwise import of_torch
from kfuzz.contracts.operators.reductions import (
    accept_cross_entropy,
    reference_cross_entropy,
)
from kfuzz.contracts.prose import defined
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


def of_two(name: str, oracle: Callable[..., Any], **more: Any) -> Operator:
    """Return the loss of what is predicted and of a target of its shape.

    Args:
        name: its name.
        oracle: of both, and of its own scalar and the reduction by name.
        more: its own scalar, and other fields of the operator.
    """
    scalars = {n: p for n, p in more.items() if isinstance(p, ScalarParameter)}
    fields = {n: p for n, p in more.items() if n not in scalars}
    pair = {"x": ks.tensors("*"), "target": ks.tensors("*")}
    inputs = {**pair, **scalars, "reduction": reduction()}
    return defined(name, inputs=inputs, oracle=oracle, **fields)


def reference_bce_with_logits(
    x: Any, target: Any, weight: Any = None, pos_weight: Any = None, *, reduction: str
) -> Any:
    """W (p t log(1 + exp(-x)) + (1 - t) log(1 + exp(x))), stable for either sign.

    Two forms in use, of which the half sum is taken: with p = 1 max(x, 0) - x t +
    log(1 + exp(-|x|)), else the sum above; and (1-t) x + l (max(-x, 0) +
    log(1 + exp(-|x|))), l = 1 + (p-1) t.
    """
    soft = (-x.abs()).exp().log1p()
    below = (-x).clamp(min=0) + soft
    scale = 1.0 if pos_weight is None else 1 + (pos_weight - 1) * target
    one = (1 - target) * x + scale * below
    if pos_weight is None:
        other = x.clamp(min=0) - x * target + soft
    else:
        above = x.clamp(min=0) + soft
        other = pos_weight * target * below + (1 - target) * above
    # Equal but for rounding: under the shadow half of the greater error remains, of
    # which its safety makes twice that error.
    loss = (one + other) / 2
    return reduced(loss if weight is None else loss * weight, reduction)


def accept_bce_with_logits(problem: nm.Problem) -> nm.Acceptance:
    """Return the shadow's acceptance, undecided beside an infinity without a NaN."""
    given = bce_with_logits.oracle_on(problem.tensors)
    (made,) = nm.shadowed(given, problem, name="bce_with_logits", proven=True)
    return nm.undecided_at_infinities(problem, made)


bce_with_logits = defined(
    "bce_with_logits",
    inputs={
        "x": ks.tensors("* N"),
        "target": ks.tensors("* N", role="variance"),
        "weight": ks.tensors("N", role="variance", optional=True),
        "pos_weight": ks.tensors("N", role="variance", optional=True),
        "reduction": reduction(),
    },
    oracle=reference_bce_with_logits,
    error_model=accept_bce_with_logits,
)


huber_loss = of_two(
    "huber_loss",
    of_torch(
        "nn.functional.huber_loss",
        "d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2); d = x - target.",
    ),
    delta=ks.scalar(1.0, domain=(0.5, 0.1, 5.0)),
)


# Of a probability that is not 0.
LOGARITHM: Final = "(-inf, 0]"


def reference_js_div(x: Any, target: Any, *, beta: float, reduction: str) -> Any:
    """B P (log P - log M) + (1-b) Q (log Q - log M), M = b P + (1-b) Q, elementwise.

    log Q is x and log P the target. b = 0 is KL(P || Q) and b = 1 KL(Q || P), as
    generalised knowledge distillation defines them (Agarwal et al. 2024).
    """
    if beta == 0.0:
        return reduced(target.exp() * (target - x), reduction)
    if beta == 1.0:
        return reduced(x.exp() * (x - target), reduction)
    p, q = beta * target.exp(), (1 - beta) * x.exp()
    middle = (p + q).log()
    return reduced(p * (target - middle) + q * (x - middle), reduction)


js_div = defined(
    "js_div",
    inputs={
        "x": ks.tensors("*", within=LOGARITHM),
        "target": ks.tensors("*", within=LOGARITHM),
        "beta": ks.scalar(0.5, domain=(0.0, 1.0, 0.1, 0.9)),
        "reduction": reduction("batchmean"),
    },
    oracle=reference_js_div,
)


def reference_kl_div(x: Any, target: Any, *, reduction: str, log_target: bool) -> Any:
    """T log t - t x of log-probabilities x, 0 log 0 = 0; exp(t) (t - x) of logarithms.

    Elements, their mean or sum, or the sum over the size of the first dimension.
    """
    import torch

    if log_target:
        return reduced(target.exp() * (target - x), reduction)
    return reduced(torch.xlogy(target, target) - target * x, reduction)


kl_div = defined(
    "kl_div",
    inputs={
        "x": ks.tensors("*"),
        "target": ks.tensors("*", role="variance"),
        "reduction": reduction("batchmean"),
        "log_target": ks.scalar(False, domain=(True,)),
    },
    oracle=reference_kl_div,
)


def reference_linear_cross_entropy(
    x: Any, weight: Any, target: Any, bias: Any = None, *, ignore_index: int,
    label_smoothing: float, reduction: str,
) -> Any:  # fmt: skip
    """cross_entropy(x weight^T + bias, target); the logits are no result."""
    import torch

    return reference_cross_entropy(
        torch.nn.functional.linear(x, weight, bias), target,
        ignore_index=ignore_index, label_smoothing=label_smoothing,
        reduction=reduction,
    )  # fmt: skip


def accept_linear_cross_entropy(problem: nm.Problem) -> nm.Acceptance:
    """Return cross_entropy's interval of logits that lie within linear's.

    The gradient of log p_i in the logits is e_i - p, whose entries add up to 0: errors
    e_j change it by at most e_i + max_j e_j, e_j linear's R (|x| |w|^T + |b|), and one
    rounding more where logits are stored.
    """
    import torch

    t = problem.tensors
    bias = t.get("bias")
    addend = None if bias is None else bias.unsqueeze(1)
    made = nm.dots(problem, t["x"], t["weight"].transpose(1, 2), addend=addend)
    if addend is not None:
        made = nm.rounded_before(problem, made, addend)
    logits, error = made.reference, made.error
    overflows = made.classes.ambiguous | (made.admitted != made.classes.admitted)
    if problem.declaration.intermediates == "output":
        out = problem.output
        size = nm.finite_or_zero(logits).abs() + error
        error = error + out.unit * size + out.min_subnormal
        overflows = overflows | (size * (1 + out.unit) > out.max_finite)
    tensors = {"logits": logits, "target": t["target"]}
    return accept_cross_entropy(
        replace(problem, tensors=tensors),
        torch.where(torch.isfinite(logits), error, 0.0),
        overflows,
    )


linear_cross_entropy = defined(
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
    oracle=reference_linear_cross_entropy,
    error_model=accept_linear_cross_entropy,
    chain=("linear", "cross_entropy"),
    batch="N",
    reduced="C",
    empty_reduction=False,
    workspaces=("N C",),
    out_of_bounds=("raise", "clamp", "undefined"),
)


def reference_mse_loss(x: Any, target: Any, *, reduction: str) -> Any:
    """(x - target)^2, reduced."""
    difference = x - target
    return reduced(difference * difference, reduction)


mse_loss = of_two("mse_loss", reference_mse_loss, homogeneous={"x target": 2})


def reference_nll_loss(
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


nll_loss = defined(
    "nll_loss",
    inputs={
        "log_p": ks.tensors("N C"),
        "target": ks.indices("N", below="C", ignored="ignore_index"),
        "weight": ks.tensors("C", role="variance", optional=True),
        "ignore_index": ks.scalar(-100, domain=(-1, 0)),
        "reduction": reduction(),
    },
    oracle=reference_nll_loss,
    batch="N",
    empty_reduction=False,
    reduced="C",
)


smooth_l1_loss = of_two(
    "smooth_l1_loss",
    of_torch(
        "nn.functional.smooth_l1_loss",
        "d^2 / (2 beta) where |d| < beta, else |d| - beta / 2; d = x - target.",
    ),
    beta=ks.scalar(1.0, domain=(0.5, 0.1, 0.0)),
)
