"""amax(x, dim): the greatest element along a dimension."""

from typing import TYPE_CHECKING, Any

from kfuzz import strategies as ks
from kfuzz.contracts.language import Structure, Tolerance
from kfuzz.contracts.operator import Operator
from kfuzz.core.declaration import Declaration
from kfuzz.core.dtypes import FLOAT8

if TYPE_CHECKING:
    from kfuzz.numerics.acceptance import Acceptance, Problem


def reference(x: Any, *, dim: int) -> Any:
    """torch.amax(x, dim): the greatest element; NaN if the row holds one."""
    import torch

    return torch.amax(x, dim)


def accept(problem: "Problem") -> "dict[str, Acceptance]":
    """Return the exact acceptance: a maximum only selects."""
    from kfuzz.numerics.acceptance import around

    x = problem.tensors["x"]
    return {"y": around(problem, reference(x, dim=problem.axis()), 0.0)}


amax = Operator(
    "amax",
    inputs={"x": ks.tensors("*"), "dim": ks.dim(of="x")},
    oracle=reference,
    homogeneous={"x": 1},
    error_model=accept,
    defaults=Declaration(subnormals="preserve"),
    dtypes=("float64", "float32", "float16", "bfloat16", *FLOAT8),
    empty_reduction=False,
    tolerance=Tolerance(
        Structure.EXACT,
        "y == max over dim",
        "a maximum selects one of its operands and rounds nothing",
    ),
    special_values="NaN if the row holds a NaN; else the greatest element, "
    "-Inf if all are -Inf; +0 and -0 are equal",
)
