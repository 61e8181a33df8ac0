"""Products, masks, destinations and what indices choose."""

import torch
from torch import Tensor

import kfuzz
from kfuzz import strategies as ks
from tests.helpers.own.subject import Subject, like, without_strides

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


def _linear_bias_first(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    y = torch.zeros(x.shape[0], weight.shape[0])
    y = y if bias is None else y + bias.float()
    for k in range(x.shape[1]):
        y = y + x[:, k : k + 1].float() * weight[:, k].float()
    return like(x, y)


def _linear_16_bits(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return _linear(x, weight, bias, block=4, dtype=x.dtype)


def _linear_twice(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return _linear(x, weight, None if bias is None else 2 * bias.float())


def _linear_whole_blocks(
    x: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Tensor:
    whole = max(x.shape[1] // 16 * 16, 1)
    return _linear(x[:, :whole], weight[:, :whole], bias)


def grouped(x: Tensor, weight: Tensor, cu: Tensor) -> Tensor:
    """Rows of each part times the matrix of its own."""
    ends = zip(cu[:-1].tolist(), cu[1:].tolist(), strict=True)
    return torch.cat([x[a:b] @ weight[i] for i, (a, b) in enumerate(ends)])


def _grouped_rows(x: Tensor, weight: Tensor, cu: Tensor) -> Tensor:
    part = torch.searchsorted(cu.long(), torch.arange(len(x)), right=True) - 1
    rows = torch.bmm(x.float()[:, None], weight.float()[part])
    return like(x, rows[:, 0])


def _grouped_left(x: Tensor, weight: Tensor, cu: Tensor) -> Tensor:
    part = torch.searchsorted(cu.long(), torch.arange(len(x)), right=False) - 1
    return like(
        x, torch.bmm(x.float()[:, None], weight.float()[part.clamp(min=0)])[:, 0]
    )


def _grouped_skips_empty(x: Tensor, weight: Tensor, cu: Tensor) -> Tensor:
    ends = zip(cu[:-1].tolist(), cu[1:].tolist(), strict=True)
    parts = [(a, b) for a, b in ends if b > a]  # the matrices are not skipped alike
    made = [x[a:b].float() @ weight[i].float() for i, (a, b) in enumerate(parts)]
    return like(x, torch.cat(made)) if made else x.new_empty(0, weight.shape[2])


# Attention with masks --------------------------------------------------------------


def masked_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """softmax over the keys that are chosen, 0 for a query without any."""
    scores = (q @ k.transpose(-1, -2)) / q.shape[-1] ** 0.5
    weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
    return torch.where(mask, weights, 0.0) @ v


def _masked_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, *, forgets: bool = False,
    uniform: bool = False, turned: bool = False,
) -> Tensor:  # fmt: skip
    scores = q.float() @ k.float().mT * q.shape[-1] ** -0.5
    seen = mask.mT if turned and mask.shape[-1] == mask.shape[-2] else mask
    if forgets:
        seen = seen.clone()
        seen[..., -1, :] = True
    kept = torch.where(seen, scores, -torch.inf)
    top = kept.amax(-1, keepdim=True).clamp(min=torch.finfo().min)
    e = torch.where(seen, (kept - top).exp(), 0.0)
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


def _routed_empty_first(
    x: Tensor, scores: Tensor, expert: Tensor, experts: int
) -> Tensor:
    made = _routed(x, scores, expert, experts)
    empty = torch.ones(experts, dtype=torch.bool).index_fill(0, expert.long(), False)
    return torch.where(empty[:, None], x[:1], made) if len(x) else made


def bagged(table: Tensor, index: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """The mean of the rows that a bag chooses, 0 for none; how many they are."""
    rows = torch.where(mask[:, :, None], table[index], 0.0).sum(1)
    count = mask.sum(1)
    return rows / count.clamp(min=1)[:, None], count


def _bagged(table: Tensor, index: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    total, count = torch.zeros(len(index), table.shape[1]), mask.long().sum(1)
    for p in range(index.shape[1]):
        here = table[index[:, p].long()].float()
        total = torch.where(mask[:, p, None], total + here, total)
    return like(table, total / count.clamp(min=1)[:, None].float()), count


def _bagged_int32(table: Tensor, index: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    y, count = _bagged(table, index, mask)
    return y, count.int()


def _bagged_all(table: Tensor, index: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    y, _ = _bagged(table, index, torch.ones_like(mask))
    return y, mask.sum(1)


def gathered(x: Tensor, index: Tensor, *, axis: str) -> Tensor:
    """Rows or columns by indices."""
    return x[index] if axis == "rows" else x[:, index]


def _gathered(x: Tensor, index: Tensor, axis: str) -> Tensor:
    if axis == "rows":
        return torch.stack([x[i] for i in index.tolist()]) if len(index) else x[:0]
    return torch.index_select(x, 1, index.long())


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Pairs of halves turned by angles."""
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    y, c, s = torch.empty_like(x), cos.float(), sin.float()
    a, b = x[..., :half].float(), x[..., half:].float()
    y[..., :half] = torch.addcmul(a * c, b, s, value=-1)
    y[..., half:] = torch.addcmul(b * c, a, s)
    return y


def _rotated_pairs(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b, c, s = x[..., ::2].float(), x[..., 1::2].float(), cos.float(), sin.float()
    return like(x, torch.stack([a * c - b * s, b * c + a * s], -1).flatten(-2))


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


def _into_unscaled(x: Tensor, scale: float, y: Tensor, lse: Tensor) -> None:
    _into(x, scale, y, lse)
    lse.copy_(x.float().logsumexp(-1))


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
        {"in blocks": _linear, "bias first": _linear_bias_first},
        {
            "in 16 bits": _linear_16_bits,
            "bias twice": _linear_twice,
            "whole blocks": _linear_whole_blocks,
            "ignores strides": lambda x, weight, bias=None: _linear(
                x, without_strides(weight), bias
            ),
        },
    ),
    Subject(
        kfuzz.reference(
            grouped,
            {
                "x": ks.tensors("T K"),
                "weight": ks.tensors("G K N"),
                "cu": ks.offsets("S", of="T"),
            },
            shape_class="S == G + 1",
        ),
        {"row by row": _grouped_rows},
        {"at the wrong side": _grouped_left, "skips empty ones": _grouped_skips_empty},
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
            "forgets a row": lambda q, k, v, mask: _masked_attention(
                q, k, v, mask, forgets=True
            ),
            "uniform where none": lambda q, k, v, mask: _masked_attention(
                q, k, v, mask, uniform=True
            ),
        },
        {"nonfinite": "undefined"},
    ),
    Subject(
        kfuzz.reference(
            masked_attention,
            {**_OF_KEYS, "mask": ks.masks("B S T", kind="causal")},
            name="causal_attention",
            shape_class=_SQUARE,
            workspaces=("B S T",),
        ),
        {"by hand": _masked_attention},
        {
            "transposed": lambda q, k, v, mask: _masked_attention(
                q, k, v, mask, turned=True
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
        {"the last alone": _routed_by_last, "empty ones": _routed_empty_first},
        {"out_of_bounds": "undefined"},
    ),
    Subject(
        kfuzz.reference(
            bagged,
            {
                "table": ks.tensors("V D"),
                "index": ks.indices("B P", below="V"),
                "mask": ks.masks("B P", kind="padding"),
            },
            outputs=("y", "count"),
        ),
        {"place by place": _bagged},
        {"counts in int32": _bagged_int32, "ignores the mask": _bagged_all},
        {"out_of_bounds": "undefined"},
    ),
    Subject(
        kfuzz.reference(
            gathered,
            {
                "x": ks.tensors("N N2"),
                "index": ks.indices("K", below="N", rising=True, dtype="int32"),
                "axis": ks.scalar("rows", ("columns",)),
            },
            shape_class="N2 == N",
        ),
        {"one by one": _gathered},
        {
            "never the last": lambda x, index, axis: _gathered(
                x, index.clamp(max=max(len(x) - 2, 0)), axis
            ),
        },
    ),
    Subject(
        kfuzz.reference(
            rotated,
            {
                "x": ks.tensors("B S D"),
                "cos": ks.tensors("S H", within=(-1, 1)),
                "sin": ks.tensors("S H", within=(-1, 1)),
            },
            shape_class="D == H * 2",
        ),
        {"fused": _rotated},
        {"pairs of neighbours": _rotated_pairs},
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
            "not scaled": _into_unscaled,
            "rounded on the way": _into_rounded,
        },
        {"out": ("y", "lse")},
    ),
)  # fmt: skip
