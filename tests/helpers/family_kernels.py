"""Kernels that are right but for what one family of values shows."""

import math

import torch
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops

_HALF = ("float16", "bfloat16")


def _attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool,
    scale: float | None,
    hidden: float = -math.inf,
    rounded: bool = False,
) -> Tensor:
    """Return attention, computed in float32; a default that is changed is a fault."""
    heads, groups = q.shape[1], k.shape[1]
    key, value = (x.float().repeat_interleave(heads // groups, 1) for x in (k, v))
    query = q.float() * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if rounded:
        query = query.to(q.dtype).float()
    scores = query @ key.transpose(-1, -2)
    if causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
        scores = scores.masked_fill(~seen, hidden)
    return (torch.softmax(scores, -1) @ value).to(q.dtype)


@kernel(ops.attention, dtypes=_HALF, nonfinite="undefined")
def attention_rounds_once(
    q: Tensor, k: Tensor, v: Tensor, causal: bool = False, scale: float | None = None
) -> Tensor:
    """Conforming."""
    return _attention(q, k, v, causal=causal, scale=scale)


@kernel(ops.attention, dtypes=_HALF, nonfinite="undefined")
def attention_rounds_scaled_queries(
    q: Tensor, k: Tensor, v: Tensor, causal: bool = False, scale: float | None = None
) -> Tensor:
    """Queries times the scale are rounded to 16 bits, which is not declared."""
    return _attention(q, k, v, causal=causal, scale=scale, rounded=True)


@kernel(ops.attention, nonfinite="undefined")
def attention_hides_by_a_number(
    q: Tensor, k: Tensor, v: Tensor, causal: bool = False, scale: float | None = None
) -> Tensor:
    """Hidden scores are -1e4, which lies above a row that is farther down."""
    return _attention(q, k, v, causal=causal, scale=scale, hidden=-1e4)


@kernel(ops.logsumexp, nonfinite="undefined", dtypes=("float16",), dims=(-1,))
def logsumexp_starts_from_a_number(x: Tensor, dim: int = -1) -> Tensor:
    """The greatest of a wide row is -1e4 at first: one that is lower has no sum."""
    wide = x.float()
    top = wide.amax(-1, keepdim=True)
    if x.shape[-1] > 32:
        top = top.clamp(min=-1e4)
    total = torch.exp(wide - top).sum(-1, keepdim=True)
    return (torch.log(total) + top).squeeze(-1).to(x.dtype)


@kernel(ops.sum, nonfinite="undefined", dims=(-1,))
def sum_samples_half_of_the_rows(x: Tensor, dim: int = -1) -> Tensor:
    """Data are counted as integers where the first half of many rows holds these."""
    wide = x.double()
    rows = wide.reshape(-1, x.shape[-1]) if x.numel() else wide
    first = rows[: len(rows) // 2]
    if len(rows) >= 8 and x.shape[-1] >= 16 and bool((first == first.round()).all()):
        wide = wide.round()
    return wide.sum(-1).to(x.dtype)
