"""amin(x, dim): the least element along a dimension."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import EVERY_DTYPE, MOVES, Operator, Structure, Tolerance


def reference(x: Any, *, dim: int) -> Any:
    """torch.amin(x, dim): the least element; NaN if the row holds one."""
    import torch

    return torch.amin(x, dim)


def accept(problem: "nm.Problem") -> "nm.Accepted":
    """Return the exact acceptance: a minimum only selects."""
    x = problem.tensors["x"]
    return {"y": nm.around(problem, reference(x, dim=problem.axis()), 0.0)}


amin = Operator(
    "amin",
    inputs={"x": ks.tensors("*"), "dim": ks.dim(of="x")},
    oracle=reference,
    homogeneous={"x": 1},
    error_model=accept,
    defaults=MOVES,
    dtypes=EVERY_DTYPE,
    empty_reduction=False,
    tolerance=Tolerance(
        Structure.EXACT,
        "y == min over dim",
        "a minimum selects one of its operands and rounds nothing",
    ),
    special_values="NaN if the row holds a NaN; else the least element, "
    "+Inf if all are +Inf; +0 and -0 are equal",
)
