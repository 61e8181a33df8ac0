"""Sums of exponentials with the row maximum subtracted: values and error bounds.

After Blanchard, Higham, Higham, Accurately computing the log-sum-exp and softmax
functions, IMA Journal of Numerical Analysis 2021; the budgets of exp and log are those
of `bounds` and `functions`.
"""

import math
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from kfuzz.numerics.acceptance import Problem
from kfuzz.numerics.accumulation import gamma
from kfuzz.numerics.bounds import EXP_ARGUMENT, EXP_ERROR, U32, U64
from kfuzz.numerics.elements import (
    finite_or_zero,
    infinity,
    is_finite,
    one,
    plainly_finite,
    zero,
)
from kfuzz.numerics.models.functions import (
    FAST_EXP_ERROR,
    FAST_LOG_ABSOLUTE,
    FAST_LOG_ERROR,
    LOG_ERROR,
)
from kfuzz.numerics.specials import intermediate_unit

# The smallest tile for which an online rescaling is admitted.
ONLINE_TILE: Final = 16


@dataclass(frozen=True)
class Exponentials:
    """exp(x - max) of every row along one dimension, and their sum.

    What is special of a row is a NaN, +Inf, or -Inf throughout.

    Attributes:
        greatest: the row's maximum, NaN where it holds one; keeps the dimension, as
            all but `depth` and `rho`.
        plain: bool, nothing of the row is special.
        top: the maximum of a plain row, else 0.
        depth: x - top in plain rows, -Inf where x is; else 0.
        log_total: log of the sum of the exponentials, in [0, log n].
        rho: bound on the relative error of a computed exponential.
        spread: bound on that of a computed sum of them; infinite where vacuous.
        unit: unit roundoff of intermediate results.
        flushed: greatest magnitude that an intermediate result may lose.
        ambiguous: bool, the sum may overflow where it is held; only of plain rows.
        fast: whether logarithms may be fast ones.
    """

    greatest: Tensor
    plain: Tensor
    top: Tensor
    depth: Tensor
    log_total: Tensor
    rho: Tensor
    spread: Tensor
    unit: float
    flushed: float
    ambiguous: Tensor
    fast: bool

    @property
    def nan(self) -> Tensor:
        """Bool, the row holds a NaN."""
        return self.greatest.isnan()

    @property
    def plus(self) -> Tensor:
        """Bool, the row holds +Inf and no NaN."""
        return self.greatest == math.inf

    @property
    def void(self) -> Tensor:
        """Bool, the row is -Inf throughout."""
        return self.greatest == -math.inf

    @property
    def error(self) -> Tensor:
        """Bound on the absolute error of a computed log(sum); infinite if vacuous.

        The relative error of the sum, and beside 2 ulp of the logarithm the rounding
        where it is held, and float64's own log.
        """
        unit = self.unit
        of_log = (LOG_ERROR + 1) * unit + 8 * U64
        error = self.spread + of_log * self.log_total
        if self.fast:
            error = error + FAST_LOG_ERROR * unit * self.log_total + FAST_LOG_ABSOLUTE
        return error


def exponentials(problem: Problem, x: Tensor, dim: int) -> Exponentials:
    """Return the exponentials of the rows of x along a dimension.

    The relative error R of the sum is an absolute one of its logarithm, which costs
    5 u of itself (2 ulp) and is rounded where it is held.

    With d = x - max, p = exp(d) / S: rho = 4 u |d| + 5 u bounds the relative error
    of exp(d), and R = sum p rho + gamma(n-1) + T (u + 5 u) + u that of the sum held,
    T the number of online rescalings in tiles of 16; the errors of successive
    rescalings telescope (|x - m_old| + |m_old - m_new| = |x - m_new|).

    Args:
        problem: gives the declaration.
        x: float64, any shape with that dimension not empty.
        dim: the dimension, negative.
    """
    n = x.shape[dim]
    unit = intermediate_unit(problem)
    acc = problem.accumulation
    greatest = x.amax(dim, keepdim=True)  # NaN where there is one
    plain = is_finite(greatest)
    top = torch.where(plain, greatest, zero(x))
    if plainly_finite(x):
        depth = shallow = x - top
    else:
        depth = torch.where(plain, x, zero(x)) - top
        # No difference is NaN or +Inf: -Inf alone is taken away.
        shallow = finite_or_zero(depth)
    weight = torch.exp(depth)
    total = torch.where(plain, weight.sum(dim, keepdim=True), one(x))
    fast = problem.declaration.approx
    own = (FAST_EXP_ERROR if fast else EXP_ERROR) * unit
    rho = shallow * (-EXP_ARGUMENT * unit) + own
    rescales = -(-n // ONLINE_TILE) - 1
    flushed = 2.0**-126 if unit <= U32 else problem.output.min_normal
    spread = (weight * rho).sum(dim, keepdim=True) / total + (
        acc.summation(n)
        + rescales * (unit + own)
        + n * flushed  # relative to the sum, which is 1 or more
        + (unit if unit > acc.format.unit else 0.0)
        + gamma(4 * n, U64)
    )
    if not problem.attribution:
        # |log(1 + e)| <= e / (1 - e) for an error of that size either way.
        spread = torch.where(spread < 0.5, spread / (1 - spread), infinity(x))
    held = acc.limit
    if unit > acc.format.unit:
        held = min(held, problem.output.max_finite)
    return Exponentials(
        greatest=greatest,
        plain=plain,
        top=top,
        depth=depth,
        log_total=torch.log(total),
        rho=rho,
        spread=spread,
        unit=unit,
        flushed=flushed,
        ambiguous=total > held / 2,
        fast=fast,
    )
