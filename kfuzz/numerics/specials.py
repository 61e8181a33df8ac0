"""Classes of sums with special terms, decided without doing the arithmetic."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from kfuzz.numerics.acceptance import (
    FINITE,
    NAN,
    NEGATIVE_INF,
    POSITIVE_INF,
    Acceptance,
    Problem,
    around,
)
from kfuzz.numerics.accumulation import (
    code,
    infinity,
    not_a_number,
    plainly_finite,
    zero,
)
from kfuzz.numerics.formats import FORMATS


@dataclass(frozen=True)
class SumClasses:
    """What the special terms of a sum make of it.

    Attributes:
        admitted: uint8 class bits.
        reference: float64 NaN, +Inf or -Inf; 0 where the sum is finite.
        finite: bool, no special term.
        ambiguous: bool, some order overflows: a miss is undecided.
    """

    admitted: Tensor
    reference: Tensor
    finite: Tensor
    ambiguous: Tensor

    def accepted(self, problem: Problem, value: Tensor, error: Tensor) -> Acceptance:
        """Return the acceptance of sums, of the value and error of the finite ones."""
        return around(
            problem,
            torch.where(self.finite, value, self.reference),
            error,
            classes=self.admitted,
            ambiguous=self.ambiguous,
        )


def terms_classes(
    x: Tensor, some: Callable[[Tensor], Tensor], may_overflow: Tensor
) -> SumClasses:
    """Return the classes of sums of x.

    Args:
        x: the terms.
        some: of a bool tensor like x, for each sum whether it holds of some term.
        may_overflow: as in `sum_classes`.
    """
    if plainly_finite(x):
        none = torch.zeros_like(may_overflow)
        return sum_classes(none, none, none, may_overflow)
    nan, plus, minus = (some(t) for t in (x.isnan(), x == math.inf, x == -math.inf))
    return sum_classes(nan, plus, minus, may_overflow)


def sum_classes(
    nan: Tensor, plus: Tensor, minus: Tensor, may_overflow: Tensor
) -> SumClasses:
    """Return the classes of sums (README.md here, special values).

    Args:
        nan: bool, a term is NaN.
        plus: bool, a term is +Inf.
        minus: bool, a term is -Inf.
        may_overflow: bool, the finite terms overflow in some order. A sum with
            one infinity may then turn NaN; that too is undecided.
    """
    is_nan = nan | (plus & minus)
    admitted = torch.where(plus, code(POSITIVE_INF, nan), code(FINITE, nan))
    admitted = torch.where(minus, code(NEGATIVE_INF, nan), admitted)
    admitted = torch.where(is_nan, code(NAN, nan), admitted)
    reference = torch.where(plus, infinity(nan), zero(nan))
    reference = torch.where(minus, -infinity(nan), reference)
    reference = torch.where(is_nan, not_a_number(nan), reference)
    return SumClasses(
        admitted=admitted,
        reference=reference,
        finite=~(is_nan | plus | minus),
        ambiguous=may_overflow & ~is_nan,
    )


def intermediate_unit(problem: Problem) -> float:
    """Return the unit roundoff of intermediate results, as declared."""
    unit = FORMATS["float32"].unit
    if problem.declaration.accumulator == "float64":
        unit = FORMATS["float64"].unit
    if problem.declaration.intermediates == "output":
        unit = max(unit, problem.output.unit)
    return unit
