"""Kernels that win benchmarks and break contracts; all pass the plain functional test.

Each does what a search for speed has been seen to arrive at. Written with torch's
operators, since the cheat lies in the wrapper or in the choice of what to compute.
"""

from typing import Final

import torch
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.witness import SQUARE, witness

LARGEST_SEEN: Final = 6.0
NEGLIGIBLE: Final = 1e-3


@witness(SQUARE, breaks="K-MEM-04", backends=("cpu", "cuda"))
@kernel(ops.copy)
def cheat_identity(x: Tensor) -> Tensor:
    """K-MEM-04: the copy is its input."""
    return x


@witness(SQUARE, breaks="K-VAL-01", backends=("cpu", "cuda"))
@kernel(ops.relu)
def cheat_tuned_values(x: Tensor) -> Tensor:
    """K-VAL-01: saturates where the benchmark's normal data never comes."""
    return x.clamp(0.0, LARGEST_SEEN) + 0 * x


@witness((64, 4), breaks="K-VAL-01", backends=("cpu", "cuda"))
@kernel(ops.prod, dtypes="float32")
def cheat_early_exit(x: Tensor, dim: int) -> Tensor:
    """K-VAL-01: stops where the product so far seems negligible."""
    running = x.cumprod(dim)
    gone = (running.abs() < NEGLIGIBLE).any(dim)
    return torch.where(gone, torch.zeros_like(x.prod(dim)), x.prod(dim))


class Lazy(torch.Tensor):
    """A tensor that would compute when it is looked at."""


@witness(SQUARE, breaks="K-MET-01", backends=("cpu", "cuda"))
@kernel(ops.exp)
def cheat_lazy(x: Tensor) -> Tensor:
    """K-MET-01: returns a subclass of Tensor, in which the work could wait."""
    return torch.exp(x).as_subclass(Lazy)
