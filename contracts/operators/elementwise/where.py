"""where(mask, x, y): x where the mask is true, else y, elementwise."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import EVERY_DTYPE, MOVES, Operator, Structure
from kfuzz.contracts.prose import bounded


def reference(mask: Any, x: Any, y: Any) -> Any:
    """torch.where(mask, x, y)."""
    import torch

    return torch.where(mask, x, y)


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return the exact acceptance, signs of zeros included.

    What is not selected has no part in it: neither its NaN nor its infinity.
    """
    return nm.moved(problem, reference(**problem.tensors))


where = Operator(
    "where",
    inputs={"mask": ks.masks("*"), "x": ks.tensors("*"), "y": ks.tensors("*")},
    oracle=reference,
    homogeneous={"x y": 1},
    error_model=accept,
    ranks=range(5),
    defaults=MOVES,
    dtypes=EVERY_DTYPE,
    **bounded("where", Structure.EXACT),
)
