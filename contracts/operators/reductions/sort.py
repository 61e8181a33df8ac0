"""sort(x, dim, descending): elements in order along a dimension, and their indices."""

from typing import TYPE_CHECKING, Any

from kfuzz import strategies as ks
from kfuzz.contracts.language import Structure, Tolerance
from kfuzz.contracts.operator import Operator
from kfuzz.core.declaration import Declaration
from kfuzz.core.dtypes import FLOAT8

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from kfuzz.numerics.acceptance import Acceptance, Problem


def reference(x: Any, *, dim: int, descending: bool) -> Any:
    """torch.sort(x, dim, descending), equal elements in the order they had."""
    from kfuzz.numerics.models.ordering import order

    return order(x, dim, descending=descending)


def accept(problem: "Problem") -> "dict[str, Acceptance]":
    """Return exact values, and indices among equals; see `numerics.ordering`."""
    from kfuzz.numerics.models.ordering import accepted

    return accepted(problem, descending=bool(problem.scalars["descending"]))


def related(
    problem: "Problem", outputs: "Mapping[str, Tensor]"
) -> "Mapping[str, Tensor]":
    """Each index names an element equal to the value in order there, none twice."""
    from kfuzz.numerics.models.ordering import admitted

    descending = bool(problem.scalars["descending"])
    return admitted(problem, outputs, descending=descending)


sort = Operator(
    "sort",
    inputs={
        "x": ks.tensors("*"),
        "dim": ks.dim(of="x"),
        "descending": ks.scalar(False, (True,)),
    },
    oracle=reference,
    homogeneous={"x": 1},
    integers=("indices",),
    error_model=accept,
    relation=related,
    outputs=("values", "indices"),
    defaults=Declaration(subnormals="preserve", ties="any"),
    dtypes=("float64", "float32", "float16", "bfloat16", *FLOAT8),
    tolerance=Tolerance(
        Structure.EXACT,
        "values: the elements in order; indices, int64: x[indices] == values, none "
        'twice; with ties="first" those of equal elements rise',
        "ordering moves elements and rounds nothing; which of equal elements comes "
        "first is free unless declared",
    ),
    special_values="NaN is the greatest: last, or first if descending; +0 and -0 are "
    "equal, and either may stand for the other",
)
