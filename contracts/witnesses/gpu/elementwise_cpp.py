"""ReLU in CUDA C++: what hand-written loads and launches get wrong."""

import math
from pathlib import Path

from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.gpu.launching import Program
from kfuzz.contracts.witnesses.rows import empty

THREADS = 256
# Elements of a vector load.
LANES = 4

PROGRAM = Program(Path(__file__).with_suffix(".cu").read_text())


def elements(x: Tensor, *, after: int = 0) -> Tensor:
    """Return relu of a float32 tensor; elements loaded `after` its last are a fault."""
    x, y = x.contiguous(), empty(x)
    if n := x.numel():
        blocks = math.ceil((n + after) / THREADS)
        PROGRAM.launch("relu_elements", (blocks,), (THREADS,), (x, y, n, after))
    return y


@kernel(ops.relu, dtypes="float32")
def cuda_relu(x: Tensor) -> Tensor:
    """Conforming."""
    return elements(x)


@kernel(ops.relu, dtypes="float32")
def cuda_relu_reads_one_past(x: Tensor) -> Tensor:
    """Violates K-MEM-01: loads the element behind the last, and does not use it."""
    return elements(x, after=1)


def by_vectors(x: Tensor) -> Tensor:
    """Return relu of a contiguous tensor, loaded in vectors."""
    y = empty(x)
    if n := x.numel():
        blocks = math.ceil(max(n // LANES, LANES) / THREADS)
        PROGRAM.launch("relu_vectors", (blocks,), (THREADS,), (x, y, n))
    return y


@kernel(ops.relu, dtypes="float32")
def cuda_relu_vectors(x: Tensor) -> Tensor:
    """Conforming: loads vectors where the input is aligned to them."""
    x = x.contiguous()
    aligned = x.data_ptr() % (LANES * x.element_size()) == 0
    return by_vectors(x) if aligned else elements(x)


@kernel(ops.relu, dtypes="float32")
def cuda_relu_vectors_unaligned(x: Tensor) -> Tensor:
    """Violates K-LIV-01: takes every input for aligned to 16 bytes."""
    return by_vectors(x.contiguous())


def by_rows(x: Tensor, threads: int | None = None) -> Tensor:
    """Return relu(x) by a block for each row; nobody asks whether it was launched.

    Args:
        x: float32.
        threads: of a block; None for one for each column.
    """
    x, y = x.contiguous(), empty(x)
    if x.numel():
        n = x.shape[-1] if x.dim() else 1
        grid, block = (x.numel() // n,), (threads or n,)
        PROGRAM.launch("relu_rows", grid, block, (x, y, n), checked=False)
    return y


@kernel(ops.relu, dtypes="float32", shape_class="M <= 2147483647")
def cuda_relu_rows(x: Tensor) -> Tensor:
    """Conforming."""
    return by_rows(x, THREADS)


@kernel(ops.relu, dtypes="float32")
def cuda_relu_thread_per_column(x: Tensor) -> Tensor:
    """Violates K-LIV-01: blocks of more than 1,024 threads are not launched."""
    return by_rows(x)
