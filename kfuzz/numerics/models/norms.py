"""Error bounds shared by the norms: moments, inverse roots, affine steps.

All rows lie along the last dimension. Sources: Higham, Accuracy and Stability of
Numerical Algorithms, 2nd ed., chapters 1 and 3; Chan, Golub, LeVeque 1983 for the
class of algorithms admitted for a variance.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from kfuzz.numerics.acceptance import (
    NAN,
    Acceptance,
    Problem,
    around,
    between,
    classes_of,
    intermediate_unit,
)
from kfuzz.numerics.accumulation import (
    U64,
    Accumulation,
    finite_or_zero,
    gamma,
    is_finite,
    not_a_number,
    plainly_finite,
    zero,
)
from kfuzz.numerics.formats import FORMATS, Format
from kfuzz.numerics.intervals import Interval

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


@dataclass(frozen=True)
class Moments:
    """Mean and variance of rows, [..., 1], and the differences, [..., n].

    Attributes:
        mean: the exact mean.
        centred: x - mean.
        variance: mean of the squared differences.
        mean_error: bound on the error of a computed mean.
        variance_error: bound on the error of a computed variance.
        ambiguous: whether a sum or a naive square may overflow.
    """

    mean: Tensor
    centred: Tensor
    variance: Tensor
    mean_error: Tensor
    variance_error: Tensor
    ambiguous: Tensor


def moments(x: Tensor, arithmetic: RowArithmetic) -> Moments:
    """Return mean and variance with the errors of Welford's class of methods.

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
    ambiguous = ambiguous | ((4 * x * x).sum(-1, keepdim=True) > top)
    if coarse:
        limit = arithmetic.held.max_finite
        ambiguous = ambiguous | (4 * biggest * biggest > limit)
    return Moments(mean, centred, variance, mean_error, variance_error, ambiguous)


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
    m = moments(safe, arithmetic)
    root = inverse_root(
        m.variance,
        m.variance - m.variance_error,
        m.variance + m.variance_error,
        eps,
        arithmetic,
    )
    y, error, reach = affine(
        safe, m.mean, m.mean_error, root,
        finite_or_zero(weight), finite_or_zero(bias), arithmetic,
    )  # fmt: skip
    ambiguous = m.ambiguous | (reach > arithmetic.acc.limit)
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
    most = size * gain
    relative: float | Tensor = 4 * a.unit
    # Products x r, r g and x g that underflow, factors that are flushed.
    lost = 2 * a.eta * (1 + g.abs() + gain + root.high + size * (1 + root.high))
    if stored:
        # A power of two moves the rounded product as it is.
        exact = (g.abs().frexp().mantissa == 0.5) & (problem.declaration.store == "rne")
        relative = relative + problem.output.unit * ~exact
        least = problem.output.min_normal if a.flush else problem.output.min_subnormal
        lost = lost + least * g.abs()
    error = (relative * most + lost) * SECOND_ORDER
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
        ambiguous = ambiguous | (2 * biggest * biggest > top)
        ambiguous = ambiguous | (root.high > top) | (2 * size * g.abs() > top)
        ambiguous = ambiguous | (2 * gain > top)
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
