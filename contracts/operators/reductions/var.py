"""var(x, dim, correction): the variance along a dimension."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure, Tolerance


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
    tolerance=Tolerance(
        Structure.INTERVAL,
        "RNE(v - E) <= y <= RNE(v + E), E = Ev n / (n - correction), Ev = "
        "gamma(2(n+6)) v + 2 gamma(n+2) sqrt(v) rms + Emu^2 + 2 lambda, Emu = "
        "gamma(n + 2 + 2 ln(n+1)) mean|x|",
        "the class of Welford's and the two-pass method, O(n u kappa) with kappa = "
        "rms / sqrt(v) (Chan, Golub, LeVeque 1983); the one-pass form E[x^2] - "
        "E[x]^2, O(n u kappa^2), lies outside",
    ),
    special_values="a row with NaN or an infinity is NaN, and so is one of no more "
    "elements than the correction; undecided where squares overflow",
)
