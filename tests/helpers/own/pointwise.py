"""Losses, steps of an optimizer and elementwise kernels; domains of values."""

import math

import torch
from torch import Tensor

import kfuzz
from kfuzz import strategies as ks
from tests.helpers.own.subject import Subject, like

# Losses ----------------------------------------------------------------------------


def divergence(p: Tensor, q: Tensor, *, reduction: str) -> Tensor:
    """sum(p log(p / q)), of each row, their mean or their sum."""
    terms = torch.where(p > 0, p * (p / q).log(), 0.0).sum(-1)
    if reduction == "none":
        return terms
    return terms.sum() / (len(p) if reduction == "mean" else 1)


def _divergence_rows(p: Tensor, q: Tensor) -> Tensor:
    a, b = p.float(), q.float()
    return torch.where(a > 0, a * (a / b).log2() * math.log(2), 0.0).sum(-1)


def _divergence(p: Tensor, q: Tensor, reduction: str) -> Tensor:
    rows = _divergence_rows(p, q)
    if reduction == "none":
        return rows
    return rows.mean() if reduction == "mean" else rows.flip(0).sum()


def _divergence_turned(p: Tensor, q: Tensor, reduction: str) -> Tensor:
    return _divergence(q, p, reduction)


# Elementwise -----------------------------------------------------------------------


def capped(x: Tensor, *, cap: float) -> Tensor:
    """cap * tanh(x / cap)."""
    return cap * (x / cap).tanh()


def _capped_by_exp(x: Tensor, cap: float) -> Tensor:
    e = torch.expm1(-2 * (x.float().abs() / cap))
    return like(x, torch.copysign(cap * (-e / (2 + e)), x.float()))


def _capped_hard(x: Tensor, cap: float) -> Tensor:
    return x.clamp(-cap, cap)


def stepped(
    p: Tensor, g: Tensor, m: Tensor, v: Tensor, *, lr: float, decay: float
) -> tuple[Tensor, Tensor, Tensor]:
    """AdamW without the corrections: p, m and v after a step."""
    m = 0.9 * m + 0.1 * g
    v = 0.99 * v + 0.01 * g * g
    p = p * (1 - lr * decay) - lr * m / (v.sqrt() + 1e-8)
    return p, m, v


def _stepped(
    p: Tensor, g: Tensor, m: Tensor, v: Tensor, lr: float, decay: float
) -> None:
    wide = g.float()
    m.mul_(0.9).add_(wide * 0.1)
    v.mul_(0.99).addcmul_(wide, wide, value=0.01)
    p.copy_(p.float() * (1 - lr * decay) - (lr * m) / (v.sqrt() + 1e-8))


def _stepped_old_moment(
    p: Tensor, g: Tensor, m: Tensor, v: Tensor, lr: float, decay: float
) -> None:
    before = m.clone()
    _stepped(p.clone(), g, m, v, lr, decay)
    p.copy_(p.float() * (1 - lr * decay) - lr * (before / (v.sqrt() + 1e-8)))


def _stepped_loses_v(
    p: Tensor, g: Tensor, m: Tensor, v: Tensor, lr: float, decay: float
) -> None:
    _stepped(p, g, m, v.clone(), lr, decay)


_STEP = {
    "p": ks.tensors("N"),
    "g": ks.tensors("N"),
    "m": ks.tensors("N", dtype="float32"),
    "v": ks.tensors("N", dtype="float32", within=(0, None)),
    "lr": ks.scalar(0.01, (1.0,)),
    "decay": ks.scalar(0.1, (0.0,)),
}

SUBJECTS = (
    Subject(
        kfuzz.reference(
            divergence,
            {
                "p": ks.tensors("N C", probabilities=-1),
                "q": ks.tensors("N C", within="(0, 1]"),
                "reduction": ks.scalar("mean", ("sum", "none")),
            },
            results={"y": "float32"},
            shape_class="C >= 1 and N >= 1",
        ),
        {"by log2": _divergence},
        {
            "turned round": _divergence_turned,
        },
    ),
    Subject(
        kfuzz.reference(
            capped, {"x": ks.tensors("*"), "cap": ks.scalar(30.0, (1.0, 5.0))}
        ),
        {"by expm1": _capped_by_exp},
        {"hard": _capped_hard},
    ),
    Subject(
        kfuzz.reference(
            stepped, _STEP, outputs=("p", "m", "v"),
            results={"m": "float32", "v": "float32"},
        ),
        {"in place": _stepped},
        {
            "the old moment": _stepped_old_moment,
            "loses v": _stepped_loses_v,
        },
        {"inplace": ("p", "m", "v")},
    ),
)  # fmt: skip
