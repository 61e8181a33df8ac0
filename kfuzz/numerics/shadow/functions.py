"""Error rules of functions that are not monotone, or have jumps, and of selections."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import torch
from torch import Tensor

from kfuzz.numerics.bounds import EXP_ARGUMENT
from kfuzz.numerics.elements import finite_or_zero
from kfuzz.numerics.shadow.elementwise import finished, known
from kfuzz.numerics.shadow.shade import Call, Outcome, Shade, any_of, rule

# Documented nowhere for every device; the peak errors that Cephes gives for its
# single-precision functions are below 8 units, twice that here.
SPECIAL_ERROR: Final = 33
# tan: 4 ulp; atan2 and hypot: 3 (CUDA C++ Programming Guide, mathematical functions).
TAN_ERROR: Final = 9
ATAN2_ERROR: Final = 7
HYPOT_ERROR: Final = 7
# Roundings of a reflection formula, and the same of what it cancels from.
REFLECTION: Final = 16.0


@dataclass(frozen=True)
class Smooth:
    """A function whose slope is bounded around an argument.

    Attributes:
        slope: the greatest |f'| between two numbers, element by element; infinite
            where it has none.
        halves: its budget in halves of a unit in the last place.
        absolute: absolute error of the forms in use, in units of roundoff, at an
            argument and result.
        factor: what the argument is multiplied by first, which may overflow.
    """

    slope: Callable[[Tensor, Tensor], Tensor]
    halves: float
    absolute: Callable[[Tensor, Tensor], Tensor] | None = None
    factor: float = 1.0


def _ends(
    f: Callable[[Tensor], Tensor], low: Tensor, high: Tensor, within: Tensor
) -> Tensor:
    """Return the greater |f| at two ends, infinite outside of where that bounds it."""
    made = torch.maximum(f(low).abs(), f(high).abs())
    return torch.where(within & torch.isfinite(made), made, math.inf)


def _of_tan(low: Tensor, high: Tensor) -> Tensor:
    apart = torch.floor(low / math.pi - 0.5) == torch.floor(high / math.pi - 0.5)
    return _ends(lambda x: 1 + x.tan() ** 2, low, high, apart)


def _reflected_lgamma(x: Tensor, out: Tensor) -> Tensor:
    """log(pi / |sin(pi x)|) - lgamma(1 - x) for x < 0, sin at an inexact pi x."""
    sine = torch.sin(math.pi * (x - torch.round(x))).abs()
    other = torch.lgamma(1 - x.clamp(max=0))
    below = REFLECTION * (out.abs() + other.abs()) + 8 * math.pi * x.abs() / sine
    # Near 1 and 2 it is a difference; log x and x log x otherwise.
    above = REFLECTION * torch.log1p(x.abs())
    return torch.where(x < 0.5, below + above + REFLECTION, above + REFLECTION)


def _reflected_digamma(x: Tensor, out: Tensor) -> Tensor:
    """psi(1 - x) - pi cot(pi x) for x < 0; a recurrence of 1 / x for small x."""
    sine = torch.sin(math.pi * (x - torch.round(x))).abs()
    other = torch.digamma(1 - x.clamp(max=0)).abs()
    cotangent = math.pi / sine
    below = REFLECTION * (out.abs() + other + cotangent)
    below = below + 8 * math.pi * math.pi * x.abs() / (sine * sine)
    above = REFLECTION * (2 + torch.log1p(x.abs()) + 1 / x.abs())
    return torch.where(x < 0, below + above, above)


def _exponential(x: Tensor, out: Tensor) -> Tensor:
    """The error of exp(x) in a product with it."""
    return EXP_ARGUMENT * x.abs() * out.abs()


SMOOTH: Final = {
    "tan": Smooth(_of_tan, TAN_ERROR),
    # |d/dx sin(pi x) / (pi x)| < 1.38; the sine at an inexact pi x.
    "sinc": Smooth(
        lambda low, high: torch.full_like(low, 1.38),
        SPECIAL_ERROR,
        lambda x, out: 4 * torch.ones_like(out),
        factor=math.pi,
    ),
    "lgamma": Smooth(
        lambda low, high: _ends(torch.digamma, low, high, low > 0),
        13,
        _reflected_lgamma,
    ),
    "digamma": Smooth(
        lambda low, high: _ends(
            lambda x: torch.special.polygamma(1, x), low, high, low > 0
        ),
        13,
        _reflected_digamma,
    ),
    "i0": Smooth(
        lambda low, high: _ends(torch.special.i1, low, high, low == low),
        SPECIAL_ERROR,
        _exponential,
    ),
    "special_i0e": Smooth(
        lambda low, high: torch.ones_like(low), SPECIAL_ERROR, _exponential
    ),
    "special_i1": Smooth(
        lambda low, high: _ends(torch.i0, low, high, low == low),
        SPECIAL_ERROR,
        _exponential,
    ),
    "special_i1e": Smooth(
        lambda low, high: torch.ones_like(low), SPECIAL_ERROR, _exponential
    ),
}


def smooth(call: Call, made: Smooth) -> Outcome:
    """Return the outcome of a function with a bounded slope."""
    a, out, steps = call.operand("self"), call.out, call.steps
    low, high = a.value - a.error, a.value + a.error
    moved = torch.where(a.error > 0, a.error * made.slope(low, high), 0.0)
    absolute: Tensor | float = 0.0
    if made.absolute is not None:
        absolute = steps.unit * made.absolute(a.value, out)
        absolute = torch.where(torch.isnan(absolute), math.inf, absolute)
    total = steps.rounded(out, moved, made.halves, absolute=absolute)
    certain = (~torch.isfinite(a.value) & known(a)) | (a.error == 0)
    size = made.factor * finite_or_zero(a.value).abs()
    beyond = (size > steps.limit).to(torch.float64)
    return finished(out, total, certain, any_of(a.read(steps), beyond))


for _name, _smooth in SMOOTH.items():
    rule(_name)(partial(smooth, made=_smooth))


@rule("copysign")
def _copysign(call: Call) -> Outcome:
    a, b = call.operand("self"), call.operand("other")
    doubt = (b.error > 0) & (b.value.abs() <= b.error)
    error = torch.where(doubt, 2 * a.value.abs() + a.error, a.error)
    return finished(call.out, error, known(a) & ~doubt, a.shade.limited)


@rule("fmod", "remainder")
def _fmod(call: Call) -> Outcome:
    """The remainder is a number of the format; a divisor added to it rounds."""
    a, b, steps = call.operand("self"), call.operand("other"), call.steps
    f = torch.fmod if call.name.endswith("fmod") else torch.remainder
    out = call.out
    ends = [(f(a.value + s * a.error, b.value) - out).abs() for s in (-1, 1)]
    error = torch.where(a.error > 0, torch.maximum(*ends), 0.0)
    # Across a multiple of the divisor the ends do not bound what lies between.
    crossed = (a.error > 0) & (error > 2 * a.error)
    error = torch.where(crossed, b.value.abs() + a.error, error)
    error = torch.where(b.error > 0, math.inf, error)
    exact = call.name.endswith("fmod")
    total = steps.rounded(out, error, 0.0 if exact else 1.0)
    if not exact:
        # What is added to a remainder far below it is rounded as the sum is.
        total = total + steps.unit * b.value.abs() * ((out != 0) & (a.value != 0))
    return finished(out, total, known(a, b) & (b.error == 0), a.read(steps))


@rule("atan2")
def _atan2(call: Call) -> Outcome:
    """(b e_a + a e_b) / (a^2 + b^2); 2 pi where the sign of a is open and b < 0."""
    a, b, steps = call.operand("self"), call.operand("other"), call.steps
    out = call.out
    x, y = finite_or_zero(a.value), finite_or_zero(b.value)
    near = (x.abs() - a.error).clamp(min=0) ** 2 + (y.abs() - b.error).clamp(min=0) ** 2
    moved = (y.abs() + b.error) * a.error + (x.abs() + a.error) * b.error
    error = torch.where(moved > 0, moved / near, 0.0)
    open_sign = (a.error > 0) & (x.abs() <= a.error) & (y - b.error < 0)
    error = torch.where(open_sign, 2 * math.pi, error.clamp(max=2 * math.pi))
    error = torch.where(torch.isnan(moved / near) & (moved > 0), 2 * math.pi, error)
    total = steps.rounded(out, error, ATAN2_ERROR)
    # The quotient of the two may overflow or vanish on the way.
    limited = any_of(a.read(steps), b.read(steps))
    return finished(out, total, known(a, b), limited)


@rule("hypot")
def _hypot(call: Call) -> Outcome:
    """Each operand moves it by no more than itself; naive squares may overflow."""
    a, b, steps = call.operand("self"), call.operand("other"), call.steps
    out = call.out
    total = steps.rounded(out, a.error + b.error, HYPOT_ERROR)
    squares = finite_or_zero(a.value) ** 2 + finite_or_zero(b.value) ** 2
    beyond = (squares > steps.limit).to(torch.float64)
    small = out < math.sqrt(steps.compute.min_normal)
    total = torch.where(small, total + out, total)
    limited = any_of(a.read(steps), b.read(steps), beyond)
    return finished(out, total, known(a, b), limited, nonnegative=True)


@rule("median", "nanmedian", "kthvalue", "cummax", "cummin")
def _selected(call: Call) -> Outcome:
    """An element by its rank: monotone in every element; its place is not judged."""
    a = call.operand("self")
    again = call.again
    assert again is not None

    def value(x: Tensor) -> Tensor:
        made = again({**call.named, "self": x})
        return made[0] if isinstance(made, tuple) else made  # type: ignore[no-any-return]

    out = call.out
    values = out[0] if isinstance(out, tuple) else out
    ends = [_gap(value(a.value + s * a.error), values) for s in (-1, 1)]
    error = torch.maximum(*ends)
    limited = torch.full_like(error, float((a.shade.limited > 0).any()))
    shade = finished(values, error, error == 0, limited)[1][0]
    if not isinstance(out, tuple):
        return out, (shade,)
    return out, (shade, _open(out[1]))


@rule("mode")
def _mode(call: Call) -> Outcome:
    """Counts of equal elements: nothing follows where elements are in error."""
    a = call.operand("self")
    values, index = call.out
    doubt = bool((a.error > 0).any())
    error = torch.full_like(values, math.inf if doubt else 0.0)
    return call.out, (Shade(error, torch.zeros_like(error)), _open(index))


def _open(index: Tensor) -> Shade:
    """Return what is known of an index that any of equal elements may have."""
    error = torch.full_like(index, math.inf, dtype=torch.float64)
    return Shade(error, torch.zeros_like(error))


def _gap(a: Tensor, b: Tensor) -> Tensor:
    same = (a == b) | (torch.isnan(a) & torch.isnan(b))
    return torch.where(same, 0.0, (a - b).abs())


@rule("logcumsumexp")
def _logcumsumexp(call: Call) -> Outcome:
    """log(sum exp) of each prefix, joined in any order.

    Each joining, m + log1p(exp(-d)), rounds numbers of the size of m by 2 u and
    leaves 10 u behind; a prefix of i elements has i - 1 of them.
    """
    a, steps, out = call.operand("self"), call.steps, call.out
    if not a.value.dim():
        return out, (a.shade,)
    dim = int(call.get("dim"))
    size = torch.maximum(finite_or_zero(a.value).abs(), finite_or_zero(out).abs())
    size = size.cummax(dim).values
    count = torch.ones_like(out).cumsum(dim)
    carried = a.error.cummax(dim).values
    error = carried + count * steps.unit * (2 * size + 10)
    limited = a.read(steps).cummax(dim).values
    return finished(out, steps.kept(out, error), known(a), limited)


def _resampled(call: Call, rank: int) -> Outcome:
    """Weights of neighbours, from coordinates that are rounded.

    A coordinate of an axis of n elements is in error by 4 u n, and what is between two
    neighbours changes by their difference at most, twice the greatest magnitude.
    """
    a, steps, out = call.operand("self"), call.steps, call.out
    dims = tuple(range(-rank, 0))
    if not a.value.numel():
        return out, (Shade(torch.zeros_like(out), torch.zeros_like(out)),)
    size = (finite_or_zero(a.value).abs() + a.error).amax(dims, keepdim=True)
    count = sum(a.value.shape[d] for d in dims)
    error = steps.unit * (8 * count + 4 * rank + 4) * size
    error = (error + a.error.amax(dims, keepdim=True)).expand(out.shape)
    wild = (~torch.isfinite(a.value)).any(dim=-1, keepdim=True)
    wild = wild.flatten(-rank).any(-1).reshape(size.shape).expand(out.shape)
    error = torch.where(wild, math.inf, error)
    limited = a.read(steps).amax(dims, keepdim=True).expand(out.shape)
    return finished(out, steps.kept(out, error), ~wild, limited)


for _rank, _name in ((1, "upsample_linear1d"), (2, "upsample_bilinear2d"),
                     (3, "upsample_trilinear3d")):  # fmt: skip
    rule(_name)(partial(_resampled, rank=_rank))
