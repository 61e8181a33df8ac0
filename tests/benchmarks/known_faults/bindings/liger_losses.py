"""Losses of Liger-Kernel, each bound to what torch computes.

Fused losses are float32 whatever the data; the data's format is asked for here.

A loss is a sum in the data's format. Targets are positive where a binding takes their
absolute values, which is exact.
"""

import torch

import kfuzz
from kfuzz import strategies as ks
from kfuzz.contracts import operators as ops
from tests.benchmarks.known_faults.bindings.released import apply, liger, only

_SMALLEST_TARGET = 1e-10
_SIZES = "N >= 1 and K >= 1 and C >= 1"
_LOGARITHMS = {
    name: ks.tensors("B V", within=(None, 0)) for name in ("x", "log_target")
}


def _linear_losses(
    x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor
) -> torch.Tensor:
    logits = x @ weight.T
    top = logits.amax(-1, keepdim=True).detach()  # no gradient: it cancels
    total = top.squeeze(-1) + torch.log(torch.exp(logits - top).sum(-1))
    return total - logits.gather(-1, target.long().unsqueeze(-1)).squeeze(-1)


# There is a built-in operator, whose gradients are not judged.
linear_losses = kfuzz.Operator(
    "linear_losses",  # one for each row: reduction="none"
    inputs={
        "x": ks.tensors("N K"),
        "weight": ks.tensors("C K", role="weight"),
        "target": ks.indices("N", below="C"),
    },
    oracle=_linear_losses,
    shape_class=_SIZES,
)

kl_div_mean = kfuzz.Operator(
    "kl_div_mean",
    inputs=_LOGARITHMS,
    oracle=lambda x, log_target: (torch.exp(log_target) * (log_target - x)).mean(),
    shape_class="B >= 1 and V >= 1",
)
kl_div_batchmean = kfuzz.Operator(
    "kl_div_batchmean",
    inputs=_LOGARITHMS,
    oracle=lambda x, log_target: (
        (torch.exp(log_target) * (log_target - x)).sum() / x.shape[0]
    ),
    shape_class="B >= 1 and V >= 1",
)
kl_div_of_probabilities = kfuzz.Operator(
    "kl_div_of_probabilities",
    inputs={"x": ks.tensors("B V"), "target": ks.tensors("B V")},
    # As torch does, 0 log 0 is 0; later releases say log(max(target, eps)).
    oracle=lambda x, target: (
        target.abs() * (torch.log(target.abs().clamp(min=_SMALLEST_TARGET)) - x)
    ),
    shape_class="B >= 1 and V >= 1",
)


@kfuzz.kernel(
    ops.cross_entropy.fixed(reduction="none"),
    intermediates="output",
    out_of_bounds="undefined",
    gradients=("logits",),
)
def cross_entropy_none(
    logits: torch.Tensor, target: torch.Tensor, ignore_index: int = -100
) -> torch.Tensor:
    return only(
        apply(
            liger("LigerCrossEntropyFunction", "ops.cross_entropy"),
            _input=logits.clone(),  # which is overwritten
            target=target,
            weight=None,
            ignore_index=ignore_index,
            lse_square_scale=0.0,
            label_smoothing=0.0,
            reduction="none",
        )
    )


# A mean of no rows is 0 by the library's tests, NaN by torch's.
@kfuzz.kernel(
    ops.cross_entropy.fixed(reduction="sum"),
    intermediates="output",
    out_of_bounds="raise",
)
def cross_entropy(
    logits: torch.Tensor, target: torch.Tensor, ignore_index: int = -100
) -> torch.Tensor:
    return only(
        apply(
            liger("LigerCrossEntropyFunction", "ops.cross_entropy"),
            _input=logits.clone(),
            target=target,
            weight=None,
            ignore_index=ignore_index,
            lse_square_scale=0.0,
            label_smoothing=0.0,
            reduction="sum",
        )
    )


@kfuzz.kernel(
    linear_losses,
    intermediates="output",
    out_of_bounds="undefined",
    gradients=("x", "weight"),
)
def fused_linear_cross_entropy_none(
    x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor
) -> torch.Tensor:
    return only(
        apply(
            liger(
                "LigerFusedLinearCrossEntropyFunction", "ops.fused_linear_cross_entropy"
            ),
            _input=x,
            weight=weight,
            target=target,
            bias=None,
            ce_weight=None,
            ignore_index=-100,
            lse_square_scale=0.0,
            label_smoothing=0.0,
            reduction="none",
        )
    ).to(x.dtype)


@kfuzz.kernel(
    ops.linear_cross_entropy.fixed(reduction="sum"),
    shape_class=_SIZES,
    intermediates="output",
    out_of_bounds="undefined",
)
def fused_linear_cross_entropy_bias(
    x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    return only(
        apply(
            liger(
                "LigerFusedLinearCrossEntropyFunction", "ops.fused_linear_cross_entropy"
            ),
            _input=x,
            weight=weight,
            target=target,
            bias=bias,
            ce_weight=None,
            ignore_index=-100,
            lse_square_scale=0.0,
            label_smoothing=0.0,
            reduction="sum",
        )
    ).to(x.dtype)


def _kl_div(
    x: torch.Tensor, target: torch.Tensor, reduction: str, log_target: bool
) -> torch.Tensor:
    return only(
        apply(
            liger("LigerKLDivLossFunction", "ops.kl_div"),
            y_pred=x,
            y_true=target,
            reduction=reduction,
            log_target=log_target,
        )
    )


@kfuzz.kernel(kl_div_mean, dtypes=("float32",))
def kl_div_with_mean(x: torch.Tensor, log_target: torch.Tensor) -> torch.Tensor:
    return _kl_div(x, log_target, "mean", log_target=True)


@kfuzz.kernel(kl_div_batchmean, dtypes=("float32",), gradients=("x",))
def kl_div_with_batchmean(x: torch.Tensor, log_target: torch.Tensor) -> torch.Tensor:
    return _kl_div(x, log_target, "batchmean", log_target=True)


@kfuzz.kernel(kl_div_of_probabilities, dtypes=("float32",))
def kl_div_with_zeros(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return _kl_div(x, target.abs(), "none", log_target=False)
