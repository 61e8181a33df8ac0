"""elu(x, alpha): x where x > 0, else alpha (exp(x) - 1)."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded


def reference(x: Any, *, alpha: float) -> Any:
    """torch.where(x > 0, x, alpha * torch.expm1(x))."""
    import torch

    return torch.where(x > 0, x, alpha * torch.expm1(x.clamp(max=0)))


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return x, or alpha times the union of expm1(x) and exp(x) - 1.

    exp(x) - 1 cancels near 0: its error is absolute, 5 u exp(x). With
    algorithm="expm1" only the relative error of expm1 is admitted.
    """
    arithmetic = nm.Arithmetic.declared(problem)
    x, alpha = problem.tensors["x"], problem.number("alpha")
    seen = arithmetic.read(x)
    below = arithmetic.read(x.clamp(max=0))
    made = nm.expm1(below, arithmetic)
    if problem.declaration.algorithm != "expm1":
        made = made.union(arithmetic.rounded(nm.exp(below, arithmetic) + -1.0))
    made = arithmetic.rounded(made * arithmetic.constant(alpha, x))
    made = seen.where(x > 0, made)
    return arithmetic.accepted(problem, reference(x, alpha=alpha), made)


elu = Operator(
    "elu",
    inputs={
        "x": ks.tensors("*"),
        "alpha": ks.scalar(1.0, domain=(0.5, 1.6732632423543772)),
    },
    oracle=reference,
    error_model=accept,
    ranks=range(5),
    algorithms={"expm1": "accurate near 0: exp(x) - 1 is not formed"},
    **bounded("elu", Structure.INTERVAL),
)
