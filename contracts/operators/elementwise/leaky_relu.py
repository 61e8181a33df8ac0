"""leaky_relu(x, negative_slope): x where x > 0, else x times a slope."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded


def reference(x: Any, *, negative_slope: float) -> Any:
    """torch.nn.functional.leaky_relu(x, negative_slope)."""
    import torch

    return torch.nn.functional.leaky_relu(x, negative_slope)


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return x, or x s with the slope and the product rounded once each.

    A product in the output's own format is rounded by the store alone.
    """
    arithmetic = nm.Arithmetic.declared(problem)
    x = problem.tensors["x"]
    slope = problem.number("negative_slope")
    seen = arithmetic.read(x)
    made = arithmetic.last(seen * arithmetic.constant(slope, x))
    made = seen.where(x > 0, made)
    y = reference(x, negative_slope=slope)
    return arithmetic.accepted(problem, y, made)


leaky_relu = Operator(
    "leaky_relu",
    inputs={
        "x": ks.tensors("*"),
        "negative_slope": ks.scalar(0.01, domain=(0.25, 0.2, 0.5)),
    },
    oracle=reference,
    homogeneous={"x": 1},
    error_model=accept,
    ranks=range(5),
    **bounded("leaky_relu", Structure.INTERVAL),
)
