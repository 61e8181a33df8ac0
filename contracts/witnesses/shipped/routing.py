"""Routing by k maxima in turn, products by expert, filters by sorting; their faults."""

import torch
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.witness import LONG_ROWS, witness

INF = float("inf")


def _routed(logits: Tensor, k: int, *, renormalize: bool) -> tuple[Tensor, Tensor]:
    """Return k maxima taken in turn, and their softmax or their probabilities."""
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


@witness((64, 32), backends=("cpu",))
@kernel(ops.topk_routing)
def routing_by_maxima(
    logits: Tensor, *, k: int = 2, renormalize: bool = False
) -> tuple[Tensor, Tensor]:
    """Conforming: the softmax of the chosen logits where it is renormalised."""
    return _routed(logits, k, renormalize=renormalize)


@witness(
    (64, 32), breaks="K-VAL-01", most=(8, 8), backends=("cpu",),
    minimal="one token, renormalised",
)  # fmt: skip
@kernel(ops.topk_routing)
def routing_is_not_renormalised(
    logits: Tensor, *, k: int = 2, renormalize: bool = False
) -> tuple[Tensor, Tensor]:
    """Weights are the probabilities, whatever is asked for."""
    return _routed(logits, k, renormalize=False)


def _by_group(
    x: Tensor, weight: Tensor, offsets: Tensor, capacity: int | None
) -> Tensor:
    """Return each row times its group's matrix, tiles of 16 rows at a time.

    Args:
        x: [P, D].
        weight: [E, D, F].
        offsets: [E + 1].
        capacity: how many rows of a group are multiplied; None for all.
    """
    y = torch.zeros(x.shape[0], weight.shape[-1], dtype=x.dtype)
    for group, start in enumerate(offsets[:-1].tolist()):
        end = int(offsets[group + 1])
        end = end if capacity is None else min(end, start + capacity)
        for at in range(start, end, 16):
            tile = slice(at, min(at + 16, end))
            y[tile] = (x[tile].float() @ weight[group].float()).to(x.dtype)
    return y


@witness((64, 16), (1, 16, 32), (2,), backends=("cpu",))
@kernel(ops.grouped_matmul)
def tiled_grouped_matmul(x: Tensor, weight: Tensor, offsets: Tensor) -> Tensor:
    """Conforming."""
    return _by_group(x, weight, offsets, None)


@witness(
    (64, 16), (1, 16, 32), (2,), breaks="K-VAL-01", most=(400, 80), backends=("cpu",),
    minimal="65 rows of one group",
)  # fmt: skip
@kernel(ops.grouped_matmul)
def grouped_matmul_drops_rows(x: Tensor, weight: Tensor, offsets: Tensor) -> Tensor:
    """A group takes 64 rows."""
    return _by_group(x, weight, offsets, 64)


def _permuted(
    x: Tensor, experts: Tensor, count: int, *, stable: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the permutation by counting how many come before each."""
    flat = experts.flatten()
    if bool(((flat < 0) | (flat >= count)).any()):
        raise IndexError("an expert that does not exist")
    one = torch.zeros(flat.shape[0], count, dtype=torch.int64)
    one.scatter_(1, flat.unsqueeze(1), 1)
    offsets = torch.cat((torch.zeros(1, dtype=torch.int64), one.sum(0).cumsum(0)))
    if not stable and flat.shape[0] % 2:
        one = one.flip(0)
        rank = (one.cumsum(0) - one).flip(0).gather(1, flat.unsqueeze(1)).squeeze(1)
    else:
        rank = (one.cumsum(0) - one).gather(1, flat.unsqueeze(1)).squeeze(1)
    source = torch.empty_like(flat)
    source[offsets[flat] + rank] = torch.arange(flat.shape[0])
    return x[source // max(experts.shape[1], 1)], offsets, source


@witness((64, 16), (64, 2), backends=("cpu",))
@kernel(ops.moe_permute)
def counted_moe_permute(
    x: Tensor, experts: Tensor, *, count: int = 4
) -> tuple[Tensor, Tensor, Tensor]:
    """Conforming: places are counted, nothing is sorted."""
    return _permuted(x, experts, count, stable=True)


@witness(
    (64, 16), (64, 2), breaks="C-CMP-03", most=(6, 6), backends=("cpu",),
    minimal="three assignments to one expert",
)  # fmt: skip
@kernel(ops.moe_permute)
def moe_permute_turns_round(
    x: Tensor, experts: Tensor, *, count: int = 4
) -> tuple[Tensor, Tensor, Tensor]:
    """Of an odd number of assignments those of an expert are turned round."""
    return _permuted(x, experts, count, stable=False)


def _combined(y: Tensor, rows: Tensor, weights: Tensor, most: int) -> Tensor:
    total = torch.zeros(rows.shape[0], y.shape[1])
    for j in range(min(rows.shape[1], most)):
        total += weights[:, j, None].float() * y.index_select(0, rows[:, j]).float()
    return total.to(y.dtype)


@witness((64, 16), (32, 2), (32, 2), backends=("cpu",))
@kernel(ops.moe_combine)
def serial_moe_combine(y: Tensor, rows: Tensor, weights: Tensor) -> Tensor:
    """Conforming: one row after the other."""
    return _combined(y, rows, weights, rows.shape[1])


@witness(
    (64, 16), (32, 2), (32, 2), breaks="K-VAL-01", most=(20, 12), backends=("cpu",),
    minimal="a token of nine rows",
)  # fmt: skip
@kernel(ops.moe_combine, out_of_bounds="undefined")
def combine_takes_eight(y: Tensor, rows: Tensor, weights: Tensor) -> Tensor:
    """The ninth row of a token and those after it are left out."""
    return _combined(y, rows, weights, 8)


@witness(LONG_ROWS, backends=("cpu",))
@kernel(ops.top_k_filter)
def sorted_top_k_filter(logits: Tensor, *, k: int = 1) -> Tensor:
    """Conforming: k elements are kept, however many are equal."""
    kept = logits.topk(k, -1).indices
    return torch.full_like(logits, -INF).scatter(-1, kept, logits.gather(-1, kept))


@witness(
    LONG_ROWS, breaks="K-VAL-01", most=(12, 12), backends=("cpu",),
    minimal="a row of 17, all kept",
)  # fmt: skip
@kernel(ops.top_k_filter)
def top_k_keeps_sixteen(logits: Tensor, *, k: int = 1) -> Tensor:
    """Sixteen elements are kept at most."""
    kept = logits.topk(min(k, 16), -1).indices
    return torch.full_like(logits, -INF).scatter(-1, kept, logits.gather(-1, kept))


def _nucleus(logits: Tensor, p: float, dtype: torch.dtype) -> Tensor:
    """Return the filter by a running sum from the least, in a format."""
    if logits.numel() == 0:
        return logits.clone()
    ordered, order = logits.sort(-1)
    tail = torch.softmax(ordered.float(), -1).to(dtype).cumsum(-1)
    gone = tail <= 1 - p
    gone[..., -1] = False
    return logits.masked_fill(gone.scatter(-1, order, gone), -INF)


@witness(LONG_ROWS, backends=("cpu",))
@kernel(ops.top_p_filter)
def rising_top_p_filter(logits: Tensor, *, p: float = 0.9) -> Tensor:
    """Conforming: what lies below 1 - p is left out."""
    return _nucleus(logits, p, torch.float32)


@witness(
    LONG_ROWS, breaks="K-VAL-01", most=(40, 40), backends=("cpu",),
    minimal="a row in 16 bits, its sum near p",
)  # fmt: skip
@kernel(ops.top_p_filter)
def top_p_adds_in_16_bits(logits: Tensor, *, p: float = 0.9) -> Tensor:
    """The running sum is kept in the data's format."""
    return _nucleus(logits, p, logits.dtype)
