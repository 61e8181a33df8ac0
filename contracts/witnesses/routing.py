"""Routing by k maxima in turn, products by expert, filters by sorting; their faults."""

import torch
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.witness import LONG_ROWS, witness

INF = float("inf")


def _routed(logits: Tensor, k: int, *, renormalize: bool) -> tuple[Tensor, Tensor]:
    """Return k maxima taken in turn, and their softmax or their probabilities."""
    left, total = logits.float(), torch.logsumexp(logits.float(), -1, keepdim=True)
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
    return torch.exp(chosen - total), torch.cat(named, -1)


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


def _by_expert(
    x: Tensor, weight: Tensor, experts: Tensor, capacity: int | None
) -> Tensor:
    """Return the product of rows brought in the order of their experts.

    Args:
        x: [P, D].
        weight: [E, D, F].
        experts: [P].
        capacity: how many rows of an expert are multiplied; None for all.
    """
    count = weight.shape[0]
    if bool(((experts < 0) | (experts >= count)).any()):
        raise IndexError("an expert that does not exist")
    order = experts.argsort(stable=True)
    ends = torch.bincount(experts, minlength=count).cumsum(0).tolist()
    y = torch.zeros(x.shape[0], weight.shape[-1], dtype=x.dtype)
    start = 0
    for expert, end in enumerate(ends):
        rows = order[start:end][:capacity]
        y[rows] = (x[rows].float() @ weight[expert].float()).to(x.dtype)
        start = end
    return y


@witness((64, 16), (4, 16, 32), (64,), backends=("cpu",))
@kernel(ops.grouped_matmul)
def permuted_grouped_matmul(x: Tensor, weight: Tensor, experts: Tensor) -> Tensor:
    """Conforming."""
    return _by_expert(x, weight, experts, None)


@witness(
    (64, 16), (4, 16, 32), (64,), breaks="K-VAL-01", most=(200, 40),
    backends=("cpu",), minimal="33 rows of one expert",
)  # fmt: skip
@kernel(ops.grouped_matmul)
def grouped_matmul_drops_rows(x: Tensor, weight: Tensor, experts: Tensor) -> Tensor:
    """An expert takes 32 rows."""
    return _by_expert(x, weight, experts, 32)


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
