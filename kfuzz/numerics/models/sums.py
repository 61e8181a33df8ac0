"""Sums of exponentials with the row maximum subtracted: values and error bounds.

After Blanchard, Higham, Higham, Accurately computing the log-sum-exp and softmax
functions, IMA Journal of Numerical Analysis 2021; the budgets of exp and log are those
of `bounds` and `functions`.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import torch
from torch import Tensor

from kfuzz.numerics.acceptance import (
    NAN,
    Acceptance,
    Interval,
    Problem,
    around,
    between,
    classes_of,
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
    is_at_hand,
    is_finite,
    not_a_number,
    one,
    plainly_finite,
    zero,
)
from kfuzz.numerics.formats import FORMATS, Format, lowest_bit_exponent, power_of_two
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
        plain: bool, nothing of the row is special; keeps the dimension, as all but
            `depth` and `rho`.
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
    rho = (shallow * (-EXP_ARGUMENT * unit)).add_(own)
    rescales = -(-n // ONLINE_TILE) - 1
    flushed = 2.0**-126 if unit <= U32 else problem.output.min_normal
    spread = weight.mul_(rho).sum(dim, keepdim=True) / total + (
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


# Error bounds shared by the norms: moments, inverse roots, affine steps.
#
# All rows lie along the last dimension. Sources: Higham, Accuracy and Stability of
# Numerical Algorithms, 2nd ed., chapters 1 and 3; Chan, Golub, LeVeque 1983 for the
# class of algorithms admitted for a variance.

# Second-order terms that first-order bounds drop.
SECOND_ORDER = 1 + 2.0**-20


@dataclass(frozen=True)
class RowArithmetic:
    """The declared arithmetic of sums and of what is held between the steps.

    Attributes:
        acc: how sums are kept.
        unit: unit roundoff of intermediate results.
        coarse: that unit where it exceeds the accumulator's, else 0.
        held: format whose range intermediate results have.
        eta: absolute error of a product that underflows: the least number held,
            or the greatest one that may be flushed.
        flush: whether subnormal numbers may be flushed.
    """

    acc: Accumulation
    unit: float
    coarse: float
    held: Format
    eta: float
    flush: bool

    @classmethod
    def declared(cls, problem: Problem) -> "RowArithmetic":
        """Return the arithmetic that a problem's declaration names."""
        acc = problem.accumulation
        unit = intermediate_unit(problem)
        coarse = unit if unit > acc.format.unit else 0.0
        held = problem.output if coarse else FORMATS["float32"]
        flush = problem.flushes
        eta = held.min_normal if flush else held.min_subnormal
        return cls(acc, unit, coarse, held, eta, flush)


def moments(x: Tensor, arithmetic: RowArithmetic) -> tuple[Tensor, ...]:
    """Return mean and variance with the errors of Welford's class of methods.

    As mean, bound on its error, variance, bound on its error, and whether a sum or a
    naive square may overflow, each [..., 1].

    Emu = gamma(n + 2 + 2 ln(n+1)) mean|x| holds pairwise, serial and Welford
    means; Ev = gamma(2(n+6)) v + 2 gamma(n+2) sqrt(v) rms + Emu^2 + 2 eta those
    variances, O(n u kappa) with kappa = rms / sqrt(v); the one-pass form
    E[x^2] - E[x]^2, O(n u kappa^2), lies outside.

    Args:
        x: float64 [..., n], finite, n >= 1.
        arithmetic: the declared arithmetic.
    """
    n = x.shape[-1]
    acc, coarse, eta = arithmetic.acc, arithmetic.coarse, arithmetic.eta
    mean = x.mean(-1, keepdim=True)
    centred = x - mean
    variance = (centred * centred).mean(-1, keepdim=True)
    size = x.abs()
    mean_abs = size.mean(-1, keepdim=True)
    square = variance + mean * mean
    height = acc.depth(n)
    depth = height + 3 + math.ceil(2 * math.log(n + 1))
    # Where intermediates are coarser than sums, mean and differences are rounded.
    mean_error = acc.coefficient(depth) * mean_abs + (n + 2) * eta
    if coarse:
        mean_error = mean_error + coarse * mean.abs()
    variance_error = (
        (acc.coefficient(2 * (height + 7)) + 5 * coarse) * variance
        + 2 * acc.coefficient(height + 3) * (variance * square).sqrt()
        + mean_error * mean_error
        + 2 * eta
        + gamma(4 * n + 8, U64) * square
    )
    top, biggest = acc.limit, size.amax(-1, keepdim=True)
    ambiguous = n * biggest > top
    # No sum of squares is more than so many of the greatest.
    if not (is_at_hand(biggest) and (biggest * biggest).amax() * 8 * n <= top):
        ambiguous = ambiguous | ((4 * x * x).sum(-1, keepdim=True) > top)
    if coarse:
        limit = arithmetic.held.max_finite
        ambiguous = ambiguous | (4 * biggest * biggest > limit)
    return mean, mean_error, variance, variance_error, ambiguous


@dataclass(frozen=True)
class InverseRoot:
    """The exact (s + eps)^-1/2 and the interval of its computed values."""

    exact: Tensor
    low: Tensor
    high: Tensor

    @cached_property
    def error(self) -> Tensor:
        """The greater distance of an end from the exact value."""
        return torch.maximum(self.high - self.exact, self.exact - self.low)


def inverse_root(
    exact: Tensor, low: Tensor, high: Tensor, eps: float, arithmetic: RowArithmetic
) -> InverseRoot:
    """Return 1 / sqrt(s + eps) for s in [low, high].

    6 u: rsqrt to 2 ulp (5 u; CUDA, HIP) or a square root and a division, and the
    rounding of s + eps, halved; 2 u: eps rounded as a constant, and the sum.

    Args:
        exact: float64, the exact s.
        low: least computed s; clamped at 0.
        high: greatest computed s.
        eps: the constant added.
        arithmetic: the declared arithmetic.
    """
    unit = arithmetic.unit
    least_eps = eps * (1 - 2 * unit) - (arithmetic.eta if arithmetic.coarse else 0.0)
    top = (1 + 6 * unit) / (low.clamp(min=0) + max(least_eps, 0.0)).sqrt()
    bottom = (1 - 6 * unit) / (high + eps * (1 + 2 * unit)).sqrt()
    return InverseRoot((exact + eps).rsqrt(), bottom, top)


def affine(
    x: Tensor,
    mean: Tensor,
    mean_error: Tensor | float,
    root: InverseRoot,
    weight: Tensor,
    bias: Tensor,
    arithmetic: RowArithmetic,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (x - mu) r g + b, its error, and a bound on every intermediate result.

    In either of its usual forms, the other being x (r g) + (b - mu r g); a division
    takes the place of the product with r within 6 u. All arguments are finite and
    broadcast.
    """
    unit, eta = arithmetic.unit, arithmetic.eta
    r, g = root.exact, weight.abs()
    d = x - mean
    reach_r, size_d = r + root.error, d.abs()
    size, size_b = x.abs() + mean.abs(), bias.abs()
    y = (d * r).mul_(weight).add_(bias)
    # g (|d| Er + (r + Er) (Emu + 3u (|x| + |mu|)) + 6u |d| r) + 2u (|b| + |y|), in
    # place: memory for numbers that no cache holds is most of the time.
    error = size_d * (root.error + 6 * unit * r)
    error.addcmul_(size, 3 * unit * reach_r).add_(reach_r * mean_error).mul_(g)
    error.add_(y.abs(), alpha=2 * unit).add_(size_b, alpha=2 * unit)
    # Products d r, d g and r g that underflow, weights that are flushed.
    error.addcmul_(size_d, r, value=2 * eta).add_(size, alpha=2 * eta)
    error.addcmul_(g, reach_r + 1, value=2 * eta).add_(r + 1, alpha=2 * eta)
    reach = (size + 1).mul_(g).mul_(reach_r).add_(size_b)
    return y, error.mul_(SECOND_ORDER), reach


def normalised(problem: Problem, x: Tensor, weight: Tensor, bias: Tensor) -> Acceptance:
    """Return the acceptance of normalised rows.

    (x - mean) / sqrt(var + eps) * weight + bias; see `moments`, `inverse_root` and
    `affine`. A row with NaN or an infinity is NaN throughout.

    Args:
        problem: gives `eps` and the declaration.
        x: float64 [..., n].
        weight: broadcasts to x.
        bias: broadcasts to x.
    """
    eps = problem.number("eps")
    if x.numel() == 0:
        return around(problem, x, 0.0)
    arithmetic = RowArithmetic.declared(problem)
    plain = all(plainly_finite(given) for given in (x, weight, bias))
    broken = None if plain else ~is_finite(x).all(-1, keepdim=True)
    safe = x if broken is None else torch.where(broken, zero(x), x)
    mean, mean_error, variance, off, beyond = moments(safe, arithmetic)
    root = inverse_root(variance, variance - off, variance + off, eps, arithmetic)
    y, error, reach = affine(
        safe, mean, mean_error, root,
        finite_or_zero(weight), finite_or_zero(bias), arithmetic,
    )  # fmt: skip
    limit, ambiguous = arithmetic.acc.limit, beyond
    if not (is_at_hand(reach) and reach.amax() <= limit):
        ambiguous = ambiguous | (reach > limit)
    if arithmetic.coarse:
        stored = torch.maximum(root.high, reach)
        ambiguous = ambiguous | (stored > arithmetic.held.max_finite)
    if broken is None:
        return around(problem, y, error, ambiguous=ambiguous.expand_as(x))
    # An infinite weight times a normalised value near 0 has no agreed sign.
    unclear = torch.isinf(weight).expand_as(x) & ~broken
    shifted = torch.where(is_finite(bias), y, bias)
    spoiled = broken | torch.isnan(weight) | torch.isnan(bias)
    result = torch.where(spoiled, not_a_number(x), shifted)
    return around(
        problem, result, error,
        ambiguous=ambiguous.expand_as(x),
        undecided=unclear,
    )  # fmt: skip


def row_parameter(problem: Problem, name: str, x: Tensor, *, default: float) -> Tensor:
    """Return a parameter of the last axis as [members, 1, ..., n].

    Args:
        problem: its tensors may lack an optional parameter.
        name: the parameter.
        x: the data, [members, ..., n].
        default: the constant that stands for an omitted parameter.
    """
    shape = (x.shape[0],) + (1,) * (x.dim() - 2) + (x.shape[-1],)
    if name not in problem.tensors:
        return torch.full(shape, default, dtype=torch.float64, device=x.device)
    return problem.tensors[name].reshape(shape)


# Rows divided by their root mean square: bounds shared by RMS norms.


def rms_scaled(
    problem: Problem, x: Tensor, held: Interval, weight: Tensor, *, stored: bool = False
) -> Acceptance:
    """Return the acceptance of x r g, r = (mean x^2 + eps)^-1/2.

    mean x^2 is within gamma(n+5) of itself (n-1 additions, the square, a division
    within 2 ulp) and 2 eta; r as in `inverse_root`; 4 u: two products, or the
    division by the root that takes the place of one. The products may be taken in any
    order.

    Args:
        problem: gives `eps` and the declaration.
        x: float64 rows [..., n], NaN and infinities included.
        held: what a kernel may hold for them, finite.
        weight: g, broadcasts to the rows.
        stored: whether x r may be rounded to the output's format before g.
    """
    if x.numel() == 0:
        return between(problem, x, x, x)
    a = RowArithmetic.declared(problem)
    root = _root(problem, x, held, a)
    g = finite_or_zero(weight)
    ends = torch.stack(
        [v * r * g for v in (held.low, held.high) for r in (root.low, root.high)]
    )
    low, high = ends.amin(0), ends.amax(0)
    size = torch.maximum(held.low.abs(), held.high.abs())
    gain = root.high * g.abs()
    relative: float | Tensor = 4 * a.unit
    # Products x r, r g and x g that underflow, factors that are flushed.
    lost = 2 * a.eta * (1 + g.abs() + gain + root.high + size * (1 + root.high))
    if stored:
        # A power of two moves the rounded product as it is, but into subnormal numbers.
        exact = (g.abs().frexp().mantissa == 0.5) & (problem.declaration.store == "rne")
        again = torch.minimum(low.abs(), high.abs()) < problem.output.min_normal
        relative = relative + problem.output.unit * (again | ~exact)
        least = problem.output.min_normal if a.flush else problem.output.min_subnormal
        lost = lost + least * g.abs()
    error = (relative * size * gain + lost) * SECOND_ORDER
    low, high = low - error, high + error

    has_nan = x.isnan().any(-1, keepdim=True)
    has_inf = torch.isinf(x).any(-1, keepdim=True)
    r = torch.where(has_inf, torch.zeros_like(root.exact), root.exact)
    y = torch.where(has_nan, torch.full_like(x, float("nan")), x * r * weight)
    nothing = has_inf.expand_as(y) | ((held.low == 0) & (held.high == 0))
    low, high = (torch.where(nothing, torch.zeros_like(y), t) for t in (low, high))
    classes = torch.where(y.isnan(), NAN, classes_of(y)).to(torch.uint8)

    top = a.acc.limit
    squares = (size * size).sum(-1, keepdim=True)
    ambiguous = (2 * squares > top) | (2 * size * g.abs() > top) | (2 * gain > top)
    if stored or a.coarse:
        limit = problem.output.max_finite
        ambiguous = ambiguous | (2 * size * root.high > limit)
    if a.coarse:
        top = a.held.max_finite
        biggest = size.amax(-1, keepdim=True)
        ambiguous = ambiguous | (2 * biggest * biggest > top) | (2 * gain > top)
        ambiguous = ambiguous | (root.high > top) | (2 * size * g.abs() > top)
    # An infinite weight meets a product that may have vanished.
    vanishing = (size * root.low < 2 * a.eta) | (size < 2 * a.eta)
    ambiguous = ambiguous | (torch.isinf(weight) & vanishing)
    return between(
        problem, y, low, high,
        classes=classes, ambiguous=ambiguous.expand_as(y) & ~y.isnan(),
    )  # fmt: skip


def _root(problem: Problem, x: Tensor, held: Interval, a: RowArithmetic) -> InverseRoot:
    n = x.shape[-1]
    crosses = (held.low < 0) & (held.high > 0)
    near = torch.minimum(held.low.abs(), held.high.abs())
    far = torch.maximum(held.low.abs(), held.high.abs())
    near = torch.where(crosses, torch.zeros_like(near), near)
    margin = a.acc.coefficient(n + 5) + gamma(n + 5, U64) + 3 * a.coarse
    least = (near * near).mean(-1, keepdim=True) * (1 - margin) - 2 * a.eta
    most = (far * far).mean(-1, keepdim=True) * (1 + margin) + 2 * a.eta
    exact = (finite_or_zero(x) ** 2).mean(-1, keepdim=True)
    return inverse_root(exact, least, most, problem.number("eps"), a)
