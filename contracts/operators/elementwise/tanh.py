"""tanh(x): the hyperbolic tangent, elementwise."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded


def reference(x: Any) -> Any:
    """torch.tanh(x)."""
    import torch

    return torch.tanh(x)


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return tanh(x) (1 -/+ 5 u), exactly 1 where it saturates.

    With algorithm="exp_form": 2 sigmoid(2x) - 1 or (1 - e) / (1 + e), which cancel
    near 0.
    """
    by_exp = problem.declaration.algorithm == "exp_form"
    bounds = nm.tanh_by_exp if by_exp else nm.tanh
    return nm.enclosed(problem, reference, bounds)


tanh = Operator(
    "tanh",
    inputs={"x": ks.tensors("*")},
    oracle=reference,
    error_model=accept,
    ranks=range(5),
    algorithms={"exp_form": "2 sigmoid(2x) - 1 and the like: absolute error near 0"},
    **bounded("tanh", Structure.INTERVAL),
)
