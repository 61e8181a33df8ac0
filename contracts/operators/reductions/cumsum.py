"""cumsum(x, dim): the sums of all prefixes along a dimension."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded


def reference(x: Any, *, dim: int) -> Any:
    """torch.cumsum(x, dim)."""
    import torch

    return torch.cumsum(x, dim)


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return s_i +- gamma(i) sum_{j<=i} |x_j|, 0 where the prefix sums exactly.

    Element i, counted from 0, takes i additions in any tree over the leaves 0 to i
    (Higham eq. 4.6). The total less a suffix cancels, and lies outside.
    """
    import torch

    dim = problem.axis()
    x = problem.tensors["x"].movedim(dim, -1)
    n = x.shape[-1]
    if x.numel() == 0:
        return nm.around(problem, problem.tensors["x"], 0.0)
    acc, flush = problem.accumulation, problem.flushes
    finite = nm.finite_or_zero(x)
    total, magnitude = finite.cumsum(-1), finite.abs().cumsum(-1)
    # Data that the accumulator cannot hold is rounded on the way in.
    data, narrow = problem.format, problem.format.precision > acc.format.precision
    growth = [
        acc.summation(i, extra=int(narrow)) + nm.gamma(i - 1, nm.U64)
        for i in range(1, n + 1)
    ]
    coefficient = torch.tensor(growth, dtype=torch.float64, device=x.device)
    coarse = acc.operand_error(data, operands=1)
    error = (coefficient + coarse) * magnitude
    least = acc.operand_floor(data, flush=False)
    if flush:
        least = max(least, acc.format.min_normal)
    if least:
        small = torch.where(finite.abs() < least, finite.abs(), 0.0)
        count = torch.arange(1, n + 1, device=x.device)
        error = error + small.cumsum(-1) + count * acc.lost(1, flush=flush)
    lowest = nm.lowest_bit_exponent(finite).cummin(-1).values
    exact = nm.fits_exactly(magnitude, lowest, acc, flush=flush)
    if not coarse:
        error = torch.where(exact, torch.zeros_like(error), error)

    def so_far(flags: torch.Tensor) -> torch.Tensor:
        return flags.to(torch.float64).cumsum(-1) > 0

    positive = finite.clamp(min=0).cumsum(-1)
    overflows = nm.can_overflow(positive, magnitude - positive, n, acc)
    classes = nm.terms_classes(x, so_far, overflows)
    sums = torch.where(classes.finite, total, classes.reference)
    parts = (sums, error, classes.admitted, classes.ambiguous)
    y, width, admitted, ambiguous = (t.movedim(-1, dim) for t in parts)
    return nm.around(problem, y, width, classes=admitted, ambiguous=ambiguous)


cumsum = Operator(
    "cumsum",
    inputs={"x": ks.tensors("*"), "dim": ks.dim(of="x")},
    oracle=reference,
    homogeneous={"x": 1},
    error_model=accept,
    **bounded("cumsum", Structure.INTERVAL),
)
