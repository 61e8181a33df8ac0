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


def by_tiles(
    q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor, cu_k: Tensor, *, causal: bool,
    scale: float | None, window: int | None, softcap: float | None,
    most: int | None = None,
) -> Tensor:  # fmt: skip
    """Return attention of sequences end to end, each by tiles of its keys.

    Args:
        q: [N, H, D].
        k: [T, G, D].
        v: likewise.
        cu_q: [C], the ends of sequences in q.
        cu_k: [C], the same in k.
        causal: as of the operator, as are those that follow.
        scale: likewise.
        window: likewise.
        softcap: likewise.
        most: keys of a sequence that are gone through, None for all.
    """
    y = torch.empty(q.shape, dtype=q.dtype)
    ends, limits = cu_q.tolist(), cu_k.tolist()
    for i in range(len(ends) - 1):
        rows = slice(ends[i], ends[i + 1])
        made = Online(q[rows].transpose(0, 1), scale, softcap)
        at = torch.arange(ends[i + 1] - ends[i])[:, None]
        keys = limits[i + 1] - limits[i]
        for start in range(0, keys if most is None else min(keys, most), TILE):
            part = slice(limits[i] + start, limits[i] + min(start + TILE, keys))
            ahead = torch.arange(start, min(start + TILE, keys)) - at
            seen = ahead <= 0 if causal else torch.ones_like(ahead, dtype=torch.bool)
            if window is not None:
                seen = seen & (ahead.abs() < window)
            made.take(k[part].transpose(0, 1), v[part].transpose(0, 1), seen)
        y[rows] = made.result().transpose(0, 1).to(q.dtype)
    return y


@witness(TOKENS, TOKENS, TOKENS, (4,), (4,), backends=("cpu",))
@kernel(ops.attention_varlen, masked_row="zero")
def tiled_attention_varlen(
    q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor, cu_k: Tensor, *,
    causal: bool = False, scale: float | None = None, window: int | None = None,
    softcap: float | None = None,
) -> Tensor:  # fmt: skip
    """Conforming."""
    return by_tiles(
        q, k, v, cu_q, cu_k, causal=causal, scale=scale, window=window, softcap=softcap
    )


@witness(
    TOKENS, TOKENS, TOKENS, (4,), (4,), breaks="K-VAL-01", most=(80, 80),
    minimal="one query, 33 keys, two ends of a sequence each", backends=("cpu",),
)  # fmt: skip
@kernel(ops.attention_varlen, masked_row="zero")
def varlen_of_two_tiles(
    q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor, cu_k: Tensor, *,
    causal: bool = False, scale: float | None = None, window: int | None = None,
    softcap: float | None = None,
) -> Tensor:  # fmt: skip
    """Violates K-VAL-01: goes through 32 keys of a sequence and no more."""
    return by_tiles(
        q, k, v, cu_q, cu_k, causal=causal, scale=scale, window=window,
        softcap=softcap, most=2 * TILE,
    )  # fmt: skip


def by_pages(
    q: Tensor, k: Tensor, v: Tensor, pages: Tensor, lengths: Tensor,
    scale: float | None, softcap: float | None, most: int | None = None,
) -> Tensor:  # fmt: skip
    """Return attention of one query each with keys in pages, page by page.

    Args:
        q: [B, H, D].
        k: [P, W, G, D].
        v: likewise.
        pages: [B, L].
        lengths: [B].
        scale: as of the operator.
        softcap: likewise.
        most: pages of a sequence that are gone through, None for all.
    """
    y, width = torch.empty(q.shape, dtype=q.dtype), k.shape[1]
    for i, length in enumerate(lengths.tolist()):
        made = Online(q[i][:, None], scale, softcap)
        for j, page in enumerate(pages[i, :most].tolist()):
            if (count := min(length - j * width, width)) <= 0:
                break
            seen = torch.ones(1, count, dtype=torch.bool)
            keys, values = (t[page, :count].transpose(0, 1) for t in (k, v))
            made.take(keys, values, seen)
        y[i] = made.result()[:, 0].to(q.dtype)
    return y


@witness((2, 2, 16), PAGES, PAGES, (2, 4), (2,), backends=("cpu",))
@kernel(ops.attention_paged, masked_row="zero")
def split_attention_paged(
    q: Tensor, k: Tensor, v: Tensor, pages: Tensor, lengths: Tensor, *,
    limit: int = 16, scale: float | None = None, softcap: float | None = None,
) -> Tensor:  # fmt: skip
    """Conforming."""
    return by_pages(q, k, v, pages, lengths, scale, softcap)


@witness(
    (2, 2, 16), PAGES, PAGES, (2, 4), (2,), breaks="K-VAL-01", most=(20, 20),
    minimal="one query, three pages of one key", backends=("cpu",),
)  # fmt: skip
@kernel(ops.attention_paged, masked_row="zero")
def paged_of_two_pages(
    q: Tensor, k: Tensor, v: Tensor, pages: Tensor, lengths: Tensor, *,
    limit: int = 16, scale: float | None = None, softcap: float | None = None,
) -> Tensor:  # fmt: skip
    """Violates K-VAL-01: goes through two pages of a sequence and no more."""
    return by_pages(q, k, v, pages, lengths, scale, softcap, 2)
