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

from kfuzz.numerics.acceptance import (
    Acceptance,
    Problem,
    intermediate_unit,
    moved,
    sum_classes,
)
from kfuzz.numerics.accumulation import (
    EXP_ARGUMENT,
    EXP_ERROR,
    U32,
    U64,
    Accumulation,
    can_overflow,
    finite_or_zero,
    fits_exactly,
    gamma,
    infinity,
    is_finite,
    one,
    plainly_finite,
    zero,
)
from kfuzz.numerics.formats import lowest_bit_exponent, power_of_two
from kfuzz.numerics.models.functions import (
    FAST_EXP_ERROR,
    FAST_LOG_ABSOLUTE,
    FAST_LOG_ERROR,
    LOG_ERROR,
)

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


# Products of many factors: value, and what any order of them can do.

# Beyond every format's range, and within float64's.
_FAR = 1000


def product(x: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the product of x along a dimension, and what bounds partial ones.

    Every partial product of every order lies in [2**shrink, 2**grow] by magnitude.

    Args:
        x: float64, finite.
        dim: the dimension, negative.

    Returns:
        The product, 1 where there is no factor; magnitudes beyond 2**1000 or below
        2**-1000 become these. `grow`, the log2 of the product of the factors above 1,
        and `shrink`, that of those below 1, zeros left out. The product of the odd
        parts of the factors: what significand an exact partial product needs at most.
    """
    x = x.movedim(dim, -1)
    lowest = torch.where(x == 0, 0, lowest_bit_exponent(x))
    odd = torch.where(x == 0, 1.0, x.abs() * power_of_two(-lowest))
    bits = torch.where(x == 0, 0.0, torch.log2(x.abs()))
    mantissa, small = torch.frexp(x)
    exponent = small.to(torch.int64)
    if x.shape[-1] == 0:
        mantissa, exponent = x.new_ones((*x.shape[:-1], 1)), exponent.sum(-1, True)
    # Scaled after each step: float64's own range is left by a few large factors.
    while mantissa.shape[-1] > 1:
        if mantissa.shape[-1] % 2:
            mantissa = torch.nn.functional.pad(mantissa, (0, 1), value=1.0)
            exponent = torch.nn.functional.pad(exponent, (0, 1))
        mantissa, shift = torch.frexp(mantissa[..., ::2] * mantissa[..., 1::2])
        exponent = exponent[..., ::2] + exponent[..., 1::2] + shift
    scale = power_of_two(torch.clamp(exponent[..., 0], -_FAR, _FAR))
    return (
        mantissa[..., 0] * scale,
        bits.clamp(min=0).sum(-1),
        bits.clamp(max=0).sum(-1),
        odd.prod(-1),
    )


# What indices select, and sums of as many terms as indices name their place.


def out_of_bounds(index: Tensor, bound: int) -> Tensor:
    """Return where an integer index is not in [0, bound), bool."""
    return (index < 0) | (index >= bound)


def resolved(problem: Problem, name: str, bound: int) -> tuple[Tensor, Tensor]:
    """Return valid indices in place of an argument's, and where the result is 0.

    Args:
        problem: the inputs and the declaration.
        name: the index argument.
        bound: valid indices lie in [0, bound).

    Returns:
        int64 indices, clamped, and a bool mask: the elements out of bounds
        where out_of_bounds="zero" is declared, else none.
    """
    index = problem.tensors[name]
    zero = torch.zeros_like(index, dtype=torch.bool)
    if problem.declaration.out_of_bounds == "zero":
        zero = out_of_bounds(index, bound)
    return index.clamp(0, max(bound - 1, 0)), zero


def selected(problem: Problem, values: Tensor, zero: Tensor) -> Acceptance:
    """Return the acceptance of copied elements, 0 where a mask, see `resolved`, holds.

    Args:
        problem: the inputs and the declaration.
        values: what the indices name.
        zero: bool, broadcastable to it.
    """
    return moved(problem, torch.where(zero, torch.zeros_like(values), values))


def accumulation(problem: Problem) -> Accumulation:
    """Return how the sums of a problem are kept, as declared.

    Intermediate results in the output's format are partial sums in the memory that
    holds the result: atomic additions there.
    """
    claims, output = problem.declaration, problem.output
    acc = problem.accumulation
    if claims.intermediates == "output" and output.precision < acc.format.precision:
        return Accumulation(output, attribution=problem.attribution, stored=output)
    return acc


def scattered_sums(
    problem: Problem,
    x: Tensor,
    index: Tensor,
    src: Tensor,
    *,
    dim: int = -1,
    scale: float = 1.0,
) -> Acceptance:
    """Return the acceptance of x[i] plus scale times every src whose index is i.

    With c sources a place sums c + 1 terms in any order, as gamma(c) (|x| +
    sum|scale src|); besides the scale's own rounding and that of the product with
    it, of each source or of their sum, unless it is a power of two. What no index
    names keeps its value.

    Args:
        problem: the inputs and the declaration.
        x: float64, n along `dim`.
        index: int64, k along `dim`, in [0, n).
        src: float64, as the index.
        dim: the dimension along which indices select.
        scale: factor of the sources; not 0.
    """
    acc, data = accumulation(problem), problem.format
    flush = problem.flushes
    exact_scale = math.frexp(abs(scale))[0] == 0.5
    terms = src * scale

    def total(base: Tensor, scattered: Tensor) -> Tensor:
        return base.scatter_add(dim, index, scattered)

    def either(base: Tensor, scattered: Tensor) -> Tensor:
        return total(base.to(torch.float64), scattered.to(torch.float64)) > 0

    finite, added = finite_or_zero(x), finite_or_zero(terms)
    count = total(torch.zeros_like(x), torch.ones_like(src))
    magnitude = total(finite.abs(), added.abs())
    narrow = data.precision > acc.format.precision
    extra = int(narrow) + (0 if exact_scale else 2)
    coarse = acc.operand_error(data, operands=1)
    error = (_coefficients(acc, count, extra) + coarse) * magnitude
    floor = acc.operand_floor(data, flush=False)
    if flush:
        floor = max(floor, acc.format.min_normal)
    if floor or scale != 1 or acc.stored is not None:
        vanish = (added.abs() < floor) | (src.abs() < floor)
        error = error + total(
            torch.where(finite.abs() < floor, finite.abs(), 0.0),
            torch.where(vanish, added.abs(), 0.0),
        )
        # Each result of an addition, and of the product, which may come after it.
        results = (count + 1) * (1 if scale == 1 else 1 + max(1.0, abs(scale)))
        error = error + results * acc.lost(1, flush=flush)
    unscaled = finite_or_zero(src)
    lowest = torch.minimum(lowest_bit_exponent(added), lowest_bit_exponent(unscaled))
    lowest = lowest_bit_exponent(finite).scatter_reduce(dim, index, lowest, "amin")
    exact = fits_exactly(magnitude, lowest, acc, flush=flush)
    if coarse or not exact_scale:
        exact = torch.zeros_like(exact)
    untouched = (count == 0) & (not (coarse or narrow))
    error = torch.where(exact | untouched, torch.zeros_like(error), error)

    def overflow(base: Tensor, scattered: Tensor) -> Tensor:
        positive = total(base.clamp(min=0), scattered.clamp(min=0))
        negative = total((-base).clamp(min=0), (-scattered).clamp(min=0))
        return can_overflow(positive, negative, src.shape[dim] + 1, acc)

    overflows = overflow(finite, added)
    if abs(scale) < 1:
        # The sources may be summed before they are scaled.
        overflows = overflows | overflow(torch.zeros_like(finite), unscaled)
    classes = sum_classes(
        either(x.isnan(), terms.isnan()),
        either(x == float("inf"), terms == float("inf")),
        either(x == float("-inf"), terms == float("-inf")),
        overflows & ~untouched,
    )
    return classes.accepted(problem, total(finite, added), error)


def _coefficients(acc: Accumulation, count: Tensor, extra: int) -> Tensor:
    """Return the relative error of a sum of count + 1 terms, element by element."""
    values, inverse = torch.unique(count, return_inverse=True)
    found = [
        acc.summation(int(c) + 1, extra=extra) + gamma(int(c) + 2, U64)
        for c in values.tolist()
    ]
    table = torch.tensor(found, dtype=torch.float64, device=count.device)
    return table[inverse]
