"""sigmoid(x): 1 / (1 + exp(-x)), elementwise."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded


def reference(x: Any) -> Any:
    """torch.sigmoid(x)."""
    import torch

    return torch.sigmoid(x)


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return sigmoid(x -/+ (4 u |x| + 5 u)) (1 -/+ 6 u), 0 where exp(-x) overflows.

    With algorithm="tanh_form": 0.5 + 0.5 tanh(x / 2), whose error is absolute.
    """
    by_tanh = problem.declaration.algorithm == "tanh_form"
    bounds = nm.sigmoid_by_tanh if by_tanh else nm.sigmoid
    return nm.enclosed(problem, reference, bounds)


sigmoid = Operator(
    "sigmoid",
    inputs={"x": ks.tensors("*")},
    oracle=reference,
    error_model=accept,
    ranks=range(5),
    algorithms={"tanh_form": "0.5 + 0.5 tanh(x / 2): absolute error below 0"},
    **bounded("sigmoid", Structure.INTERVAL),
)
