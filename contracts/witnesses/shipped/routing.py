"""Routing by k maxima in turn, products by expert, filters by sorting."""

import torch
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.witness import LONG_ROWS, witness

INF = float("inf")


@witness((64, 32), backends=("cpu",))
@kernel(ops.topk_routing)
def routing_by_maxima(
    logits: Tensor, *, k: int = 2, renormalize: bool = False
) -> tuple[Tensor, Tensor]:
    """Conforming: the softmax of the chosen logits where it is renormalised."""
    left = logits.float()
    top = left.amax(-1, keepdim=True)
    total = torch.exp(left - top).sum(-1, keepdim=True)
    found, named = [], []
    for _ in range(k):
        index = left.argmax(-1, keepdim=True)
        found.append(logits.float().gather(-1, index))
        named.append(index)
        left = left.scatter(-1, index, -INF)
        # What is -Inf already may be named again: the next place is taken.
        taken = torch.cat(named, -1)
        open_ = torch.ones_like(left, dtype=torch.bool).scatter(-1, taken, False)
        left = torch.where((left == -INF) & open_, torch.finfo(left.dtype).min, left)
    chosen = torch.cat(found, -1)
    if renormalize:
        return torch.softmax(chosen, -1), torch.cat(named, -1)
    return torch.exp(chosen - top) / total, torch.cat(named, -1)


@witness(LONG_ROWS, backends=("cpu",))
@kernel(ops.top_k_filter)
def sorted_top_k_filter(logits: Tensor, *, k: int = 1) -> Tensor:
    """Conforming: k elements are kept, however many are equal."""
    kept = logits.topk(k, -1).indices
    return torch.full_like(logits, -INF).scatter(-1, kept, logits.gather(-1, kept))


@witness(LONG_ROWS, backends=("cpu",))
@kernel(ops.top_p_filter)
def rising_top_p_filter(logits: Tensor, *, p: float = 0.9) -> Tensor:
    """Conforming: what lies below 1 - p is left out."""
    if logits.numel() == 0:
        return logits.clone()
    ordered, order = logits.sort(-1)
    tail = torch.softmax(ordered.float(), -1).cumsum(-1)
    gone = tail <= 1 - p
    gone[..., -1] = False
    return logits.masked_fill(gone.scatter(-1, order, gone), -INF)
