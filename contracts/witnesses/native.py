"""ReLU on the CPU that reads outside its argument and uses nothing of it.

Native code as the checks see it: no value shows these faults, a guard page does.
"""

import ctypes

import torch
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.witness import SQUARE, witness


def read(x: Tensor, *, before: int = 0, after: int = 0) -> None:
    """Read the elements of a contiguous tensor, and some on either side of them."""
    if x.numel() and x.is_contiguous():
        size = x.element_size()
        start = x.data_ptr() - before * size
        ctypes.string_at(start, (before + x.numel() + after) * size)


@witness(
    SQUARE, breaks="K-MEM-01", most=(4, 0), backends=("cpu",),
    minimal="a multiple of 16 bytes, so that a page can follow: four elements",
)  # fmt: skip
@kernel(ops.relu)
def relu_native_over_read(x: Tensor) -> Tensor:
    """Violates K-MEM-01: loads one element past the end."""
    read(x, after=1)
    return torch.relu(x)
