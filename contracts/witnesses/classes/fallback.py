"""A softmax that leaves what its launch does not fit to torch."""

import torch
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.softmax import launch
from kfuzz.contracts.witnesses.witness import LONG_ROWS, witness


@witness(
    LONG_ROWS, breaks="K-OWN-01", most=(3, 0),
    minimal="one row, width 3, any values: the first width without a tile",
)  # fmt: skip
@kernel(ops.softmax, own_kernels_only=True)
def softmax_falls_back(x: Tensor, dim: int = -1) -> Tensor:
    """Violates K-OWN-01: torch computes rows whose width is no power of two."""
    try:
        if x.shape[dim] & (x.shape[dim] - 1):
            raise ValueError("no tile of this width")
        return launch(x, dim)
    except ValueError:
        return torch.softmax(x, dim)
