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


@witness((64, 16), (1, 16, 32), (2,), backends=("cpu",))
@kernel(ops.grouped_matmul)
def tiled_grouped_matmul(x: Tensor, weight: Tensor, offsets: Tensor) -> Tensor:
    """Conforming."""
    y = torch.zeros(x.shape[0], weight.shape[-1], dtype=x.dtype)
    for group, start in enumerate(offsets[:-1].tolist()):
        end = int(offsets[group + 1])
        for at in range(start, end, 16):
            tile = slice(at, min(at + 16, end))
            y[tile] = (x[tile].float() @ weight[group].float()).to(x.dtype)
    return y


@witness((64, 16), (64, 2), backends=("cpu",))
@kernel(ops.moe_permute)
def counted_moe_permute(
    x: Tensor, experts: Tensor, *, count: int = 4
) -> tuple[Tensor, Tensor, Tensor]:
    """Conforming: places are counted, nothing is sorted."""
    flat = experts.flatten()
    if bool(((flat < 0) | (flat >= count)).any()):
        raise IndexError("an expert that does not exist")
    one = torch.zeros(flat.shape[0], count, dtype=torch.int64)
    one.scatter_(1, flat.unsqueeze(1), 1)
    offsets = torch.cat((torch.zeros(1, dtype=torch.int64), one.sum(0).cumsum(0)))
    rank = (one.cumsum(0) - one).gather(1, flat.unsqueeze(1)).squeeze(1)
    source = torch.empty_like(flat)
    source[offsets[flat] + rank] = torch.arange(flat.shape[0])
    return x[source // max(experts.shape[1], 1)], offsets, source


@witness((64, 16), (32, 2), (32, 2), backends=("cpu",))
@kernel(ops.moe_combine)
def serial_moe_combine(y: Tensor, rows: Tensor, weights: Tensor) -> Tensor:
    """Conforming: one row after the other."""
    total = torch.zeros(rows.shape[0], y.shape[1])
    for j in range(rows.shape[1]):
        total += weights[:, j, None].float() * y.index_select(0, rows[:, j]).float()
    return total.to(y.dtype)


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
