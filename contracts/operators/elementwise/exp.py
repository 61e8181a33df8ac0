"""exp(x): the exponential, elementwise."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure, Tolerance


def reference(x: Any) -> Any:
    """torch.exp(x)."""
    import torch

    return torch.exp(x)


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return exp(x -/+ (4 u |x| + 5 u)): exp itself, or exp2(x log2 e)."""
    return nm.enclosed(problem, reference, nm.exp)


exp = Operator(
    "exp",
    inputs={"x": ks.tensors("*")},
    oracle=reference,
    error_model=accept,
    ranks=range(5),
    tolerance=Tolerance(
        Structure.INTERVAL,
        "exp(x -/+ (4u|x| + 5u)); with approx 13u for 5u",
        "2 ulp from correctly rounded in CUDA's and HIP's documents; the product x "
        "log2(e) and its constant where exp2 is used; `__expf` fits in it",
    ),
    special_values="NaN stays NaN, +Inf stays, -Inf becomes 0; overflow to +Inf",
)
