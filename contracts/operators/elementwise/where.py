"""where(mask, x, y): x where the mask is true, else y, elementwise."""

from typing import TYPE_CHECKING, Any

from kfuzz import strategies as ks
from kfuzz.contracts.language import Structure, Tolerance
from kfuzz.contracts.operator import Operator
from kfuzz.core.declaration import Declaration
from kfuzz.core.dtypes import FLOAT8

if TYPE_CHECKING:
    from kfuzz.numerics.acceptance import Acceptance, Problem


def reference(mask: Any, x: Any, y: Any) -> Any:
    """torch.where(mask, x, y)."""
    import torch

    return torch.where(mask, x, y)


def accept(problem: "Problem") -> "dict[str, Acceptance]":
    """Return the exact acceptance, signs of zeros included.

    What is not selected has no part in it: neither its NaN nor its infinity.
    """
    from kfuzz.numerics.acceptance import moved

    return {"y": moved(problem, reference(**problem.tensors))}


where = Operator(
    "where",
    inputs={"mask": ks.masks("*"), "x": ks.tensors("*"), "y": ks.tensors("*")},
    oracle=reference,
    homogeneous={"x y": 1},
    error_model=accept,
    ranks=range(5),
    defaults=Declaration(subnormals="preserve"),
    dtypes=("float64", "float32", "float16", "bfloat16", *FLOAT8),
    tolerance=Tolerance(
        Structure.EXACT,
        "the bits of x or of y, and -0 stays -0",
        "a selection only moves bits",
    ),
    special_values="NaN (of any payload), infinities and both zeros as selected; those "
    "not selected do not show",
)
