"""Error rules of arithmetic and elementary functions, element by element.

|f(a') - f(a)| over |a' - a| <= e is found at the ends of the interval, exactly and
not to first order, where f is monotone; each step then adds its own roundings. The
budgets of functions are those of `kfuzz.numerics.models.functions`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor

from kfuzz.numerics.accumulation import (
    EXP_ARGUMENT,
    EXP_ERROR,
    finite_or_zero,
    is_finite,
    plainly_finite,
    zero,
)
from kfuzz.numerics.models.functions import (
    DIVISION_ERROR,
    ERF_ERROR,
    EXPM1_ERROR,
    FAST_ERF_ABSOLUTE,
    FAST_EXP_ERROR,
    FAST_LOG_ABSOLUTE,
    FAST_LOG_ERROR,
    FAST_TANH_RELATIVE,
    LOG_ERROR,
    TANH_ERROR,
    VANISHING,
)
from kfuzz.numerics.shadow.shade import (
    WILD,
    Call,
    NoRule,
    Operand,
    Outcome,
    Shade,
    Steps,
    any_of,
    rule,
    sound,
)

# sqrt: 1 ulp without precise square roots; rsqrt: 2 ulp.
SQRT_ERROR: Final = 3
RSQRT_ERROR: Final = 5
# sin and cos: 2 ulp, tan 4; pow 4; hyperbolic functions 4 and inverse ones 4.
SIN_ERROR: Final = 5
POW_ERROR: Final = 9
OTHER_ERROR: Final = 9
# `sin.approx`: 2^-20.5 absolute within two turns, 2^-14.7 within a hundred.
FAST_SIN: Final = ((6.2831, 2.0**-20.5), (314.0, 2.0**-14.7))
# A factor below this many least normal numbers may be flushed, times another factor,
# before a third one would make it normal again: (d r) g as d (r g).
NEAR_UNDERFLOW: Final = 2.0**24


def finished(
    out: Tensor,
    error: Tensor,
    certain: Callable[[], Tensor | bool] | Tensor | bool,
    limited: Tensor,
    *,
    nonnegative: bool = False,
    terms: int = 0,
    reach: Tensor | None = None,
) -> Outcome:
    """Return an elementwise outcome.

    Args:
        out: the result.
        error: of its finite elements.
        certain: where a result that is no number is so for every kernel, or what says
            it.
        limited: range-limited elements.
        nonnegative: whether no kernel's result is below 0.
        terms: of how many terms the results are sums.
        reach: of products; see `Shade`.
    """
    error = sound(error)
    if not plainly_finite(out):
        is_so = torch.as_tensor(certain() if callable(certain) else certain)
        special = torch.where(is_so, 0.0, float("inf"))
        error = torch.where(is_finite(out), error, special)
    shade = Shade(
        error, limited.expand(out.shape), nonnegative, terms=terms, reach=reach,
        fresh=True,
    )  # fmt: skip
    return out, (shade,)


def known(*operands: Operand) -> Tensor:
    """Return where something is known of every operand: infinities are, or are not."""
    made = is_finite(operands[0].error)
    for x in operands[1:]:
        made = made & is_finite(x.error)
    return made


def _sum(call: Call, out: Tensor, a: Operand, b: Operand) -> Outcome:
    """Return the outcome of a + alpha b, a the operand that alpha does not scale."""
    alpha = call.get("alpha", 1)
    scale = abs(float(alpha))
    error = a.error + scale * b.error if scale != 1 else a.error + b.error
    halves = 1.0
    if scale != 1:
        constant = call.operand_of(alpha)
        error = error + (constant.error + call.steps.unit * scale) * b.value.abs()
    terms = a.shade.terms + b.shade.terms
    if terms and not call.steps.own:
        for one, other in ((a, b), (b, a)):
            if one.shade.terms:
                size = other.value.abs() + other.error
                inner = call.steps.acc.summation(one.shade.terms + 1) * size
                error = error + torch.where(torch.isfinite(other.value), inner, 0.0)
    made = call.steps.rounded(out, error, halves)
    if scale == 1 and not terms:
        made = call.steps.exact(made, (out == 0) & (a.error == 0) & (b.error == 0))
    beyond = zero(out)
    if scale != 1:  # the product may leave the range that the sum keeps
        size = torch.where(torch.isfinite(b.value), scale * b.value.abs(), 0.0)
        beyond = (size > call.steps.limit).to(torch.float64)
    signs = a.shade.nonnegative and b.shade.nonnegative and alpha >= 0
    plus = call.name.endswith(".add")
    # An infinite operand decides the class whatever the other's error is.
    return finished(
        out, made, lambda: known(a, b),
        any_of(a.read(call.steps), b.read(call.steps), beyond),
        nonnegative=signs and plus, terms=terms + 1 if terms else 0,
    )  # fmt: skip


@rule("add", "sub")
def _add(call: Call) -> Outcome:
    return _sum(call, call.out, call.operand("self"), call.operand("other"))


@rule("rsub")
def _rsub(call: Call) -> Outcome:
    return _sum(call, call.out, call.operand("other"), call.operand("self"))


def _sure_sign(x: Operand) -> Tensor:
    """Return where every kernel's value has the sign of x, or is 0 with it."""
    sure = _nothing(x) | (x.value.abs() > x.error) | ~is_finite(x.value)
    return sure & known(x)


def _nothing(x: Operand) -> Tensor:
    """Return where an operand is 0 in every kernel."""
    return (x.value == 0) & (x.error == 0)


def _vanishing(x: Operand, steps: Steps) -> Tensor:
    """Return where a factor is so small that another order of factors may flush it."""
    near = steps.flush * NEAR_UNDERFLOW * steps.compute.min_normal
    if x.extent.least >= near:
        return zero(x.value)
    return ((x.value != 0) & (x.value.abs() < near)).to(torch.float64)


def _overflowing(out: Tensor, reach: Tensor, steps: Steps) -> Tensor:
    """Return where another order of factors overflows on the way to the result."""
    if steps.own or (reach.is_cpu and float(reach.sum()) <= steps.limit):
        return zero(reach)
    return ((reach > steps.limit) & (out.abs() <= steps.limit)).to(torch.float64)


def _of_product(a: Operand, b: Operand) -> Tensor:
    """Return what errors of factors make of their product."""
    parts = [x.value.abs().mul(y.error) for x, y in ((a, b), (b, a)) if y.extent.error]
    if len(parts) == 2:
        return parts[0].addcmul(a.error, b.error).add(parts[1])
    return parts[0] if parts else zero(a.value)


@rule("mul")
def _mul(call: Call) -> Outcome:
    a, b, steps = call.operand("self"), call.operand("other"), call.steps
    error = _of_product(a, b)
    if call.out.dtype is torch.bool:
        return finished(call.out, error, True, any_of(a.shade.limited, b.shade.limited))
    exact = a.is_power_of_two or b.is_power_of_two
    made = steps.rounded(call.out, error, 0.0 if exact else 1.0)
    if not (a.extent.least and b.extent.least):
        none = (_nothing(a) | _nothing(b)) & known(a, b)
        made = steps.exact(made, none & (call.out == 0))
    square = call.named["self"] is call.named["other"]
    limited, reach = any_of(a.read(steps), b.read(steps)), None
    if not (a.is_small and b.is_small):
        reach = a.reach * b.reach
        limited = any_of(limited, _overflowing(call.out, reach, steps))
    if a.number is None and b.number is None and not steps.own:
        limited = any_of(limited, _vanishing(a, steps), _vanishing(b, steps))

    def certain() -> Tensor:
        counted = ~(a.left_out(steps) | b.left_out(steps))
        return _sure_sign(a) & _sure_sign(b) & counted

    return finished(
        call.out, made, certain, limited,
        nonnegative=square or (a.shade.nonnegative and b.shade.nonnegative),
        reach=reach,
    )  # fmt: skip


def quotient(call: Call, a: Operand, b: Operand, out: Tensor) -> Outcome:
    """Return the outcome of a / b: (e_a + |a/b| e_b) / (|b| - e_b) and a division."""
    apart = b.extent.least > b.extent.error
    if b.extent.error or not apart:
        room = b.value.abs() - b.error
        error = (a.error + out.abs() * b.error) / room.clamp(min=0)
    else:
        error = a.error / b.value.abs()
    if not apart:
        error = torch.where((room > 0) | (error == 0), error, float("inf"))
        # Of a sum of infinite size nothing but 0 is left.
        error = torch.where(torch.isinf(b.value), 0.0, error)
    exact = b.is_power_of_two
    made = call.steps.rounded(out, error, 0.0 if exact else DIVISION_ERROR)
    if not a.extent.least:
        made = call.steps.exact(made, _nothing(a) & (out == 0) & _sure_sign(b))
    limited, reach = any_of(a.read(call.steps), b.read(call.steps)), None
    if not (a.is_small and b.extent.least >= 1):
        reach = a.reach * finite_or_zero(1 / b.value).abs().clamp(min=1)
        limited = any_of(limited, _overflowing(out, reach, call.steps))
    return finished(
        out, made, lambda: _sure_sign(a) & _sure_sign(b), limited,
        nonnegative=a.shade.nonnegative and b.shade.nonnegative,
        reach=reach,
    )  # fmt: skip


@rule("div", "floor_divide")
def _div(call: Call) -> Outcome:
    a, b = call.operand("self"), call.operand("other")
    mode = call.get("rounding_mode")
    if call.name.endswith("floor_divide"):
        mode = "floor"
    exact = a.value / b.value
    made = quotient(call, a, b, exact)
    if mode is None:
        return call.out, made[1]
    (shade,) = made[1]
    assert shade is not None
    cut = torch.floor if mode == "floor" else torch.trunc
    error = _distance(cut, exact, shade.error, call.out)
    return finished(call.out, error, torch.isfinite(shade.error), shade.limited)


@rule("reciprocal")
def _reciprocal(call: Call) -> Outcome:
    return quotient(call, call.operand_of(1.0), call.operand("self"), call.out)


def _distance(
    f: Callable[[Tensor], Tensor], a: Tensor, error: Tensor, out: Tensor
) -> Tensor:
    """Return the greatest |f(a') - out| at the ends of the interval around a."""
    above, below = (f(a + error) - out).abs(), (f(a - error) - out).abs()
    made = torch.maximum(above, below)
    return torch.where(error == 0, torch.zeros_like(made), made)


@dataclass(frozen=True)
class Function:
    """A monotone elementary function.

    Attributes:
        f: the function in float64.
        halves: its budget in halves of a unit in the last place.
        fast: the same for the fast approximation; None where there is none.
        domain: least argument; None where it has all numbers.
        top: greatest argument; None where it has all numbers above the least.
        positive: whether its values are not below 0.
        flushes: whether subnormal results may vanish whatever is declared: no vendor's
            fast path of exp2 keeps them.
        level: whether its limits at infinity are exact.
        absolute: absolute error, in units, of the other forms that people write.
        fast_absolute: absolute error of the fast approximation.
        fast_relative: relative error of it.
    """

    f: Callable[[Tensor], Tensor]
    halves: float
    fast: float | None = None
    domain: float | None = None
    top: float | None = None
    positive: bool = False
    flushes: bool = False
    level: bool = True
    absolute: float = 0.0
    fast_absolute: float = 0.0
    fast_relative: float = 0.0


FUNCTIONS: Final = {
    "exp": Function(
        torch.exp, EXP_ERROR, FAST_EXP_ERROR, positive=True, flushes=True
    ),
    "exp2": Function(torch.exp2, EXP_ERROR, positive=True, flushes=True),
    # exp(x) - 1 where the reference says expm1, log(1 + x) where it says log1p.
    "expm1": Function(torch.expm1, EXPM1_ERROR, absolute=EXP_ERROR + 1),
    "log1p": Function(
        torch.log1p, EXPM1_ERROR, FAST_LOG_ERROR, -1.0, absolute=2.0,
        fast_absolute=FAST_LOG_ABSOLUTE,
    ),
    "log": Function(
        torch.log, LOG_ERROR, FAST_LOG_ERROR, 0.0, fast_absolute=FAST_LOG_ABSOLUTE
    ),
    "log2": Function(
        torch.log2, LOG_ERROR, FAST_LOG_ERROR, 0.0, fast_absolute=2.0**-21
    ),
    "log10": Function(
        torch.log10, LOG_ERROR, FAST_LOG_ERROR, 0.0, fast_absolute=FAST_LOG_ABSOLUTE
    ),
    "sqrt": Function(torch.sqrt, SQRT_ERROR, domain=0.0, positive=True),
    "rsqrt": Function(torch.rsqrt, RSQRT_ERROR, domain=0.0, positive=True),
    # 2 sigmoid(2x) - 1 or (1 - e) / (1 + e) near 0: half of the error of e = exp(-2x),
    # then the sum and the quotient are rounded.
    "tanh": Function(
        torch.tanh, TANH_ERROR, absolute=EXP_ERROR / 2 + 3,
        fast_relative=FAST_TANH_RELATIVE,
    ),
    "erf": Function(torch.erf, ERF_ERROR, fast_absolute=FAST_ERF_ABSOLUTE + 2.0**-21),
    # 1 - erf, whose error in the upper tail is absolute.
    "erfc": Function(
        torch.erfc, ERF_ERROR, positive=True, absolute=ERF_ERROR + 1,
        fast_absolute=FAST_ERF_ABSOLUTE + 2.0**-21,
    ),
    "sinh": Function(torch.sinh, OTHER_ERROR),
    "cosh": Function(torch.cosh, OTHER_ERROR, positive=True),
    "asinh": Function(torch.asinh, OTHER_ERROR),
    "atan": Function(torch.atan, SIN_ERROR, level=False),
    # Documented to 2, 2, 4, 3 ulp; erfinv to 2.
    "acos": Function(torch.acos, SIN_ERROR, domain=-1.0, top=1.0, positive=True),
    "asin": Function(torch.asin, SIN_ERROR, domain=-1.0, top=1.0),
    "acosh": Function(torch.acosh, OTHER_ERROR, domain=1.0, positive=True),
    "atanh": Function(torch.atanh, OTHER_ERROR, domain=-1.0, top=1.0),
    "erfinv": Function(torch.erfinv, OTHER_ERROR, domain=-1.0, top=1.0),
}  # fmt: skip


def mapped(call: Call, made: Function) -> Outcome:
    """Return the outcome of a monotone function."""
    a, out, steps = call.operand("self"), call.out, call.steps
    low, high = a.value - a.error, a.value + a.error
    limited = a.read(steps)
    seen = low
    if made.domain is not None:
        seen = torch.where(a.value >= made.domain, low.clamp(min=made.domain), low)
        if not (a.shade.nonnegative and made.domain == 0):
            # Some kernel may hold a number outside and rightly give NaN.
            outside = (low < made.domain) & (a.value >= made.domain) & (a.error > 0)
            limited = any_of(limited, outside.to(torch.float64))
    if made.top is not None:
        outside = (high > made.top) & (a.value <= made.top) & (a.error > 0)
        limited = any_of(limited, outside.to(torch.float64))
        high = torch.where(a.value <= made.top, high.clamp(max=made.top), high)
    error = zero(out)
    if a.extent.error:
        error = torch.maximum((made.f(high) - out).abs(), (made.f(seen) - out).abs())
        error = torch.where(a.error == 0, 0.0, error)
    halves: float = made.halves
    absolute: Tensor | float = 0.0
    if not (steps.own or steps.form):
        absolute = made.absolute * steps.unit
    if steps.form and made.f is torch.exp:
        argument = EXP_ARGUMENT * steps.unit * finite_or_zero(a.value).abs()
        absolute = absolute + torch.where(out > 0, argument * finite_or_zero(out), 0.0)
    if steps.fast:
        halves = max(halves, made.fast or 0.0)
        absolute += made.fast_absolute
    if made.flushes:
        absolute += steps.compute.min_normal
    total = steps.rounded(out, error, halves, absolute=absolute)
    if steps.fast and made.fast_relative:
        total = total + made.fast_relative * (out.abs() + error)
    if not steps.fast:  # of 0, or of 1, 0 is 0 in every library, where it is
        total = steps.exact(total, (out == 0) & (a.error == 0))
    if made.flushes:  # and so is what is far below every number
        gone = VANISHING * steps.compute.min_subnormal
        total = steps.exact(total, out + error < gone)
    if made.level and a.extent is WILD:
        total = torch.where(torch.isinf(a.value), steps.kept(out, 0 * out), total)

    def certain() -> Tensor:
        same = torch.isnan(out) & torch.isnan(made.f(low)) & torch.isnan(made.f(high))
        return (~is_finite(a.value) & known(a)) | (a.error == 0) | same

    return finished(out, total, certain, limited, nonnegative=made.positive)


for _name, _function in FUNCTIONS.items():
    rule(_name)(partial(mapped, made=_function))


@rule("sigmoid")
def _sigmoid(call: Call) -> Outcome:
    """1 / (1 + exp(-x)): s(1-s)(4u|x| + 5u) + 6u s; 0 where exp(-x) overflows."""
    a, s, steps = call.operand("self"), call.out, call.steps
    error = _distance(torch.sigmoid, a.value, a.error, s)
    size = torch.where(torch.isinf(a.value), 0.0, a.value.abs())
    own = FAST_EXP_ERROR if steps.fast else EXP_ERROR
    inner = s * (1 - s) * (EXP_ARGUMENT * size + own) * steps.unit
    # Where 1 + exp(-x) overflows, or its reciprocal is subnormal, 0 is stored.
    least = 2 * steps.compute.min_normal
    made = steps.rounded(s, error, 1 + DIVISION_ERROR, absolute=inner + least)
    return finished(s, made, known(a), a.read(steps), nonnegative=True)


@rule("sin", "cos")
def _sine(call: Call) -> Outcome:
    a, steps = call.operand("self"), call.steps
    error, absolute = a.error.clamp(max=2.0), torch.zeros_like(a.value)
    if steps.fast:
        absolute = torch.full_like(a.value, 2.0)
        for reach, bound in reversed(FAST_SIN):
            absolute = torch.where(a.value.abs() <= reach, bound, absolute)
    made = steps.rounded(call.out, error, SIN_ERROR, absolute=absolute)
    return finished(call.out, made, known(a), a.read(steps))


@rule("neg", "abs")
def _neg(call: Call) -> Outcome:
    a = call.operand("self")
    nonnegative = call.name.endswith("abs")
    return finished(
        call.out, a.error, known(a), a.shade.limited, nonnegative=nonnegative
    )


@rule("floor", "ceil", "trunc", "round", "sign", "sgn")
def _steps(call: Call) -> Outcome:
    """Monotone functions with jumps: a doubt about the side is an error of the jump."""
    a = call.operand("self")
    f = getattr(torch, call.name.removeprefix("aten."))
    if call.get("decimals"):
        raise NoRule(call.name)
    error = _distance(f, a.value, a.error, call.out)
    return finished(call.out, error, known(a), a.shade.limited)


@rule("pow")
def _pow(call: Call) -> Outcome:
    base, power = call.operand("self"), call.operand("exponent")
    steps, out = call.steps, call.out
    if power.number in (0.0, 1.0):
        error = base.error if power.number else torch.zeros_like(out)
        return finished(out, error, known(base), base.shade.limited)
    if power.number in _POWERS:
        return _POWERS[power.number](call)
    limited = any_of(base.read(steps), power.read(steps))
    corners = [
        torch.pow(base.value + s * base.error, power.value + t * power.error)
        for s in (-1, 1)
        for t in (-1, 1)
    ]
    error = torch.stack([(c - out).abs().expand(out.shape) for c in corners])
    exact = (base.error == 0) & (power.error == 0)
    error = torch.where(exact, torch.zeros_like(out), error.amax(0))
    # Around 0 the corners do not tell; there an exact base is asked for.
    apart = (base.value.abs() > base.error) | (base.error == 0)
    error = torch.where(apart, error, float("inf"))
    argument = (power.value * base.value.abs().log()).abs()
    argument = torch.where(torch.isfinite(argument), argument, 0.0)
    # exp(b log a) is what many kernels compute.
    inner = EXP_ARGUMENT * steps.unit * argument * out.abs()
    inner = torch.where(torch.isfinite(inner), inner, 0.0)
    made = steps.rounded(out, error, POW_ERROR, absolute=inner)
    certain = ~(torch.isfinite(base.value) & torch.isfinite(power.value))
    certain = exact | (certain & known(base, power))
    return finished(out, made, certain, limited, nonnegative=base.shade.nonnegative)


_POWERS: Final[dict[float, Callable[[Call], Outcome]]] = {
    2.0: lambda call: _mul(replace(call, named={**call.named, "other": _base(call)})),
    3.0: partial(mapped, made=Function(lambda x: x * x * x, 3.0)),
    -1.0: lambda call: _reciprocal(call),
    0.5: partial(mapped, made=FUNCTIONS["sqrt"]),
    -0.5: partial(mapped, made=FUNCTIONS["rsqrt"]),
}


def _base(call: Call) -> Any:
    return call.named["self"]


# Error rules of functions that are not monotone, or have jumps, and of selections.

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


for _functions_name, _smooth in SMOOTH.items():
    rule(_functions_name)(partial(smooth, made=_smooth))


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

    def value(x: Tensor) -> Tensor:
        made = call.again({**call.named, "self": x})
        return made[0] if isinstance(made, tuple) else made  # type: ignore[no-any-return]

    out = call.out
    values = out[0] if isinstance(out, tuple) else out
    ends = [gap(value(a.value + s * a.error), values) for s in (-1, 1)]
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


def gap(a: Tensor, b: Tensor) -> Tensor:
    """Return |a - b|, 0 where both are the same infinity or NaN."""
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


for _rank, _functions_name in ((1, "upsample_linear1d"), (2, "upsample_bilinear2d"),
                     (3, "upsample_trilinear3d")):  # fmt: skip
    rule(_functions_name)(partial(_resampled, rank=_rank))
