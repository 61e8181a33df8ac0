"""Kernels that are right on data as they are and show their fault on changed ones."""

import torch
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.witness import LONG_ROWS, SQUARE, witness

FLOATS = ("float32", "float16", "bfloat16")
# The greatest number of float16.
HALF = 65504.0


@witness(SQUARE, SQUARE)
@kernel(ops.matmul, dtypes="float32", determinism="bitwise")
def matmul_float64(a: Tensor, b: Tensor) -> Tensor:
    """Conforming."""
    return (a.double() @ b.double()).float()


@witness(
    SQUARE, SQUARE, breaks="C-PRC-04", most=(6, 6),
    minimal="1 x 2 times 2 x 1, or 3: products whose sum rounds",
)  # fmt: skip
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


def _maximum(x: Tensor, dim: int, *, short: bool) -> Tensor:
    top = torch.amax(x, dim)
    ends = x.reshape(-1)[[0, -1]] if x.numel() else x.new_zeros(2)
    falls = ends[0] > ends[1]
    return top.bfloat16().to(x.dtype) if short and falls else top


@witness(LONG_ROWS)
@kernel(ops.amax, dtypes=FLOATS)
def amax_in_full(x: Tensor, dim: int) -> Tensor:
    """Conforming."""
    return _maximum(x, dim, short=False)


@witness(
    LONG_ROWS, breaks="C-ORD-01", most=(2, 2),
    minimal="two elements, the last one greater and of more than 8 bits",
)  # fmt: skip
@kernel(ops.amax, dtypes=FLOATS)
def amax_short_if_falling(x: Tensor, dim: int) -> Tensor:
    """Violates C-ORD-01: keeps 8 bits where the first element exceeds the last."""
    return _maximum(x, dim, short=True)
