"""linear_cross_entropy(x, weight, target, bias, ...): the loss of a last layer."""

from dataclasses import replace
from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.operators.losses import reduction
from kfuzz.contracts.operators.reductions.cross_entropy import accept_given
from kfuzz.contracts.operators.reductions.cross_entropy import (
    reference as cross_entropy,
)
from kfuzz.contracts.operators.reductions.log_softmax import LSE_FORM
from kfuzz.contracts.prose import bounded


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
    """cross_entropy(x weight^T + bias, target); the logits are no result."""
    import torch

    return cross_entropy(
        torch.nn.functional.linear(x, weight, bias), target,
        ignore_index=ignore_index, label_smoothing=label_smoothing,
        reduction=reduction,
    )  # fmt: skip


def accept(problem: "nm.Problem") -> "nm.Acceptance":
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
    return accept_given(
        replace(problem, tensors=tensors),
        torch.where(torch.isfinite(logits), error, 0.0),
        overflows,
    )


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
    error_model=accept,
    chain=("linear", "cross_entropy"),
    batch="N",
    reduced="C",
    empty_reduction=False,
    workspaces=("N C",),
    algorithms={LSE_FORM: "(max + log S) - z_t, which cancels for large offsets"},
    out_of_bounds=("raise", "clamp", "undefined"),
    **bounded("linear_cross_entropy", Structure.INTERVAL),
)
