"""softplus(x, beta, threshold): log(1 + exp(beta x)) / beta, x beyond a threshold."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded


def reference(x: Any, *, beta: float, threshold: float) -> Any:
    """torch.nn.functional.softplus: x where beta x > threshold."""
    import torch

    z = beta * x
    soft = torch.logaddexp(z, torch.zeros_like(z)) / beta
    return torch.where(z > threshold, x, soft)


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return log(1 + exp(z)) / beta for z = beta x, or x, or both at the threshold.

    The relative errors of exp and of log1p; besides, one absolute unit where
    1 + exp(z) is rounded, unless algorithm="log1p" is declared.
    """
    arithmetic = nm.Arithmetic.declared(problem)
    x = problem.tensors["x"]
    beta, threshold = problem.number("beta"), problem.number("threshold")
    seen = arithmetic.read(x)
    scale = arithmetic.constant(beta, x)
    z = seen * scale
    if beta != 1:
        z = arithmetic.rounded(z)
    accurate = problem.declaration.algorithm == "log1p"
    made = nm.log1p_exp(z, arithmetic, accurate=accurate).scaled(1 / beta)
    if beta != 1:
        made = arithmetic.rounded(made, 1 + nm.DIVISION_ERROR)
    linear = (z.high > threshold) | (x == float("inf"))
    curved = z.low <= threshold
    # Within rounding of the threshold either branch is right.
    made = made.union(seen).where(linear & curved, seen.where(linear, made))
    y = reference(x, beta=beta, threshold=threshold)
    # exp overflows before the threshold only in a narrow arithmetic.
    top = arithmetic.format.max_finite
    overflows = curved & (z.high.clamp(max=threshold).exp() > top)
    return arithmetic.accepted(problem, y, made, ambiguous=overflows)


softplus = Operator(
    "softplus",
    inputs={
        "x": ks.tensors("*"),
        "beta": ks.scalar(1.0, domain=(2.0, 0.5, 0.1)),
        "threshold": ks.scalar(20.0, domain=(5.0,)),
    },
    oracle=reference,
    error_model=accept,
    ranks=range(5),
    algorithms={"log1p": "accurate below 0: 1 + exp(beta x) is not rounded"},
    **bounded("softplus", Structure.INTERVAL),
)
