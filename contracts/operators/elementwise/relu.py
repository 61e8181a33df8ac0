"""relu(x): max(x, 0), elementwise."""

from typing import TYPE_CHECKING, Any

from kfuzz import strategies as ks
from kfuzz.contracts.language import Structure, Tolerance
from kfuzz.contracts.operator import Operator
from kfuzz.core.declaration import Declaration
from kfuzz.core.dtypes import FLOAT8

if TYPE_CHECKING:
    from kfuzz.numerics.acceptance import Acceptance, Problem


def reference(x: Any) -> Any:
    """torch.relu(x): x where x > 0, else 0; NaN stays NaN."""
    import torch

    return torch.relu(x)


def accept(problem: "Problem") -> "dict[str, Acceptance]":
    """Return the exact acceptance: relu only selects."""
    from kfuzz.numerics.acceptance import around

    return {"y": around(problem, reference(problem.tensors["x"]), 0.0)}


relu = Operator(
    "relu",
    inputs={"x": ks.tensors("*")},
    oracle=reference,
    homogeneous={"x": 1},
    error_model=accept,
    ranks=range(5),
    defaults=Declaration(subnormals="preserve"),
    dtypes=("float64", "float32", "float16", "bfloat16", *FLOAT8),
    tolerance=Tolerance(
        Structure.EXACT,
        "y == max(x, 0)",
        "relu selects one of its operands and rounds nothing; +0 and -0 are equal",
    ),
    special_values="NaN stays NaN, +Inf stays, -Inf becomes 0",
)
