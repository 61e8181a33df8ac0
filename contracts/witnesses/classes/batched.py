"""Sums that declare batch invariance: rows keep their bits in every batch."""

from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.sum import launch
from kfuzz.contracts.witnesses.witness import LONG_ROWS, witness

# Fewer rows leave a machine idle, where each is taken by one program.
FEW_ROWS = 2


@witness(LONG_ROWS)
@kernel(ops.sum, batch_invariant=True)
def triton_sum_batch_invariant(x: Tensor, dim: int) -> Tensor:
    """Conforming."""
    return launch(x, dim)


@witness(
    LONG_ROWS, breaks="C-ORD-02", most=(24, 6),
    minimal="a few rows of a few, one sum rounding otherwise in a scan",
)  # fmt: skip
@kernel(ops.sum, batch_invariant=True, dtypes="float32")
def sum_split_by_rows(x: Tensor, dim: int) -> Tensor:
    """Violates C-ORD-02: a row alone is summed by torch's scan."""
    n = x.shape[dim]
    if x.numel() >= FEW_ROWS * n:
        return launch(x, dim)
    return x.cumsum(dim).select(dim, n - 1)
