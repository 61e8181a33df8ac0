"""What kernels keep between their calls: memory, results, buffers in turn."""

import threading

import torch
import triton
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses import relu
from kfuzz.contracts.witnesses.amax import launch as amax
from kfuzz.contracts.witnesses.classes.reach import amax_chunk_kernel
from kfuzz.contracts.witnesses.rows import as_rows, empty, reduced_shape
from kfuzz.contracts.witnesses.witness import LONG_ROWS, SQUARE, witness

# Memory that wrappers keep between calls, or hand out without having written it.

# Elements of a row that make one partial maximum, and the fewest partials.
CHUNK, PARTIALS = 256, 4

_buffers: dict[object, Tensor] = {}


@witness(SQUARE, breaks="K-MEM-04")
@kernel(ops.relu)
def relu_static_buffer(x: Tensor) -> Tensor:
    """Violates K-MEM-04: calls of one shape return one buffer."""
    key = (x.shape, x.dtype, x.device)
    if key not in _buffers:
        _buffers[key] = empty(x)
    return relu.launch(x.contiguous(), _buffers[key])


@witness(LONG_ROWS, breaks="K-MEM-02")
@kernel(ops.amax)
def amax_stale_partials(x: Tensor, dim: int) -> Tensor:
    """Violates K-MEM-02: takes the maximum of partials that no chunk has made."""
    rows = as_rows(x, dim)
    m, n = rows.shape
    chunks = triton.cdiv(n, CHUNK)
    partials = rows.new_empty(m, max(chunks, PARTIALS))
    if rows.numel():
        amax_chunk_kernel[(m, chunks)](
            rows, partials, *rows.stride(), n, partials.shape[1], 1, BLOCK=CHUNK
        )
    return amax(partials, -1).reshape(reduced_shape(x, dim))


# ReLU on a GPU by way of two buffers that its calls take in turn.

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


@witness(SQUARE, breaks="K-REF-01", backends=("cuda",))
@kernel(ops.relu)
def relu_clears_the_next_buffer(x: Tensor) -> Tensor:
    """Violates K-REF-01: replayed from a graph, it clears what it never takes."""
    return in_turn(_clears_next, x, own=False)
