"""gather(x, index): elements selected along the last dimension."""

from typing import TYPE_CHECKING, Any

from kfuzz import strategies as ks
from kfuzz.contracts.language import Structure, Tolerance
from kfuzz.contracts.operator import Operator
from kfuzz.core.declaration import Declaration
from kfuzz.core.dtypes import FLOAT8

if TYPE_CHECKING:
    from kfuzz.numerics.acceptance import Acceptance, Problem


def reference(x: Any, index: Any) -> Any:
    """y[i, j] = x[i, index[i, j]]."""
    import torch

    return torch.gather(x, -1, index)


def accept(problem: "Problem") -> "dict[str, Acceptance]":
    """Return the exact acceptance, signs of zeros included: elements are copied."""
    import torch

    from kfuzz.numerics.acceptance import moved
    from kfuzz.numerics.indices import resolved

    x = problem.tensors["x"]
    index, zero = resolved(problem, "index", x.shape[-1])
    y = reference(x, index)
    return {"y": moved(problem, torch.where(zero, torch.zeros_like(y), y))}


gather = Operator(
    "gather",
    inputs={"x": ks.tensors("N C"), "index": ks.indices("N K", below="C")},
    oracle=reference,
    homogeneous={"x": 1},
    error_model=accept,
    batch="N",
    defaults=Declaration(subnormals="preserve"),
    dtypes=("float64", "float32", "float16", "bfloat16", *FLOAT8),
    out_of_bounds=("raise", "clamp", "zero", "undefined"),
    tolerance=Tolerance(
        Structure.EXACT,
        "y[i, j] == x[i, index[i, j]]",
        "a copy rounds nothing and keeps the sign of a zero",
    ),
    special_values="every value is copied, NaN as any NaN, -0 as -0",
)
