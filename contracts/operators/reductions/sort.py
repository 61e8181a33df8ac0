"""sort(x, dim, descending): elements in order along a dimension, and their indices."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import EVERY_DTYPE, Operator, Structure
from kfuzz.contracts.prose import bounded
from kfuzz.core.declaration import Declaration


def reference(x: Any, *, dim: int, descending: bool) -> Any:
    """torch.sort(x, dim, descending), equal elements in the order they had."""
    return nm.ordering.order(x, dim, descending=descending)


def accept(problem: "nm.Problem") -> "nm.Accepted":
    """Return exact values, and indices among equals; see `numerics.ordering`."""
    return nm.ordering.accepted(problem, descending=bool(problem.scalars["descending"]))


def related(problem: "nm.Problem", outputs: "nm.Tensors") -> "nm.Tensors":
    """Each index names an element equal to the value in order there, none twice."""
    descending = bool(problem.scalars["descending"])
    return nm.ordering.admitted(problem, outputs, descending=descending)


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
    dtypes=EVERY_DTYPE,
    **bounded("sort", Structure.EXACT),
)
