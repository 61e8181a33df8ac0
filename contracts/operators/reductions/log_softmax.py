"""log_softmax(x, dim): x_i - log sum exp(x_j) along a dimension."""

from typing import Any, Final

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded

LSE_FORM: Final = "lse_form"


def reference(x: Any, *, dim: int) -> Any:
    """torch.log_softmax(x, dim) with the row maximum subtracted."""
    import torch

    return torch.log_softmax(x, dim)


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return d - log S +- (u |d| + R + 6u log S + u |ref|), d = x - max.

    R bounds the relative error of S, and log costs 6 u of its result, held
    (`kfuzz.numerics.models.log_sum_exp`). The form x - (max + log S) rounds the sum in
    brackets besides: 2 u |max + log S|, where declared.
    """
    import torch

    x, dim = problem.tensors["x"], problem.axis()
    if x.numel() == 0:
        return nm.between(problem, x, x, x)
    e = nm.exponentials(problem, x, dim)
    unit = e.unit
    masked = torch.isinf(e.depth)
    depth = torch.where(masked, torch.zeros_like(x), e.depth)
    y = depth - e.log_total
    error = e.error + unit * depth.abs() + (unit + 8 * nm.U64) * y.abs()
    if problem.declaration.algorithm == LSE_FORM:
        error = error + 2 * unit * (e.top.abs() + e.log_total)
    if problem.flushes:
        error = error + 3 * e.flushed  # x or its maximum, the difference, the result
    spoiled = ~e.plain.expand_as(x)
    result = torch.where(masked, torch.full_like(x, float("-inf")), y)
    result = torch.where(spoiled, torch.full_like(x, float("nan")), result)
    classes = torch.where(masked, nm.NEGATIVE_INF, nm.FINITE)
    classes = torch.where(spoiled, nm.NAN, classes).to(torch.uint8)
    return nm.between(
        problem, result, y - error, y + error,
        classes=classes, ambiguous=e.ambiguous.expand_as(x),
    )  # fmt: skip


log_softmax = Operator(
    "log_softmax",
    inputs={"x": ks.tensors("*"), "dim": ks.dim(of="x", default=-1)},
    oracle=reference,
    error_model=accept,
    algorithms={LSE_FORM: "x - (max + log S), which cancels for large offsets"},
    recentres=True,
    **bounded("log_softmax", Structure.INTERVAL),
)
