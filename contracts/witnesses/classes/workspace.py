"""ReLU on the CPU by way of memory that it keeps between its calls."""

import threading

import torch
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.witness import SQUARE, witness

_shared: dict[object, Tensor] = {}
_own = threading.local()


def by_way_of(kept: dict[object, Tensor], x: Tensor) -> Tensor:
    """Return relu(x), copied out of a buffer that is made once for each shape."""
    key = (x.shape, x.dtype, x.device)
    if key not in kept:
        kept[key] = torch.empty_like(x)
    torch.clamp(x, min=0, out=kept[key])
    return kept[key].clone()


@witness(SQUARE)
@kernel(ops.relu)
def torch_relu_own_workspace(x: Tensor) -> Tensor:
    """Conforming: each thread has its buffers."""
    if not hasattr(_own, "kept"):
        _own.kept = {}
    return by_way_of(_own.kept, x)


@witness(
    SQUARE, breaks="C-ORD-03", most=(1, 1), backends=("cpu",),
    minimal="one element, any value but 0",
)  # fmt: skip
@kernel(ops.relu)
def relu_shared_workspace(x: Tensor) -> Tensor:
    """Violates C-ORD-03: calls at the same time write to one buffer."""
    return by_way_of(_shared, x)
