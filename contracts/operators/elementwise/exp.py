"""exp(x): the exponential, elementwise."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded


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
    **bounded("exp", Structure.INTERVAL),
)
