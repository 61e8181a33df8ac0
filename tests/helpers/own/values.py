"""Reductions, scans and norms."""

import torch
from torch import Tensor

import kfuzz
from kfuzz import strategies as ks
from tests.helpers.own.subject import Subject, like

# Reductions ------------------------------------------------------------------------


def log_sum_exp(x: Tensor) -> Tensor:
    """log(sum(exp(x))) along the last axis, in float32."""
    return x.logsumexp(-1)


def _lse_online(x: Tensor) -> Tensor:
    top = torch.full(x.shape[:-1], -torch.inf)
    total = torch.zeros(x.shape[:-1])
    for s in range(0, x.shape[-1], 8):
        block = x[..., s : s + 8].float()
        new = torch.maximum(top, block.amax(-1))
        safe = torch.where(new.isinf(), 0.0, new)
        total = total * (top - safe).exp() + (block - safe[..., None]).exp().sum(-1)
        total = torch.where(new == torch.inf, torch.inf, total)
        top = new
    shift = torch.where(top.isinf(), 0.0, top)
    return total.log() + shift


def _lse_naive(x: Tensor) -> Tensor:
    return x.float().exp().sum(-1).log()


def variance(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance along the last axis."""
    mean = x.mean(-1, keepdim=True)
    return mean[..., 0], (x - mean).square().mean(-1)


def _variance_by_columns(x: Tensor) -> tuple[Tensor, Tensor]:
    """Column by column, from the last one."""
    mean, m2 = torch.zeros(x.shape[:-1]), torch.zeros(x.shape[:-1])
    for column in reversed(x.float().unbind(-1)):
        mean = mean + column
    mean = mean / x.shape[-1] if x.shape[-1] else mean / 0
    for column in reversed(x.float().unbind(-1)):
        m2 = m2 + (column - mean) ** 2
    return like(x, mean), like(x, m2 / x.shape[-1] if x.shape[-1] else m2 / 0)


def _variance_one_pass(x: Tensor) -> tuple[Tensor, Tensor]:
    mean = x.float().mean(-1)
    return like(x, mean), like(x, x.float().square().mean(-1) - mean.square())


def running_maximum(x: Tensor) -> Tensor:
    """The greatest element so far along the last axis; NaN stays."""
    return x.cummax(-1).values if x.shape[-1] else x


def _maximum_by_steps(x: Tensor) -> Tensor:
    y = x.clone()
    for i in range(1, x.shape[-1]):
        y[..., i] = torch.maximum(y[..., i - 1], x[..., i])
    return y


def _maximum_ignores_nan(x: Tensor) -> Tensor:
    y = x.clone()
    for i in range(1, x.shape[-1]):
        y[..., i] = torch.fmax(y[..., i - 1], x[..., i])
    return y


# Norms -----------------------------------------------------------------------------


def gated_norm(x: Tensor, gate: Tensor, weight: Tensor, *, eps: float) -> Tensor:
    """rms_norm(x) * weight * silu(gate)."""
    scale = (x.square().mean(-1, keepdim=True) + eps).rsqrt()
    return x * scale * weight * (gate / (1 + (-gate).exp()))


def _gated(x: Tensor, gate: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide, g = x.float(), gate.float()
    root = (wide.square().sum(-1, keepdim=True) / x.shape[-1] + eps).sqrt()
    return like(x, g * torch.sigmoid(g) * (weight.float() * (wide / root)))


def _gated_outside(x: Tensor, gate: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide, g = x.float(), gate.float()
    root = (wide.square().sum(-1, keepdim=True) / x.shape[-1]).sqrt() + eps
    return like(x, g * torch.sigmoid(g) * (weight.float() * (wide / root)))


SUBJECTS = (
    Subject(
        kfuzz.reference(
            log_sum_exp, {"x": ks.tensors("* N")}, results={"y": "float32"},
            shape_class="N >= 1",
        ),
        {"online": _lse_online},
        {"no maximum": _lse_naive},
    ),
    Subject(
        kfuzz.reference(
            variance, {"x": ks.tensors("* N")}, outputs=("mean", "var"),
            subtracts_mean=True,
        ),
        {"by columns": _variance_by_columns},
        {"one pass": _variance_one_pass},
    ),
    Subject(
        kfuzz.reference(running_maximum, {"x": ks.tensors("* N")}),
        {"by steps": _maximum_by_steps},
        {"ignores NaN": _maximum_ignores_nan},
    ),
    Subject(
        kfuzz.reference(
            gated_norm,
            {
                "x": ks.tensors("* N"),
                "gate": ks.tensors("* N"),
                "weight": ks.tensors("N", role="weight"),
                "eps": ks.scalar(1e-6, (1e-5, 1e-2)),
            },
            shape_class="N >= 1",
        ),
        {"by a sigmoid": _gated},
        {
            "eps outside": _gated_outside,
        },
    ),
)  # fmt: skip
