"""softmax(x, dim): exp(x_i) / sum exp(x_j) along a dimension."""

from math import inf
from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure, Tolerance


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
    tolerance=Tolerance(
        Structure.INTERVAL,
        "exp(d - log S -/+ (rho + r + 5u)), d = x - max x, S = sum exp(d), "
        "p = exp(d) / S, rho = 4u|d| + 5u, r = R / (1 - R), "
        "R = sum p rho + gamma(n-1, u) + 6u (ceil(n/16) - 1) + n 2^-126, and u once "
        "more where intermediates are coarser than the sum; below, 2^-126 less; "
        "vacuous where R >= 1/2; with approx=True rho = 4u|d| + 13u",
        "relative errors of exp (2 ulp and its argument), of the sum in any order, "
        "of online rescaling in tiles of at least 16, of the division; the row "
        "maximum is subtracted exactly once; an exponential or a result may be flushed",
    ),
    special_values="a row with NaN or +Inf is NaN throughout; -Inf among finite "
    "values gives exactly 0; a row of -Inf is NaN",
)
