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


def _linear_losses(
    x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor
) -> torch.Tensor:
    logits = x @ weight.T
    chosen = logits.gather(-1, target.long().unsqueeze(-1)).squeeze(-1)
    return torch.logsumexp(logits, -1) - chosen


def _with_bias(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, target: torch.Tensor
) -> torch.Tensor:
    logits = x @ weight.T + bias
    chosen = logits.gather(-1, target.long().unsqueeze(-1)).squeeze(-1)
    return (torch.logsumexp(logits, -1) - chosen).mean()


linear_losses = kfuzz.Operator(
    "linear_losses",  # one for each row: reduction="none"
    inputs={
        "x": ks.tensors("N H"),
        "weight": ks.tensors("V H", role="weight"),
        "target": ks.indices("N", below="V"),
    },
    oracle=_linear_losses,
    shape_class="N >= 1 and H >= 1 and V >= 1",
)
linear_loss_with_bias = kfuzz.Operator(
    "linear_loss_with_bias",
    inputs={
        "x": ks.tensors("N H"),
        "weight": ks.tensors("V H", role="weight"),
        "bias": ks.tensors("V", role="bias"),
        "target": ks.indices("N", below="V"),
    },
    oracle=_with_bias,
    shape_class="N >= 1 and H >= 1 and V >= 1",
)
kl_div_mean = kfuzz.Operator(
    "kl_div_mean",
    inputs={"x": ks.tensors("B V"), "log_target": ks.tensors("B V")},
    oracle=lambda x, log_target: (torch.exp(log_target) * (log_target - x)).mean(),
    shape_class="B >= 1 and V >= 1",
)
kl_div_batchmean = kfuzz.Operator(
    "kl_div_batchmean",
    inputs={"x": ks.tensors("B V"), "log_target": ks.tensors("B V")},
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


@kfuzz.kernel(ops.cross_entropy, intermediates="output", out_of_bounds="raise")
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


@kfuzz.kernel(linear_loss_with_bias, intermediates="output", out_of_bounds="undefined")
def fused_linear_cross_entropy_bias(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, target: torch.Tensor
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
