"""Sums in CUDA C++: parts that threads pass on through shared memory."""

from pathlib import Path

import torch
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.gpu.launching import Program
from kfuzz.contracts.witnesses.rows import as_rows, reduced_shape

WARP = 32
THREADS = 256
# Columns that one warp takes where rows are short.
SHORT = 256

PROGRAM = Program(Path(__file__).with_suffix(".cu").read_text())


def through_parts(
    x: Tensor, dim: int, *, clear: bool = False, idle: bool = True, wait: bool = True,
    threads: int | None = None,
) -> Tensor:  # fmt: skip
    """Return sum(x, dim), a block for each row.

    Args:
        x: float32.
        dim: summed over.
        clear: whether shared memory is set to 0 first.
        idle: whether warps without a column leave a part too.
        wait: whether the last warp waits for the parts of the others.
        threads: of a block; None for one warp where rows are short.
    """
    rows = as_rows(x, dim).contiguous()
    m, n = rows.shape
    y = torch.empty(m, dtype=x.dtype, device=x.device)
    if m:
        block = threads or (WARP if n <= SHORT else THREADS)
        arguments = (rows, y, n, int(clear), int(idle), int(wait))
        PROGRAM.launch("sum_rows", (m,), (block,), arguments)
    return y.reshape(reduced_shape(x, dim))


@kernel(ops.sum, dtypes="float32", determinism="bitwise")
def cuda_sum(x: Tensor, dim: int) -> Tensor:
    """Conforming."""
    return through_parts(x, dim, threads=THREADS)


@kernel(ops.sum, dtypes="float32")
def cuda_sum_uninitialised_shared(x: Tensor, dim: int) -> Tensor:
    """Violates K-MEM-02: parts of warps without a column are whatever lies there."""
    return through_parts(x, dim, idle=False, threads=THREADS)


@kernel(ops.sum, dtypes="float32")
def cuda_sum_missing_barrier(x: Tensor, dim: int) -> Tensor:
    """Violates C-ORD-02: several warps' parts are added without waiting for them."""
    return through_parts(x, dim, clear=True, wait=False)
