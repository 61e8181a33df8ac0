"""Error budgets of elementary functions, as enclosures of what kernels compute.

Budgets are in halves of a unit in the last place, relative: "k ulp from correctly
rounded" is 2 k + 1. Each is the larger of what CUDA's programming guide (appendix on
mathematical functions) and HIP's device library document for float32. The fast ones
hold where `approx=True` is declared.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from kfuzz.core.errors import BindingError
from kfuzz.numerics.acceptance import (
    NAN,
    Acceptance,
    Arithmetic,
    Interval,
    Problem,
    around,
    classes_of,
    intermediate_unit,
    product_classes,
)
from kfuzz.numerics.accumulation import (
    EXP_ARGUMENT,
    EXP_ERROR,
    is_at_hand,
    plainly_finite,
    zero,
)

# log: CUDA 1 ulp, HIP 2; log2(x) ln 2 of a 1 ulp log2 fits in it.
LOG_ERROR: Final = 5
# expm1, log1p: CUDA 1 ulp, HIP 2.
EXPM1_ERROR: Final = 5
# tanh: 2 ulp in both.
TANH_ERROR: Final = 5
# erf: CUDA 2 ulp, HIP 4.
ERF_ERROR: Final = 9
# Division: correctly rounded by default, 2 ulp without precise division, which is
# what Triton's `/` and `__fdividef` give.
DIVISION_ERROR: Final = 5
# HIP's `__expf`, 6 ulp; CUDA's lies within EXP_ARGUMENT and EXP_ERROR.
FAST_EXP_ERROR: Final = 13
# `__logf`: 3 ulp outside [0.5, 2], 2^-21.41 absolute inside; `lg2.approx` times
# ln 2 lies within both.
FAST_LOG_ERROR: Final = 7
FAST_LOG_ABSOLUTE: Final = 2.0**-21.41
# `tanh.approx.f32`: 2^-11 relative.
FAST_TANH_RELATIVE: Final = 2.0**-11
# The rational approximation of Abramowitz and Stegun, 7.1.26: 1.5e-7 absolute.
FAST_ERF_ABSOLUTE: Final = 1.5e-7
# Its evaluation: a reciprocal, five products and sums, exp and two more products, of
# numbers of which the last is at most 1.
FAST_ERF_HALVES: Final = 12
# From here on 1 - |erf|, below 1e-49, lies far below a quarter of float32's least
# subnormal even after multiplying by the argument: the function is 1 exactly.
ERF_SATURATED: Final = 10.5
# From here on exp(-2 |x|) is below float32's least normal number and lost beside 1.
TANH_SATURATED: Final = 45.0

# Of the least subnormal: exponentials of that size are 0 in every library, whatever
# their error in units in the last place.
VANISHING: Final = 2.0**-20


def exp_argument(x: Interval, arithmetic: Arithmetic) -> Interval:
    """Return the arguments of which exact exponentials enclose the computed ones.

    exp's own error, and the rounding of the argument where it is formed as
    exp2(x log2 e): together a relative error of EXP_ARGUMENT u |x| + EXP_ERROR u,
    which is a shift of the argument.
    """
    own = FAST_EXP_ERROR if arithmetic.fast else EXP_ERROR
    return x.widened(EXP_ARGUMENT * arithmetic.unit, own * arithmetic.unit)


def exp(x: Interval, arithmetic: Arithmetic) -> Interval:
    """Return exp; values beyond every format judged are cut to 2^1000."""
    made = exp_argument(x, arithmetic).mapped(lambda v: v.exp_().clamp_(max=2.0**1000))
    # The halves count in the subnormal range, where the relative error is lost.
    made = made.widened(0.0, EXP_ERROR * arithmetic.format.min_subnormal / 2)
    return arithmetic.rounded(made.mapped(Tensor.relu), 0)


def log(x: Interval, arithmetic: Arithmetic) -> Interval:
    """Return log; where x <= 0 the ends are no numbers of use."""
    made = x.mapped(torch.log)
    if not arithmetic.fast:
        return arithmetic.rounded(made, LOG_ERROR)
    inside = (x.low <= 2) & (x.high >= 0.5)
    absolute = inside.to(torch.float64) * FAST_LOG_ABSOLUTE
    return arithmetic.rounded(made.widened(0.0, absolute), FAST_LOG_ERROR)


def tanh(x: Interval, arithmetic: Arithmetic) -> Interval:
    """Return tanh, by a function of its own: relative, 1 where it saturates."""
    exact = x.mapped(torch.tanh)
    made = arithmetic.rounded(exact, TANH_ERROR)
    if arithmetic.fast:
        return made.widened(FAST_TANH_RELATIVE)
    return _saturated(x, made, exact, TANH_SATURATED)


def tanh_by_exp(x: Interval, arithmetic: Arithmetic) -> Interval:
    """Return tanh as 2 sigmoid(2x) - 1 or (1 - e) / (1 + e), e = exp(-2|x|).

    The subtraction cancels near 0; the quotient's errors lie within the other's.
    """
    exact = x.mapped(torch.tanh)
    made = arithmetic.rounded(sigmoid(x.scaled(2), arithmetic).scaled(2) + -1.0)
    return _saturated(x, made.union(exact), exact, TANH_SATURATED)


def erf(x: Interval, arithmetic: Arithmetic) -> Interval:
    """Return erf, 1 where it saturates."""
    exact = x.mapped(torch.erf)
    made = arithmetic.rounded(exact, ERF_ERROR)
    if arithmetic.fast:
        absolute = FAST_ERF_ABSOLUTE + FAST_ERF_HALVES * arithmetic.unit
        made = made.union(exact.widened(0.0, absolute))
    return _saturated(x, made, exact, ERF_SATURATED)


def sigmoid(x: Interval, arithmetic: Arithmetic) -> Interval:
    """Return the sigmoid as 1 / (1 + exp(-x)) or exp(x) / (1 + exp(x)).

    An error of the exponential shifts the argument; then one addition and one
    division. The result is 0 where exp(-x) overflows, or its reciprocal is flushed
    (`__fdividef` gives 0 for divisors above 2^126).
    """
    exact = exp_argument(x, arithmetic).mapped(Tensor.sigmoid_)
    made = arithmetic.rounded(exact, 1 + DIVISION_ERROR)
    fmt = arithmetic.format
    vanishing = VANISHING * fmt.min_subnormal
    if not (is_at_hand(exact.high) and exact.high.amin() >= vanishing):
        made = Interval.exact(zero(exact.high)).where(exact.high < vanishing, made)
    least = 2 / fmt.max_finite
    if arithmetic.flush or arithmetic.fast:
        least = max(least, 2 * fmt.min_normal)
    return made.mapped(Tensor.relu_).or_zero(least)


def sigmoid_by_tanh(x: Interval, arithmetic: Arithmetic) -> Interval:
    """Return the sigmoid as 0.5 + 0.5 tanh(x / 2), which cancels below 0."""
    half = tanh(x.scaled(0.5), arithmetic).scaled(0.5) + 0.5
    return arithmetic.rounded(half).mapped(Tensor.relu)


def _saturated(
    x: Interval, made: Interval, exact: Interval, threshold: float
) -> Interval:
    """Return the exact values of a sign function beyond a threshold."""
    beyond = (x.low >= threshold) | (x.high <= -threshold)
    sign = exact.mapped(torch.sign)
    return sign.where(beyond, made)


# Error model of elementwise operators: a budget in units in the last place.


@dataclass(frozen=True)
class Elementwise:
    """Admits results within a number of ulps of the correctly rounded one.

    Attributes:
        ulps: k; the half-width is (2k + 1) u |reference|.
        absolute: further absolute half-width, for cancelling tails.
    """

    ulps: float
    absolute: float = 0.0

    def around(self, problem: Problem, reference: Tensor) -> Acceptance:
        """Return the acceptance around an oracle's float64 result."""
        unit = intermediate_unit(problem)
        error = (2 * self.ulps + 1) * unit * reference.abs() + self.absolute
        if problem.flushes:
            error = error + 2.0**-126
        return around(problem, reference, error)


def elementwise(*, ulps: float, absolute: float = 0.0) -> Elementwise:
    """Return an error model: `ulps` from correctly rounded, in float32 arithmetic.

    Args:
        ulps: budget of the whole expression, in units in the last place.
        absolute: further absolute half-width.

    Raises:
        BindingError: if a budget is negative or not a number.
    """
    if not (ulps >= 0 and absolute >= 0):
        raise BindingError(f"elementwise(ulps={ulps}, absolute={absolute}) is negative")
    return Elementwise(float(ulps), float(absolute))


# Enclosures of the activation functions, in the forms that kernels use.

GELU_TANH_SCALE: Final = math.sqrt(2 / math.pi)
GELU_TANH_CUBIC: Final = 0.044715
# Of t = c (x + d x^3), whose terms have one sign: two squarings' products, the
# constants' own errors and products, and the addition.
_GELU_TANH_ARGUMENT: Final = 8


def silu(x: Interval, arithmetic: Arithmetic) -> Interval:
    """Return x sigmoid(x), also as x / (1 + exp(-x))."""
    return arithmetic.rounded(x.times(sigmoid(x, arithmetic)), 2)


def silu_by_tanh(x: Interval, arithmetic: Arithmetic) -> Interval:
    """Return x (0.5 + 0.5 tanh(x / 2)), whose error is absolute."""
    # As h + h tanh(h): the product's rounding does not cancel.
    gate = sigmoid_by_tanh(x, arithmetic).widened(0.0, arithmetic.unit / 2)
    return arithmetic.rounded(x * gate, 2)


def gelu(x: Interval, arithmetic: Arithmetic) -> Interval:
    """Return x / 2 (1 + erf(x / sqrt 2)), also as h + h erf: absolute below 0."""
    z = arithmetic.rounded(x.scaled(math.sqrt(0.5)), 1 + DIVISION_ERROR)
    return _half_times_one_plus(x, erf(z, arithmetic), arithmetic)


def gelu_tanh(x: Interval, arithmetic: Arithmetic) -> Interval:
    """Return x / 2 (1 + tanh t), t = sqrt(2 / pi) (x + 0.044715 x^3).

    tanh by a function of its own or by exponentials; also as x sigmoid(2 t).
    """
    t = arithmetic.rounded(x.mapped(gelu_tanh_argument), _GELU_TANH_ARGUMENT)
    either = tanh(t, arithmetic).union(tanh_by_exp(t, arithmetic))
    made = _half_times_one_plus(x, either, arithmetic)
    gate = sigmoid(t.scaled(2), arithmetic)
    return made.union(arithmetic.rounded(x.times(gate), 2))


def gelu_tanh_argument(x: Tensor) -> Tensor:
    """Return sqrt(2 / pi) (x + 0.044715 x^3), which increases with x."""
    return GELU_TANH_SCALE * (x + GELU_TANH_CUBIC * x * x * x)


def _half_times_one_plus(
    x: Interval, value: Interval, arithmetic: Arithmetic
) -> Interval:
    """Return x / 2 (1 + value) for values in [-1, 1]; a product may come first."""
    saturated = (value.low.abs() == 1) & (value.low == value.high)
    spread = value.widened(0.0, arithmetic.unit)
    factor = value.where(saturated, spread) + 1.0
    return arithmetic.rounded(x.scaled(0.5) * factor, 3)


def at_the_limit(x: Tensor, result: Tensor) -> Tensor:
    """Return an activation's results with the limit, 0, at -Inf instead of -Inf * 0."""
    return torch.where(x == -math.inf, 0.0, result)


def limit_classes(x: Tensor, result: Tensor) -> Tensor:
    """Return the classes of an activation's results: at -Inf kernels give 0 or NaN."""
    classes = classes_of(result)
    return torch.where(x == float("-inf"), classes | NAN, classes).to(torch.uint8)


def activated(
    problem: Problem,
    function: Callable[[Tensor], Tensor],
    bounds: Callable[[Interval, Arithmetic], Interval],
    *,
    doubles: bool = False,
) -> Acceptance:
    """Return the acceptance of an activation of `x`: at -Inf kernels give 0 or NaN.

    Args:
        problem: with the tensor `x`.
        function: the activation in float64, 0 at -Inf.
        bounds: what a correct kernel may hold elsewhere, in an arithmetic.
        doubles: whether twice x may be formed on the way.
    """
    x, arithmetic = problem.tensors["x"], Arithmetic.declared(problem)
    reference = function(x)
    value = bounds(arithmetic.read(x), arithmetic)
    classes = None
    if not plainly_finite(x):
        value = Interval.exact(reference).where(x == float("-inf"), value)
        classes = limit_classes(x, reference)
    return arithmetic.accepted(
        problem, reference, value,
        classes=classes,
        ambiguous=doubling_overflows(x, arithmetic) if doubles else None,
    )  # fmt: skip


def doubling_overflows(x: Tensor, arithmetic: Arithmetic) -> Tensor:
    """Return where the product x (1 + erf) overflows before it is halved."""
    return torch.isfinite(x) & (2 * x.abs() > arithmetic.format.max_finite)


def gated(
    problem: Problem,
    function: Callable[[Tensor], Tensor],
    bounds: Callable[[Interval, Arithmetic], Interval],
    *,
    growth: float,
) -> Acceptance:
    """Return the acceptance of activation(gate) * up.

    Args:
        problem: with the tensors `gate` and `up`.
        function: the activation in float64, 0 at -Inf.
        bounds: what a kernel may hold for it, in an arithmetic.
        growth: greatest factor by which gate and gate * up may grow on the way.
    """
    arithmetic = Arithmetic.declared(problem)
    gate, up = problem.tensors["gate"], problem.tensors["up"]
    result, seen = function(gate), arithmetic.read(up)
    lowest = gate == float("-inf")
    value = bounds(arithmetic.read(gate), arithmetic)
    value = Interval.exact(result).where(lowest, value)
    classes = product_classes(result, value, up, seen)
    classes = torch.where(lowest, classes | NAN, classes).to(torch.uint8)
    # gate * up first is as good an order: it may overflow where the result does not.
    partial = growth * torch.maximum(gate.abs(), (gate * up).abs())
    order = torch.isfinite(gate) & torch.isfinite(up)
    order = order & (partial > arithmetic.format.max_finite)
    return arithmetic.accepted(
        problem,
        result * up,
        arithmetic.rounded(value * seen, 2),
        classes=classes,
        ambiguous=order,
    )
