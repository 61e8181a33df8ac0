"""clamp(x, min, max): x held between two numbers, elementwise."""

from typing import TYPE_CHECKING, Any

from kfuzz import strategies as ks
from kfuzz.contracts.language import Structure, Tolerance
from kfuzz.contracts.operator import Operator
from kfuzz.core.declaration import Declaration

if TYPE_CHECKING:
    from kfuzz.numerics.acceptance import Acceptance, Problem


def reference(x: Any, *, min: float, max: float) -> Any:
    """torch.clamp(x, min, max): NaN stays NaN."""
    import torch

    return torch.clamp(x, min, max)


def accept(problem: "Problem") -> "dict[str, Acceptance]":
    """Return x between bounds that may be rounded to the arithmetic's format."""
    import torch

    from kfuzz.numerics.acceptance import around, between
    from kfuzz.numerics.intervals import Arithmetic

    x = problem.tensors["x"]
    least, most = problem.number("min"), problem.number("max")
    exact = reference(x, min=least, max=most)
    if problem.format.name == "float64":
        return {"y": around(problem, exact, 0.0)}
    arithmetic = Arithmetic.declared(problem)
    lower, upper = arithmetic.constant(least, x), arithmetic.constant(most, x)
    low = torch.minimum(torch.maximum(x, lower.low), upper.low)
    high = torch.minimum(torch.maximum(x, lower.high), upper.high)
    return {"y": between(problem, exact, low, high)}


clamp = Operator(
    "clamp",
    inputs={
        "x": ks.tensors("*"),
        "min": ks.scalar(-1.0, domain=(0.0, -0.1, -65504.0)),
        "max": ks.scalar(1.0, domain=(6.0, 0.1, 65504.0)),
    },
    oracle=reference,
    error_model=accept,
    ranks=range(5),
    defaults=Declaration(subnormals="preserve"),
    dtypes=("float64", "float32", "float16", "bfloat16"),
    tolerance=Tolerance(
        Structure.EXACT,
        "y == min(max(x, lo), hi), lo and hi rounded to float32 or not",
        "clamping selects one of its operands and rounds nothing but its bounds",
    ),
    special_values="NaN stays NaN, infinities become the bounds; +0 and -0 are equal",
)
