"""var(x, dim, correction): the variance along a dimension."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded


def reference(x: Any, *, dim: int, correction: int) -> Any:
    """Sum of squared differences from the mean, divided by n - correction."""
    centred = x - x.mean(dim, keepdim=True)
    n = x.shape[dim] - correction
    total = (centred * centred).sum(dim)
    return total / n if n > 0 else total * float("nan")


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return v +- Ev n / (n - correction), Ev of the class of Welford's method.

    Ev = gamma(2(n+6)) v + 2 gamma(n+2) sqrt(v) rms + Emu^2 + 2 eta, which leaves
    room for the division (`kfuzz.numerics.models.normalisation`).
    """
    import torch

    dim = problem.axis()
    x = problem.tensors["x"].movedim(dim, -1)
    n = x.shape[-1]
    free = n - problem.axis("correction")
    broken = ~torch.isfinite(x).all(-1)
    if free <= 0 or x.numel() == 0:
        nothing = torch.full_like(broken, float("nan"), dtype=torch.float64)
        return nm.around(problem, nothing, 0.0)
    safe = torch.where(broken.unsqueeze(-1), torch.zeros_like(x), x)
    m = nm.moments(safe, nm.RowArithmetic.declared(problem))
    variance, error = m.variance.squeeze(-1), m.variance_error.squeeze(-1)
    y = torch.where(broken, torch.full_like(variance, float("nan")), variance)
    return nm.around(
        problem, y * n / free, error * n / free,
        ambiguous=m.ambiguous.squeeze(-1) & ~broken,
    )  # fmt: skip


var = Operator(
    "var",
    inputs={
        "x": ks.tensors("*"),
        "dim": ks.dim(of="x"),
        "correction": ks.scalar(1, domain=(1, 0)),
    },
    oracle=reference,
    homogeneous={"x": 2},
    error_model=accept,
    recentres=True,
    subtracts_mean=True,
    empty_reduction=False,
    **bounded("var", Structure.INTERVAL),
)
