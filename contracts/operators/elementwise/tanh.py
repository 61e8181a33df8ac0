"""tanh(x): the hyperbolic tangent, elementwise."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure, Tolerance


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
    tolerance=Tolerance(
        Structure.INTERVAL,
        "5u |y|; 0 beyond 45; with approx 2^-11 |y|",
        "2 ulp from correctly rounded in CUDA's and HIP's documents; "
        "`tanh.approx.f32` has a relative error of 2^-11",
    ),
    special_values="NaN stays NaN, infinities become -1 and 1",
)
