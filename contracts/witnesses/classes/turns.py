"""ReLU on a GPU by way of two buffers that its calls take in turn."""

import threading

import torch
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.witness import SQUARE, witness

# Two buffers, the next one first.
Pair = tuple[Tensor, Tensor]
_clears_own: dict[object, Pair] = {}
_clears_next: dict[object, Pair] = {}


def in_turn(kept: dict[object, Pair], x: Tensor, *, own: bool) -> Tensor:
    """Return relu(x), the maximum of x and a cleared buffer.

    Buffers are kept for each dtype, thread and stream. A call clears its own first, or
    else that of the call after it.
    """
    stream = torch.cuda.current_stream(x.device).cuda_stream if x.is_cuda else 0
    key = (x.dtype, x.device, threading.get_ident(), stream)
    pair = kept.get(key)
    if pair is None or pair[0].numel() < x.numel():
        pair = x.new_zeros(x.numel()), x.new_zeros(x.numel())
    mine, other = pair
    (mine if own else other).zero_()
    kept[key] = other, mine
    y = mine[: x.numel()].view(x.shape)
    return torch.maximum(y, x, out=y).clone()


@witness(SQUARE, backends=("cuda",))
@kernel(ops.relu)
def relu_clears_its_buffer(x: Tensor) -> Tensor:
    """Conforming."""
    return in_turn(_clears_own, x, own=True)


@witness(
    SQUARE, breaks="K-REF-01", most=(1, 1), backends=("cuda",),
    minimal="one negative element",
)  # fmt: skip
@kernel(ops.relu)
def relu_clears_the_next_buffer(x: Tensor) -> Tensor:
    """Violates K-REF-01: replayed from a graph, it clears what it never takes."""
    return in_turn(_clears_next, x, own=False)
