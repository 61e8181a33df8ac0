"""mul(a, b): the product, elementwise."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded


def reference(a: Any, b: Any) -> Any:
    """The product a * b."""
    return a * b


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return the correctly rounded product, of operands that may be flushed.

    Products of float32 numbers are exact in float64.
    """
    arithmetic = nm.Arithmetic.declared(problem)
    a, b = problem.tensors["a"], problem.tensors["b"]
    seen_a, seen_b = arithmetic.read(a), arithmetic.read(b)
    made = arithmetic.single(seen_a * seen_b)
    classes = nm.product_classes(a, seen_a, b, seen_b)
    return arithmetic.accepted(problem, reference(a, b), made, classes=classes)


mul = Operator(
    "mul",
    inputs={"a": ks.tensors("*"), "b": ks.tensors("*")},
    oracle=reference,
    homogeneous={"a": 1, "b": 1},
    error_model=accept,
    ranks=range(5),
    **bounded("mul", Structure.EXACT),
)
