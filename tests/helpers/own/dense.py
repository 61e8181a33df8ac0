"""Products, masks, destinations and what indices choose."""

import torch
from torch import Tensor

import kfuzz
from kfuzz import strategies as ks
from tests.helpers.own.subject import Subject, like

# Attention with masks --------------------------------------------------------------


def masked_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """softmax over the keys that are chosen, 0 for a query without any."""
    scores = (q @ k.transpose(-1, -2)) / q.shape[-1] ** 0.5
    weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
    return torch.where(mask, weights, 0.0) @ v


def _masked_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, *, uniform: bool = False
) -> Tensor:  # fmt: skip
    scores = q.float() @ k.float().mT * q.shape[-1] ** -0.5
    kept = torch.where(mask, scores, -torch.inf)
    top = kept.amax(-1, keepdim=True).clamp(min=torch.finfo().min)
    e = torch.where(mask, (kept - top).exp(), 0.0)
    total = e.sum(-1, keepdim=True)
    if uniform:
        e, total = torch.where(total == 0, 1.0, e), torch.where(total == 0, 1.0, total)
    made = (e / torch.where(total == 0, 1.0, total)) @ v.float()
    return like(v, made)


# Given memory ----------------------------------------------------------------------


def scaled_softmax(x: Tensor, *, scale: float) -> tuple[Tensor, Tensor]:
    """softmax(scale x), and the log-sum-exp in float32."""
    return (x * scale).softmax(-1), (x * scale).logsumexp(-1)


def _into(x: Tensor, scale: float, y: Tensor, lse: Tensor) -> None:
    wide = x.float() * scale
    top = wide.amax(-1, keepdim=True)
    safe = torch.where(top.isinf(), 0.0, top)
    e = (wide - safe).exp()
    total = e.sum(-1, keepdim=True)
    y.copy_(wide.softmax(-1))
    lse.copy_((total.log() + safe)[..., 0])


def _into_all_but_last(x: Tensor, scale: float, y: Tensor, lse: Tensor) -> None:
    made = torch.empty_like(y)
    _into(x, scale, made, lse)
    whole = y.shape[-1] // 8 * 8 or y.shape[-1]
    y[..., :whole] = made[..., :whole]


def _into_rounded(x: Tensor, scale: float, y: Tensor, lse: Tensor) -> None:
    _into(x, scale, y, lse)
    lse.copy_(like(x, lse).float())


_OF_KEYS = {
    "q": ks.tensors("B S D"),
    "k": ks.tensors("B T D"),
    "v": ks.tensors("B T E"),
}
_SQUARE = "D >= 1 and T >= 1 and S >= 1"

SUBJECTS = (
    Subject(
        kfuzz.reference(
            masked_attention,
            {**_OF_KEYS, "mask": ks.masks("B S T")},
            shape_class=_SQUARE,
            workspaces=("B S T",),
        ),
        {"by hand": _masked_attention},
        {
            "uniform where none": lambda q, k, v, mask: _masked_attention(
                q, k, v, mask, uniform=True
            ),
        },
        {"nonfinite": "undefined"},
    ),
    Subject(
        kfuzz.reference(
            scaled_softmax,
            {"x": ks.tensors("* N"), "scale": ks.scalar(1.0, (0.125, 3.0))},
            outputs=("y", "lse"),
            results={"lse": "float32"},
            shape_class="N >= 1",
        ),
        {"written": _into},
        {
            "leaves a tail": _into_all_but_last,
            "rounded on the way": _into_rounded,
        },
        {"out": ("y", "lse")},
    ),
)  # fmt: skip
