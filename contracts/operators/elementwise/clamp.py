"""clamp(x, min, max): x held between two numbers, elementwise."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import MOVES, Operator, Structure
from kfuzz.contracts.prose import bounded


def reference(x: Any, *, min: float, max: float) -> Any:
    """torch.clamp(x, min, max): NaN stays NaN."""
    import torch

    return torch.clamp(x, min, max)


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return x between bounds that may be rounded to the arithmetic's format."""
    import torch

    x = problem.tensors["x"]
    least, most = problem.number("min"), problem.number("max")
    exact = reference(x, min=least, max=most)
    if problem.format.name == "float64":
        return nm.around(problem, exact, 0.0)
    arithmetic = nm.Arithmetic.declared(problem)
    lower, upper = arithmetic.constant(least, x), arithmetic.constant(most, x)
    low = torch.minimum(torch.maximum(x, lower.low), upper.low)
    high = torch.minimum(torch.maximum(x, lower.high), upper.high)
    return nm.between(problem, exact, low, high)


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
    defaults=MOVES,
    dtypes=("float64", "float32", "float16", "bfloat16"),
    **bounded("clamp", Structure.EXACT),
)
