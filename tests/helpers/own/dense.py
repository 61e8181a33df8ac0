"""Products, masks, destinations and what indices choose."""

import torch
from torch import Tensor

import kfuzz
from kfuzz import strategies as ks
from tests.helpers.own.subject import Subject, like

# Products --------------------------------------------------------------------------


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x weight^T + bias."""
    y = x @ weight.T
    return y if bias is None else y + bias


def _linear(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, block: int = 16,
    dtype: torch.dtype = torch.float32,
) -> Tensor:  # fmt: skip
    total = torch.zeros(x.shape[0], weight.shape[0])
    for s in range(0, x.shape[1], block):
        part = x[:, s : s + block].float() @ weight[:, s : s + block].float().T
        total = (total + part).to(dtype).float()
    return like(x, total if bias is None else total + bias.float())


def _linear_16_bits(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return _linear(x, weight, bias, block=4, dtype=x.dtype)


def _linear_twice(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return _linear(x, weight, None if bias is None else 2 * bias.float())


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


# Chosen by indices -----------------------------------------------------------------


def routed(x: Tensor, scores: Tensor, expert: Tensor, *, experts: int) -> Tensor:
    """x by the softmax of the scores, summed for each expert."""
    made = torch.zeros(experts, x.shape[1], dtype=x.dtype)
    return made.index_add(0, expert, x * scores.softmax(0)[:, None])


def _routed(x: Tensor, scores: Tensor, expert: Tensor, experts: int) -> Tensor:
    wide = scores.float()
    e = (wide - wide.amax()).exp() if len(wide) else wide
    rows = x.float() * (e / e.sum())[:, None]
    made = [rows[expert == i].sum(0) for i in range(experts)]
    return like(x, torch.stack(made))


def _routed_by_last(x: Tensor, scores: Tensor, expert: Tensor, experts: int) -> Tensor:
    made = torch.zeros(experts, x.shape[1])
    made[expert.long()] = x.float() * scores.float().softmax(0)[:, None]
    return like(x, made)


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
            linear,
            {
                "x": ks.tensors("M K"),
                "weight": ks.tensors("N K"),
                "bias": ks.tensors("N", optional=True),
            },
        ),
        {"in blocks": _linear},
        {
            "in 16 bits": _linear_16_bits,
            "bias twice": _linear_twice,
        },
    ),
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
            routed,
            {
                "x": ks.tensors("T D"),
                "scores": ks.tensors("T"),
                "expert": ks.indices("T", below="experts"),
                "experts": ks.scalar(4, (1, 9)),
            },
        ),
        {"one by one": _routed},
        {"the last alone": _routed_by_last},
        {"out_of_bounds": "undefined"},
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
