"""Sums of exponentials with the row maximum subtracted: values and error bounds.

After Blanchard, Higham, Higham, Accurately computing the log-sum-exp and softmax
functions, IMA Journal of Numerical Analysis 2021; the budgets of exp and log are those
of `bounds` and `functions`.
"""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from kfuzz.numerics.acceptance import Problem
from kfuzz.numerics.bounds import EXP_ARGUMENT, EXP_ERROR, U32, U64, Accumulation, gamma
from kfuzz.numerics.functions import (
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

    Attributes:
        nan: bool, the row holds a NaN; keeps the dimension, as all but `depth`.
        plus: bool, the row holds +Inf.
        void: bool, the row is -Inf throughout (or empty).
        top: the row's maximum, 0 where one of these holds.
        depth: x - top, -Inf where x is; 0 where NaN or +Inf are in the row.
        log_total: log of the sum of the exponentials, in [0, log n].
        rho: bound on the relative error of a computed exponential.
        spread: bound on that of a computed sum of them; infinite where vacuous.
        error: bound on the absolute error of a computed log(sum); infinite where
            it is vacuous.
        unit: unit roundoff of intermediate results.
        flushed: greatest magnitude that an intermediate result may lose.
        ambiguous: bool, the sum may overflow where it is held.
    """

    nan: Tensor
    plus: Tensor
    void: Tensor
    top: Tensor
    depth: Tensor
    log_total: Tensor
    rho: Tensor
    spread: Tensor
    error: Tensor
    unit: float
    flushed: float
    ambiguous: Tensor


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
    acc = Accumulation.declared(problem.declaration, attribution=problem.attribution)
    nan = x.isnan().any(dim, keepdim=True)
    top = x.amax(dim, keepdim=True)
    plus, void = top == float("inf"), top == float("-inf")
    special = nan | plus | void
    top = torch.where(special, torch.zeros_like(top), top)
    depth = torch.where(nan | plus, torch.zeros_like(x), x) - top
    shallow = torch.where(torch.isinf(depth), torch.zeros_like(depth), depth).abs()
    weight = torch.exp(depth)
    total = weight.sum(dim, keepdim=True)
    total = torch.where(special, torch.ones_like(total), total)
    fast = problem.declaration.approx
    own = (FAST_EXP_ERROR if fast else EXP_ERROR) * unit
    rho = EXP_ARGUMENT * unit * shallow + own
    rescales = -(-n // ONLINE_TILE) - 1
    flushed = 2.0**-126 if unit <= U32 else problem.output.min_normal
    spread = (
        (weight / total * rho).sum(dim, keepdim=True)
        + acc.summation(n)
        + rescales * (unit + own)
        + n * flushed  # relative to the sum, which is 1 or more
        + (unit if unit > acc.format.unit else 0.0)
        + gamma(4 * n, U64)
    )
    if not problem.attribution:
        # |log(1 + e)| <= e / (1 - e) for an error of that size either way.
        vacuous = torch.full_like(spread, float("inf"))
        spread = torch.where(spread < 0.5, spread / (1 - spread), vacuous)
    log_total = torch.log(total)
    # Beside 2 ulp the rounding where it is held, and float64's own log.
    of_log = (LOG_ERROR + 1) * unit + 8 * U64
    error = spread + of_log * log_total
    if fast:
        error = error + FAST_LOG_ERROR * unit * log_total + FAST_LOG_ABSOLUTE
    held = acc.limit
    if unit > acc.format.unit:
        held = min(held, problem.output.max_finite)
    return Exponentials(
        nan=nan,
        plus=plus & ~nan,
        void=void,
        top=top,
        depth=depth,
        log_total=log_total,
        rho=rho,
        spread=spread,
        error=error,
        unit=unit,
        flushed=flushed,
        ambiguous=total * 2 > held,
    )
