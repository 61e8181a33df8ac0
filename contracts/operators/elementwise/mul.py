"""mul(a, b): the product, elementwise."""

from typing import TYPE_CHECKING, Any

from kfuzz import strategies as ks
from kfuzz.contracts.language import Structure, Tolerance
from kfuzz.contracts.operator import Operator

if TYPE_CHECKING:
    from kfuzz.numerics.acceptance import Acceptance, Problem


def reference(a: Any, b: Any) -> Any:
    """The product a * b."""
    return a * b


def accept(problem: "Problem") -> "dict[str, Acceptance]":
    """Return the correctly rounded product, of operands that may be flushed.

    Products of float32 numbers are exact in float64.
    """
    from kfuzz.numerics.intervals import Arithmetic, product_classes

    arithmetic = Arithmetic.declared(problem)
    a, b = problem.tensors["a"], problem.tensors["b"]
    seen_a, seen_b = arithmetic.read(a), arithmetic.read(b)
    made = arithmetic.single(seen_a * seen_b)
    classes = product_classes(a, seen_a, b, seen_b)
    y = arithmetic.accepted(problem, reference(a, b), made, classes=classes)
    return {"y": y}


mul = Operator(
    "mul",
    inputs={"a": ks.tensors("*"), "b": ks.tensors("*")},
    oracle=reference,
    homogeneous={"a": 1, "b": 1},
    error_model=accept,
    ranks=range(5),
    tolerance=Tolerance(
        Structure.EXACT,
        "y == RNE(ab)",
        "one operation; a float32 product of 16-bit numbers is exact, or so small that "
        "it becomes 0; subnormal operands and results may be 0 unless preserved",
    ),
    special_values="NaN stays NaN, 0 * Inf is NaN, and so is a subnormal that may be "
    "flushed times Inf; overflow to the infinity",
)
