"""amax(x, dim): the greatest element along a dimension."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import EVERY_DTYPE, MOVES, Operator, Structure, Tolerance


def reference(x: Any, *, dim: int) -> Any:
    """torch.amax(x, dim): the greatest element; NaN if the row holds one."""
    import torch

    return torch.amax(x, dim)


def accept(problem: "nm.Problem") -> "nm.Accepted":
    """Return the exact acceptance: a maximum only selects."""
    x = problem.tensors["x"]
    return {"y": nm.around(problem, reference(x, dim=problem.axis()), 0.0)}


amax = Operator(
    "amax",
    inputs={"x": ks.tensors("*"), "dim": ks.dim(of="x")},
    oracle=reference,
    homogeneous={"x": 1},
    error_model=accept,
    defaults=MOVES,
    dtypes=EVERY_DTYPE,
    empty_reduction=False,
    tolerance=Tolerance(
        Structure.EXACT,
        "y == max over dim",
        "a maximum selects one of its operands and rounds nothing",
    ),
    special_values="NaN if the row holds a NaN; else the greatest element, "
    "-Inf if all are -Inf; +0 and -0 are equal",
)
