"""topk(x, k, dim, largest): the k greatest or least elements, and their indices."""

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


def reference(x: Any, *, k: int, dim: int, largest: bool) -> Any:
    """torch.topk(x, k, dim, largest, sorted=True), of equal elements the first ones."""
    from kfuzz.numerics.models.ordering import order

    values, indices = order(x, dim, descending=largest)
    return values.narrow(dim, 0, k), indices.narrow(dim, 0, k)


def accept(problem: "Problem") -> "dict[str, Acceptance]":
    """Return exact values, and indices among equals; see `numerics.ordering`."""
    from kfuzz.numerics.models.ordering import accepted

    largest = bool(problem.scalars["largest"])
    return accepted(problem, descending=largest, count=problem.axis("k"))


def related(
    problem: "Problem", outputs: "Mapping[str, Tensor]"
) -> "Mapping[str, Tensor]":
    """Each index names an element equal to the value in order there, none twice."""
    from kfuzz.numerics.models.ordering import admitted

    return admitted(problem, outputs, descending=bool(problem.scalars["largest"]))


topk = Operator(
    "topk",
    inputs={
        "x": ks.tensors("*"),
        "k": ks.scalar(1, (0, 2, 3, 4, 5, 8, 16, 17, 33, 64)),
        "dim": ks.dim(of="x"),
        "largest": ks.scalar(True, (False,)),
    },
    oracle=reference,
    homogeneous={"x": 1},
    integers=("indices",),
    error_model=accept,
    relation=related,
    outputs=("values", "indices"),
    shape_class="k <= N",
    defaults=Declaration(subnormals="preserve", ties="any"),
    dtypes=("float64", "float32", "float16", "bfloat16", *FLOAT8),
    tolerance=Tolerance(
        Structure.EXACT,
        "values: the k greatest (least) elements in falling (rising) order; indices, "
        'int64: x[indices] == values, none twice; with ties="first" the first of '
        "equal elements, rising",
        "a selection moves elements and rounds nothing; which of equal elements is "
        "taken is free unless declared",
    ),
    special_values="NaN is the greatest: first of the greatest, last of the least; +0 "
    "and -0 are equal, and either may stand for the other",
)
