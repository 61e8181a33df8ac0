"""copy(x): the same elements in other memory."""

from typing import TYPE_CHECKING, Any

from kfuzz import strategies as ks
from kfuzz.contracts.language import Structure, Tolerance
from kfuzz.contracts.operator import Operator
from kfuzz.core.declaration import Declaration
from kfuzz.core.dtypes import FLOAT8

if TYPE_CHECKING:
    from kfuzz.numerics.acceptance import Acceptance, Problem


def reference(x: Any) -> Any:
    """x.clone()."""
    return x.clone()


def accept(problem: "Problem") -> "dict[str, Acceptance]":
    """Return the exact acceptance, signs of zeros included."""
    from kfuzz.numerics.acceptance import moved

    return {"y": moved(problem, reference(problem.tensors["x"]))}


copy = Operator(
    "copy",
    inputs={"x": ks.tensors("*")},
    oracle=reference,
    homogeneous={"x": 1},
    error_model=accept,
    ranks=range(5),
    defaults=Declaration(subnormals="preserve"),
    dtypes=("float64", "float32", "float16", "bfloat16", *FLOAT8),
    tolerance=Tolerance(
        Structure.EXACT, "y == x, and -0 stays -0", "a copy only moves bits"
    ),
    special_values="NaN stays NaN (of any payload), infinities and both zeros stay",
)
