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


def _divergence_of_elements(p: Tensor, q: Tensor, reduction: str) -> Tensor:
    made = _divergence(p, q, reduction)
    return made / p.shape[-1] if reduction == "mean" else made


def _divergence_rounded(p: Tensor, q: Tensor, reduction: str) -> Tensor:
    return like(p, _divergence(p, q, reduction)).float()


def absolute_loss(p: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    """The mean of |p - q| in float32, and its slope in p."""
    d = p - q
    return d.abs().mean(), d.sign() / d.numel()


def _absolute(p: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    a, b = p.float(), q.float()
    slope = (a > b).float() - (a < b).float()
    total = torch.maximum(a - b, b - a).sum()
    return total / p.numel(), like(p, slope / p.numel())


def _absolute_half_at_kink(p: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    loss, slope = _absolute(p, q)
    return loss, torch.where(p == q, like(p, torch.tensor(0.5 / p.numel())), slope)


def _absolute_one_sided(p: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    loss, _ = _absolute(p, q)
    return loss, like(p, torch.where(p >= q, 1.0, -1.0) / p.numel())


# Elementwise -----------------------------------------------------------------------


def capped(x: Tensor, *, cap: float) -> Tensor:
    """cap * tanh(x / cap)."""
    return cap * (x / cap).tanh()


def _capped_by_exp(x: Tensor, cap: float) -> Tensor:
    e = torch.expm1(-2 * (x.float().abs() / cap))
    return like(x, torch.copysign(cap * (-e / (2 + e)), x.float()))


def _capped_hard(x: Tensor, cap: float) -> Tensor:
    return x.clamp(-cap, cap)


def leaky(x: Tensor) -> tuple[Tensor, Tensor]:
    """relu(x) squared, and its derivative."""
    return x.relu().square(), 2 * x.relu()


def _leaky(x: Tensor) -> tuple[Tensor, Tensor]:
    y = torch.where(x.float() < 0, 0.0, x.float())
    return like(x, y * y), like(x, y + y)


def _leaky_no_nan(x: Tensor) -> tuple[Tensor, Tensor]:
    y = torch.where(x.float() > 0, x.float(), 0.0)
    return like(x, y * y), like(x, y + y)


def mixed(a: Tensor, b: Tensor, w: Tensor) -> Tensor:
    """a (1 - w) + b w, w between 0 and 1."""
    return a * (1 - w) + b * w


def _mixed_fused(a: Tensor, b: Tensor, w: Tensor) -> Tensor:
    rest = 1 - w.float()
    return like(a, torch.addcmul(rest * a.float(), b.float(), w.float()))


def _mixed_lerp(a: Tensor, b: Tensor, w: Tensor) -> Tensor:
    return like(a, a.float() + w.float() * (b.float() - a.float()))


def _mixed_turned(a: Tensor, b: Tensor, w: Tensor) -> Tensor:
    return _mixed_fused(b, a, w)


def entropy(p: Tensor) -> Tensor:
    """-sum(p log p), 0 log 0 being 0."""
    return -torch.where(p > 0, p * p.log(), 0.0).sum(-1)


def _entropy_special(p: Tensor) -> Tensor:
    return like(p, torch.special.entr(p.float()).sum(-1))


def _entropy_nan(p: Tensor) -> Tensor:
    return like(p, -(p.float() * p.float().log()).sum(-1))


def _entropy_eps(p: Tensor) -> Tensor:
    return like(p, -(p.float() * (p.float() + 1e-3).log()).sum(-1))


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


def _stepped_decays_after(
    p: Tensor, g: Tensor, m: Tensor, v: Tensor, lr: float, decay: float
) -> None:
    _stepped(p, g, m, v, lr, 0.0)
    p.copy_(p.float() * (1 + lr * decay))


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
            "mean of elements": _divergence_of_elements,
            "rounded on the way": _divergence_rounded,
        },
    ),
    Subject(
        kfuzz.reference(
            absolute_loss,
            {"p": ks.tensors("N"), "q": ks.tensors("N")},
            outputs=("loss", "slope"),
            results={"loss": "float32"},
            shape_class="N >= 1",
        ),
        {"by comparison": _absolute},
        {"half at the kink": _absolute_half_at_kink, "one side": _absolute_one_sided},
    ),
    Subject(
        kfuzz.reference(
            capped, {"x": ks.tensors("*"), "cap": ks.scalar(30.0, (1.0, 5.0))}
        ),
        {"by expm1": _capped_by_exp},
        {"hard": _capped_hard},
    ),
    Subject(
        kfuzz.reference(leaky, {"x": ks.tensors("*")}, outputs=("y", "slope")),
        {"by where": _leaky},
        {"swallows NaN": _leaky_no_nan},
    ),
    Subject(
        kfuzz.reference(
            mixed,
            {
                "a": ks.tensors("*"),
                "b": ks.tensors("*"),
                "w": ks.tensors("*", within=(0, 1)),
            },
        ),
        {"fused": _mixed_fused},
        {"turned round": _mixed_turned, "cancels": _mixed_lerp},
    ),
    Subject(
        kfuzz.reference(entropy, {"p": ks.tensors("* C", probabilities=-1)}),
        {"special": _entropy_special},
        {"NaN at 0": _entropy_nan, "an epsilon": _entropy_eps},
    ),
    Subject(
        kfuzz.reference(
            stepped, _STEP, outputs=("p", "m", "v"),
            results={"m": "float32", "v": "float32"},
        ),
        {"in place": _stepped},
        {
            "the old moment": _stepped_old_moment,
            "decays afterwards": _stepped_decays_after,
            "loses v": _stepped_loses_v,
        },
        {"inplace": ("p", "m", "v")},
    ),
)  # fmt: skip
