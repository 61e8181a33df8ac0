"""add(a, b): the sum, elementwise."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded


def reference(a: Any, b: Any) -> Any:
    """The sum a + b."""
    return a + b


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return the correctly rounded sum, of operands that may be flushed.

    The float64 sum, rounded once more, is the correctly rounded one (53 >= 2 p + 2,
    Figueroa 1995); directed rounding needs its own error on top.
    """
    arithmetic = nm.Arithmetic.declared(problem)
    a, b = problem.tensors["a"], problem.tensors["b"]
    seen_a, seen_b = arithmetic.read(a), arithmetic.read(b)
    total = seen_a + seen_b
    if problem.declaration.store != "rne":
        total = total.widened(2.0**-53)
    made = arithmetic.single(total)
    return arithmetic.accepted(problem, reference(a, b), made)


add = Operator(
    "add",
    inputs={"a": ks.tensors("*"), "b": ks.tensors("*")},
    oracle=reference,
    homogeneous={"a b": 1},
    error_model=accept,
    ranks=range(5),
    **bounded("add", Structure.EXACT),
)
