"""Enclosures of the activation functions, in the forms that kernels use."""

import math
from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor

from kfuzz.numerics.acceptance import NAN, Acceptance, Problem, classes_of
from kfuzz.numerics.elements import plainly_finite
from kfuzz.numerics.intervals import Arithmetic, Interval, product_classes
from kfuzz.numerics.models.functions import (
    DIVISION_ERROR,
    erf,
    sigmoid,
    sigmoid_by_tanh,
    tanh,
    tanh_by_exp,
)

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
    return torch.where(x == float("-inf"), torch.zeros_like(result), result)


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
