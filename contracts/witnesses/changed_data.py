"""Kernels that are right on data as they are and show their fault on changed ones."""

import torch
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.rows import as_rows, reduced_shape

CHUNK = 16
# The greatest number of float16.
HALF = 65504.0
# A sum so many times the chunk after it is far from it.
FAR = 2.0**16


@kernel(ops.matmul, dtypes="float32", determinism="bitwise")
def matmul_float64(a: Tensor, b: Tensor) -> Tensor:
    """Conforming."""
    return (a.double() @ b.double()).float()


@kernel(ops.matmul, dtypes="float32", determinism="bitwise")
def matmul_within_half_range(a: Tensor, b: Tensor) -> Tensor:
    """Violates C-PRC-04: sums otherwise within float16's range than beyond it.

    Both sums are admitted; which one it is depends on a constant.
    """
    if max(_greatest(a), _greatest(b)) <= HALF:
        return (a.double() @ b.double()).float()
    return a @ b


def _greatest(x: Tensor) -> float:
    return float(x.abs().max()) if x.numel() else 0.0


def _chunked_sum(x: Tensor, dim: int, *, restarts: bool) -> Tensor:
    rows = as_rows(x, dim).float()
    total = torch.zeros(rows.shape[0], device=x.device)
    for chunk in torch.split(rows, CHUNK, 1):
        part = chunk.sum(1)
        far = total.abs() > FAR * part.abs()
        total = torch.where(far & restarts, part, total + part)
    return total.to(x.dtype).reshape(reduced_shape(x, dim))


@kernel(ops.sum, shape_class="N <= 64")
def sum_in_chunks(x: Tensor, dim: int) -> Tensor:
    """Conforming."""
    return _chunked_sum(x, dim, restarts=False)


@kernel(ops.sum, shape_class="N <= 64")
def sum_restarts(x: Tensor, dim: int) -> Tensor:
    """Violates C-ORD-01: a sum far beyond the next chunk is taken for garbage."""
    return _chunked_sum(x, dim, restarts=True)
