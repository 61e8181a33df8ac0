"""topk(x, k, dim, largest): the k greatest or least elements, and their indices."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import EVERY_DTYPE, Operator, Structure
from kfuzz.contracts.prose import bounded
from kfuzz.core.declaration import Declaration


def reference(x: Any, *, k: int, dim: int, largest: bool) -> Any:
    """torch.topk(x, k, dim, largest, sorted=True), of equal elements the first ones."""
    values, indices = nm.ordering.order(x, dim, descending=largest)
    return values.narrow(dim, 0, k), indices.narrow(dim, 0, k)


def accept(problem: "nm.Problem") -> "nm.Accepted":
    """Return exact values, and indices among equals; see `numerics.ordering`."""
    largest = bool(problem.scalars["largest"])
    return nm.ordering.accepted(problem, descending=largest, count=problem.axis("k"))


def related(problem: "nm.Problem", outputs: "nm.Tensors") -> "nm.Tensors":
    """Each index names an element equal to the value in order there, none twice."""
    largest = bool(problem.scalars["largest"])
    return nm.ordering.admitted(problem, outputs, descending=largest)


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
    dtypes=EVERY_DTYPE,
    **bounded("topk", Structure.EXACT),
)
