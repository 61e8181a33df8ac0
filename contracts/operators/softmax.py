"""softmax(x, dim): exp(x_i) / sum exp(x_j) along a dimension."""

from typing import TYPE_CHECKING, Any

from kfuzz import strategies as ks
from kfuzz.contracts.language import Operator, Structure, Tolerance

if TYPE_CHECKING:
    from kfuzz.numerics.acceptance import Acceptance, Problem

# The smallest tile for which an online rescaling is admitted.
ONLINE_TILE = 16


def reference(x: Any, *, dim: int) -> Any:
    """torch.softmax(x, dim) with the row maximum subtracted."""
    import torch

    return torch.softmax(x, dim)


def accept(problem: "Problem") -> "dict[str, Acceptance]":
    """Return the interval, formed in log space (after Blanchard, Higham, Higham 2021).

    With d = x - max, S = sum exp(d), p = exp(d) / S and u the unit of the
    intermediates: rho = 4 u |d| + 5 u bounds the relative error of exp(d);
    R = sum p rho + gamma(n-1) + T (u + 5 u) that of the sum, T the number of
    online rescalings; a result lies within exp(d - log S -/+ (rho + R + 5 u)),
    less one flushed subnormal.
    """
    import torch

    from kfuzz.numerics.acceptance import FINITE, NAN, between
    from kfuzz.numerics.bounds import (
        EXP_ARGUMENT,
        EXP_ERROR,
        U32,
        Accumulation,
    )
    from kfuzz.numerics.specials import intermediate_unit

    x, dim = problem.tensors["x"], problem.axis()
    n = x.shape[dim]
    if x.numel() == 0:
        return {"y": between(problem, x, x, x)}
    unit = intermediate_unit(problem)
    acc = Accumulation.declared(problem.declaration, attribution=problem.attribution)
    top = x.amax(dim, keepdim=True)
    poisoned = x.isnan().any(dim, keepdim=True) | (top.abs() == float("inf"))
    safe_top = torch.where(poisoned, torch.zeros_like(top), top)
    d = torch.where(poisoned, torch.zeros_like(x), x) - safe_top
    masked = d == float("-inf")
    depth = torch.where(masked, torch.zeros_like(d), d).abs()
    weight = torch.exp(d)
    total = weight.sum(dim, keepdim=True)
    p = weight / total
    rho = EXP_ARGUMENT * unit * depth + EXP_ERROR * unit
    rescales = -(-n // ONLINE_TILE) - 1
    # exp may be flushed to zero, and each later factor once more.
    flushed = 2.0**-126 if unit <= U32 else problem.output.min_normal
    spread = (
        (p * rho).sum(dim, keepdim=True)
        + acc.coefficient(n - 1)
        + rescales * (unit + EXP_ERROR * unit)
        + n * flushed  # relative to the sum, which is 1 or more
    )
    # Float64's own exp, log and division are good to a few of its units.
    slack = 5 * unit + 2.0**-48
    relative = rho + spread + slack
    log_p = d - torch.log(total)
    low = torch.exp(log_p - relative) - flushed
    high = torch.exp(log_p + relative) + flushed
    zero = torch.zeros_like(low)
    low = torch.where(masked, zero, low.clamp(min=0))
    high = torch.where(masked, zero, high)
    nan = torch.full_like(p, float("nan"))
    admitted = torch.where(poisoned.expand_as(p), NAN, FINITE).to(torch.uint8)
    return {
        "y": between(
            problem, torch.where(poisoned, nan, p), low, high, classes=admitted
        )
    }


softmax = Operator(
    "softmax",
    inputs={"x": ks.tensors("*"), "dim": ks.dim(of="x", default=-1)},
    oracle=reference,
    error=accept,
    recentres=True,
    tolerance=Tolerance(
        Structure.INTERVAL,
        "exp(d - log S -/+ (rho + R + 5u)), rho = 4u|d| + 5u, "
        "R = sum p rho + gamma(n-1, u) + 6u (ceil(n/16) - 1)",
        "relative errors of exp (2 ulp and its argument), of the sum in any order, "
        "of online rescaling in tiles of at least 16, of the division; the row "
        "maximum is subtracted exactly once",
    ),
    special_values="a row with NaN or +Inf is NaN throughout; -Inf among finite "
    "values gives exactly 0; a row of -Inf is NaN",
)
