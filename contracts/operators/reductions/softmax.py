"""softmax(x, dim): exp(x_i) / sum exp(x_j) along a dimension."""

from math import inf
from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded


def reference(x: Any, *, dim: int) -> Any:
    """torch.softmax(x, dim) with the row maximum subtracted."""
    import torch

    return torch.softmax(x, dim)


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return the interval, formed in log space (after Blanchard, Higham, Higham 2021).

    With d = x - max, S = sum exp(d), p = exp(d) / S and u the unit of the
    intermediates: rho = 4 u |d| + 5 u bounds the relative error of exp(d);
    R = sum p rho + gamma(n-1) + T (u + 5 u) that of the sum, T the number of
    online rescalings; a result lies within exp(d - log S -/+ (rho + R + 5 u)),
    less one flushed subnormal.
    """
    import torch

    x, dim = problem.tensors["x"], problem.axis()
    if x.numel() == 0:
        return nm.between(problem, x, x, x)
    e = nm.exponentials(problem, x, dim)
    log_p = e.depth - e.log_total
    # A division, or a reciprocal and a product; float64's own exp, log and division
    # are good to a few of its units.
    relative = e.rho + (e.spread + (5 * e.unit + 2.0**-48))
    # Where an element is masked, the exponentials are 0.
    low = (torch.exp(log_p - relative) - e.flushed).clamp(min=0)
    high = torch.exp(log_p + relative) + e.flushed
    if nm.plainly_finite(x):
        return nm.between(
            problem, torch.exp(log_p), low, high, ambiguous=e.ambiguous.expand_as(x)
        )
    plain = e.plain.expand_as(x)
    return nm.between(
        problem,
        torch.where(plain, torch.exp(log_p), nm.not_a_number(x)),
        low,
        torch.where(e.depth == -inf, nm.zero(x), high),
        classes=torch.where(plain, nm.code(nm.FINITE, x), nm.code(nm.NAN, x)),
        ambiguous=e.ambiguous.expand_as(x),
    )


softmax = Operator(
    "softmax",
    inputs={"x": ks.tensors("*"), "dim": ks.dim(of="x", default=-1)},
    oracle=reference,
    error_model=accept,
    recentres=True,
    **bounded("softmax", Structure.INTERVAL),
)
