"""Memory that wrappers keep between calls, or hand out without having written it."""

import triton
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses import relu
from kfuzz.contracts.witnesses.amax import launch as amax
from kfuzz.contracts.witnesses.classes.reach import amax_chunk_kernel
from kfuzz.contracts.witnesses.rows import as_rows, reduced_shape
from kfuzz.contracts.witnesses.witness import LONG_ROWS, SQUARE, witness

# Elements of a row that make one partial maximum, and the fewest partials.
CHUNK, PARTIALS = 256, 4

_buffers: dict[object, Tensor] = {}
# The last input and its result; the input is kept, so that its address is taken.
_last: list[tuple[Tensor, Tensor]] = []


@witness(SQUARE, breaks="K-MEM-04", most=(1, 0), minimal="one element, any value")
@kernel(ops.relu)
def relu_static_buffer(x: Tensor) -> Tensor:
    """Violates K-MEM-04: calls of one shape return one buffer."""
    key = (x.shape, x.dtype, x.device)
    if key not in _buffers:
        _buffers[key] = relu.empty(x)
    return relu.launch(x.contiguous(), _buffers[key])


def _known(x: Tensor) -> tuple[object, ...]:
    return x.data_ptr(), x.shape, x.stride(), x.dtype


@witness(SQUARE, breaks="K-REF-01", most=(1, 1), minimal="one element, any value but 0")
@kernel(ops.relu)
def relu_memo_by_pointer(x: Tensor) -> Tensor:
    """Violates K-REF-01: takes the input at an address for what it was there."""
    if _last:
        seen, y = _last[0]
        if _known(seen) == _known(x):
            return y.clone()
    y = relu.launch(x.contiguous(), relu.empty(x))
    _last[:] = [(x, y)]
    return y.clone()


@witness(
    LONG_ROWS, breaks="K-MEM-02", most=(1, 0),
    minimal="one element, any value: one chunk of four is made",
)  # fmt: skip
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
