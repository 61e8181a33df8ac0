"""Attention of ragged and paged sequences in torch, in float32, piece by piece."""

import torch
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.witness import witness

TILE = 16
TOKENS = (32, 2, 16)
PAGES = (8, 8, 2, 16)


class Online:
    """A softmax of rows that keys come to by and by, [H, S, D]."""

    def __init__(self, q: Tensor, scale: float | None, softcap: float | None) -> None:
        """Start from no key."""
        self.scale = q.shape[-1] ** -0.5 if scale is None else scale
        self.q, self.softcap = q.float(), softcap
        self.top = torch.full((*q.shape[:-1], 1), float("-inf"))
        self.total = torch.zeros_like(self.top)
        self.out = torch.zeros(q.shape)

    def take(self, k: Tensor, v: Tensor, seen: Tensor) -> None:
        """Add keys and values [G, T, D] where they are seen, bool [S, T]."""
        repeats = self.q.shape[0] // k.shape[0]
        k, v = (t.float().repeat_interleave(repeats, 0) for t in (k, v))
        s = (self.q @ k.mT) * self.scale
        if self.softcap is not None:
            s = self.softcap * torch.tanh(s / self.softcap)
        s = s.masked_fill(~seen, float("-inf"))
        top = torch.maximum(self.top, s.amax(-1, keepdim=True))
        base = top.masked_fill(top == float("-inf"), 0.0)
        weight, shrink = torch.exp(s - base), torch.exp(self.top - base)
        self.total = self.total * shrink + weight.sum(-1, keepdim=True)
        # What no query sees is not read: it may hold NaN.
        v = v.masked_fill(~seen.any(0)[:, None], 0.0)
        self.out = self.out * shrink + weight @ v
        self.top = top

    def result(self) -> Tensor:
        """Return the rows; those that saw no key are 0."""
        return self.out / self.total.masked_fill(self.total == 0, 1.0)


@witness(TOKENS, TOKENS, TOKENS, (4,), (4,), backends=("cpu",))
@kernel(ops.attention_varlen, masked_row="zero")
def tiled_attention_varlen(
    q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor, cu_k: Tensor, *,
    causal: bool = False, scale: float | None = None, window: int | None = None,
    softcap: float | None = None,
) -> Tensor:  # fmt: skip
    """Conforming."""
    y = torch.empty(q.shape, dtype=q.dtype)
    ends, limits = cu_q.tolist(), cu_k.tolist()
    for i in range(len(ends) - 1):
        rows = slice(ends[i], ends[i + 1])
        made = Online(q[rows].transpose(0, 1), scale, softcap)
        at = torch.arange(ends[i + 1] - ends[i])[:, None]
        keys = limits[i + 1] - limits[i]
        for start in range(0, keys, TILE):
            part = slice(limits[i] + start, limits[i] + min(start + TILE, keys))
            ahead = torch.arange(start, min(start + TILE, keys)) - at
            seen = ahead <= 0 if causal else torch.ones_like(ahead, dtype=torch.bool)
            if window is not None:
                seen = seen & (ahead.abs() < window)
            made.take(k[part].transpose(0, 1), v[part].transpose(0, 1), seen)
        y[rows] = made.result().transpose(0, 1).to(q.dtype)
    return y


@witness((2, 2, 16), PAGES, PAGES, (2, 4), (2,), backends=("cpu",))
@kernel(ops.attention_paged, masked_row="zero")
def split_attention_paged(
    q: Tensor, k: Tensor, v: Tensor, pages: Tensor, lengths: Tensor, *,
    limit: int = 16, scale: float | None = None, softcap: float | None = None,
) -> Tensor:  # fmt: skip
    """Conforming."""
    y, width = torch.empty(q.shape, dtype=q.dtype), k.shape[1]
    for i, length in enumerate(lengths.tolist()):
        made = Online(q[i][:, None], scale, softcap)
        for j, page in enumerate(pages[i].tolist()):
            if (count := min(length - j * width, width)) <= 0:
                break
            seen = torch.ones(1, count, dtype=torch.bool)
            keys, values = (t[page, :count].transpose(0, 1) for t in (k, v))
            made.take(keys, values, seen)
        y[i] = made.result()[:, 0].to(q.dtype)
    return y
