"""Families of cases whose rates are measured, by backend."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kfuzz.core.budget import SizeBudget
from tests.benchmarks.peers.drawn import Limits

KERNELS: Final = Path(__file__).resolve().parents[1] / "timed_kernels.py"


@dataclass(frozen=True)
class Family:
    """Cases of one kernel within bounds.

    Attributes:
        name: for the table.
        kernel: name in `timed_kernels.py`.
        budget: limits on the sizes that kfuzz draws.
        limits: those of the plain loops.
    """

    name: str
    kernel: str
    budget: SizeBudget
    limits: Limits


_ROWS: Final = SizeBudget(elements=64 * 512, rows=64)
_ROW_LIMITS: Final = Limits(longest=512, leading=8)
# Rows of products are tiles of 16 x 16.
_SQUARE: Final = SizeBudget(elements=512 * 512, rows=1024)
_SQUARE_LIMITS: Final = Limits(side=512, least=64)

FAMILIES: Final[Mapping[str, tuple[Family, ...]]] = {
    "cuda": (
        Family("softmax to 64 x 512", "triton_softmax_rows", _ROWS, _ROW_LIMITS),
        Family("layer_norm to 64 x 512", "triton_layer_norm_rows", _ROWS, _ROW_LIMITS),
        Family("matmul 64 to 512", "triton_matmul_64_to_512", _SQUARE, _SQUARE_LIMITS),
    ),
    "cpu": (
        Family("softmax to 64 x 512", "torch_softmax_timed", _ROWS, _ROW_LIMITS),
        Family("layer_norm to 64 x 512", "torch_layer_norm_timed", _ROWS, _ROW_LIMITS),
        Family("matmul 64 to 512", "torch_matmul_timed", _SQUARE, _SQUARE_LIMITS),
    ),
}
