"""sigmoid(x): 1 / (1 + exp(-x)), elementwise."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure, Tolerance


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
    tolerance=Tolerance(
        Structure.INTERVAL,
        "s(1-s)(4u|x| + 5u) + 6u s, and 0 where s < 2^-125",
        "the errors of exp (2 ulp and its argument), of one addition and one division "
        "(2 ulp); exp(-x) overflows, or its reciprocal is flushed, far below 0",
    ),
    special_values="NaN stays NaN, +Inf becomes 1, -Inf becomes 0",
)
