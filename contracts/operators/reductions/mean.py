"""mean(x, dim): the arithmetic mean along a dimension."""

from typing import TYPE_CHECKING, Any

from kfuzz import strategies as ks
from kfuzz.contracts.language import Structure, Tolerance
from kfuzz.contracts.operator import Operator

if TYPE_CHECKING:
    from kfuzz.numerics.acceptance import Acceptance, Problem


def reference(x: Any, *, dim: int) -> Any:
    """torch.mean(x, dim)."""
    import torch

    return torch.mean(x, dim)


def accept(problem: "Problem") -> "dict[str, Acceptance]":
    """Return s/n +- (gamma(n-1) + 6u) sum|x| / n, 0 where every form is exact.

    n - 1 additions and a division within 2 ulp (5 u), or a product with 1/n rounded,
    after the sum or before it. All are exact where the sum is, n is a power of two
    and no scaled term underflows: units that approximate a division hold reciprocals
    of powers of two exactly.
    """
    import torch

    from kfuzz.numerics.acceptance import around
    from kfuzz.numerics.bounds import (
        U64,
        fits_exactly,
        overflow_in_some_order,
        sum_error,
    )
    from kfuzz.numerics.elements import finite_or_zero
    from kfuzz.numerics.formats import lowest_bit_exponent
    from kfuzz.numerics.models.functions import DIVISION_ERROR
    from kfuzz.numerics.models.normalisation import RowArithmetic
    from kfuzz.numerics.specials import sum_classes

    x, dim = problem.tensors["x"], problem.axis()
    n = x.shape[dim]
    arithmetic = RowArithmetic.declared(problem)
    acc, coarse, flush = arithmetic.acc, arithmetic.coarse, arithmetic.flush
    finite = finite_or_zero(x)
    if n == 0:
        nothing = torch.full_like(finite.sum(dim), float("nan"))
        return {"y": around(problem, nothing, 0.0)}
    total, magnitude = finite.sum(dim), finite.abs().sum(dim)
    mean = total / n
    of_sum = sum_error(finite, dim, acc, flush=flush, data=problem.format)
    # The division by n, or each product with 1/n, and their second-order terms.
    relative = (DIVISION_ERROR + 1) * acc.format.unit + U64
    # Where the sum is rounded on the way the store rounds a second time.
    twice = 2 * coarse * mean.abs()
    error = of_sum / n + relative * magnitude / n + twice + (n + 1) * arithmetic.eta
    if n & (n - 1) == 0:
        scaled = lowest_bit_exponent(finite).amin(dim) - (n.bit_length() - 1)
        exact = fits_exactly(magnitude / n, scaled, acc, flush=flush) & (of_sum == 0)
        error = torch.where(exact, twice, error)
    overflow = overflow_in_some_order(finite, dim, acc)
    if coarse:
        overflow = overflow | (magnitude * 2 > arithmetic.held.max_finite)
    classes = sum_classes(
        x.isnan().any(dim),
        (x == float("inf")).any(dim),
        (x == float("-inf")).any(dim),
        overflow,
    )
    return {
        "y": around(
            problem,
            torch.where(classes.finite, mean, classes.reference),
            error,
            classes=classes.admitted,
            ambiguous=classes.ambiguous,
        )
    }


mean = Operator(
    "mean",
    inputs={"x": ks.tensors("*"), "dim": ks.dim(of="x")},
    oracle=reference,
    homogeneous={"x": 1},
    error_model=accept,
    tolerance=Tolerance(
        Structure.INTERVAL,
        "RNE(m - E) <= y <= RNE(m + E), E = (gamma(n-1, u) + 6u) sum|x| / n; E = 0 "
        "where n is a power of two and every order is exact",
        "n-1 additions in any order in the declared accumulator (Higham eq. 4.6), a "
        "division within 2 ulp or a product with the rounded 1/n, then one rounding "
        "to the output",
    ),
    special_values="NaN if the row holds NaN or both infinities, or is empty; else the "
    "infinity it holds; undecided where some order overflows the accumulator",
)
