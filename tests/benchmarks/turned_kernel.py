"""ReLU that does as its first element says: right, or one of several faults."""

import ctypes
import os

import torch
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.gpu.elementwise_cpp import (
    ASSERT,
    FAR,
    STALL,
    WELL,
    turned,
)

# Beside what is done on a device: an exception of Python's.
RAISE = 4
# No ordinary data hold it.
FIRST = 54320.0


@kernel(ops.relu, dtypes="float32")
def relu_turned(x: Tensor) -> Tensor:
    """Does what its first element asks for, if that is -FIRST less a turn."""
    asked = -FIRST - x.reshape(-1)[0].item() if x.numel() else WELL
    if asked == RAISE:
        raise RuntimeError("the first element asks for it")
    if x.is_cuda:
        told = int(asked) if asked in (STALL, ASSERT, FAR) else WELL
        return turned(x, torch.full((1,), told, dtype=torch.int32, device=x.device))
    while asked == STALL:
        pass
    if asked == ASSERT:
        os.abort()
    if asked == FAR:
        ctypes.string_at(0)
    return torch.relu(x)
