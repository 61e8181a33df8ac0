"""mean(x, dim): the arithmetic mean along a dimension."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded


def reference(x: Any, *, dim: int) -> Any:
    """torch.mean(x, dim)."""
    import torch

    return torch.mean(x, dim)


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return s/n +- (gamma(n-1) + 6u) sum|x| / n, 0 where every form is exact.

    n - 1 additions and a division within 2 ulp (5 u), or a product with 1/n rounded,
    after the sum or before it. All are exact where the sum is, n is a power of two
    and no scaled term underflows: units that approximate a division hold reciprocals
    of powers of two exactly.
    """
    import torch

    x, dim = problem.tensors["x"], problem.axis()
    n = x.shape[dim]
    arithmetic = nm.RowArithmetic.declared(problem)
    acc, coarse, flush = arithmetic.acc, arithmetic.coarse, arithmetic.flush
    finite = nm.finite_or_zero(x)
    if n == 0:
        nothing = torch.full_like(finite.sum(dim), float("nan"))
        return nm.around(problem, nothing, 0.0)
    mean, magnitude = finite.sum(dim) / n, finite.abs().sum(dim)
    of_sum = nm.sum_error(finite, dim, acc, flush=flush, data=problem.format)
    # The division by n, or each product with 1/n, and their second-order terms.
    relative = (nm.DIVISION_ERROR + 1) * acc.format.unit + nm.U64
    # Where the sum is rounded on the way the store rounds a second time.
    twice = 2 * coarse * mean.abs()
    error = of_sum / n + relative * magnitude / n + twice + (n + 1) * arithmetic.eta
    if n & (n - 1) == 0:
        scaled = nm.lowest_bit_exponent(finite).amin(dim) - (n.bit_length() - 1)
        exact = nm.fits_exactly(magnitude / n, scaled, acc, flush=flush) & (of_sum == 0)
        error = torch.where(exact, twice, error)
    overflow = nm.overflow_in_some_order(finite, dim, acc)
    if coarse:
        overflow = overflow | (magnitude * 2 > arithmetic.held.max_finite)
    classes = nm.terms_classes(x, lambda t: t.any(dim), overflow)
    return classes.accepted(problem, mean, error)


mean = Operator(
    "mean",
    inputs={"x": ks.tensors("*"), "dim": ks.dim(of="x")},
    oracle=reference,
    homogeneous={"x": 1},
    error_model=accept,
    **bounded("mean", Structure.INTERVAL),
)
