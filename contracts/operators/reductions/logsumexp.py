"""logsumexp(x, dim): log sum exp(x_j) along a dimension."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded


def reference(x: Any, *, dim: int) -> Any:
    """torch.logsumexp(x, dim) with the row maximum subtracted."""
    import torch

    return torch.logsumexp(x, dim)


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return m + log S +- (R + 6u log S + u |m| + u |ref|).

    R bounds the relative error of S, and log costs 6 u of its result, held
    (`kfuzz.numerics.models.log_sum_exp`); then m is rounded and added.
    """
    import torch

    x, dim = problem.tensors["x"], problem.axis()
    inf = float("inf")
    if x.shape[dim] == 0:
        nothing = torch.full_like(x.sum(dim), -inf)
        return nm.around(problem, nothing, 0.0)
    e = nm.exponentials(problem, x, dim)
    unit = e.unit
    finite = e.top + e.log_total
    error = e.error + unit * e.top.abs() + (unit + 8 * nm.U64) * finite.abs()
    if problem.flushes:
        error = error + 2 * e.flushed  # the maximum, and the sum of the two terms
    y = torch.where(e.void, torch.full_like(finite, -inf), finite)
    y = torch.where(e.plus, torch.full_like(finite, inf), y)
    y = torch.where(e.nan, torch.full_like(finite, float("nan")), y)
    return nm.around(
        problem, y.squeeze(dim), error.squeeze(dim),
        ambiguous=e.ambiguous.squeeze(dim),
    )  # fmt: skip


logsumexp = Operator(
    "logsumexp",
    inputs={"x": ks.tensors("*"), "dim": ks.dim(of="x")},
    oracle=reference,
    error_model=accept,
    recentres=True,
    **bounded("logsumexp", Structure.INTERVAL),
)
