"""copy(x): the same elements in other memory."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import EVERY_DTYPE, MOVES, Operator, Structure
from kfuzz.contracts.prose import bounded


def reference(x: Any) -> Any:
    """x.clone()."""
    return x.clone()


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return the exact acceptance, signs of zeros included."""
    return nm.moved(problem, reference(problem.tensors["x"]))


copy = Operator(
    "copy",
    inputs={"x": ks.tensors("*")},
    oracle=reference,
    homogeneous={"x": 1},
    error_model=accept,
    ranks=range(5),
    defaults=MOVES,
    dtypes=EVERY_DTYPE,
    **bounded("copy", Structure.EXACT),
)
