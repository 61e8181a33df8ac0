"""Enclosures of what a chain of rounded operations may hold, step by step.

The bounds of elementwise operators are not linearised: each step maps the least and
the greatest value that the step before may have left, so that they hold for coarse
intermediates and at overflow too.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import threshold

from kfuzz.numerics.acceptance import (
    ANY,
    FINITE,
    NAN,
    NEGATIVE_INF,
    POSITIVE_INF,
    Acceptance,
    Problem,
    between,
    classes_of,
)
from kfuzz.numerics.formats import FORMATS, Format, round_to

# Relative error of float64's own functions here: 4 ulp, on host and device.
SLACK: Final = 2.0**-50
# Stands for an infinity where the result is finite: beyond every format judged, and
# its cube is finite in float64.
HUGE: Final = 2.0**200


@dataclass(frozen=True)
class Interval:
    """The least and the greatest value a quantity may have; float64, low <= high."""

    low: Tensor
    high: Tensor

    @classmethod
    def exact(cls, x: Tensor) -> "Interval":
        """Return the interval of one value."""
        return cls(x, x)

    def __add__(self, other: "Interval | float") -> "Interval":
        """Return the exact sum."""
        if isinstance(other, Interval):
            return Interval(self.low + other.low, self.high + other.high)
        return Interval(self.low + other, self.high + other)

    def __mul__(self, other: "Interval") -> "Interval":
        """Return the exact product."""
        a, b = self.low * other.low, self.low * other.high
        c, d = self.high * other.low, self.high * other.high
        return Interval(
            torch.minimum(torch.minimum(a, b), torch.minimum(c, d)),
            torch.maximum(torch.maximum(a, b), torch.maximum(c, d)),
        )

    def times(self, other: "Interval") -> "Interval":
        """Return the exact product with what is not negative."""
        a, b = self.low * other.low, self.low * other.high
        c, d = self.high * other.low, self.high * other.high
        return Interval(torch.minimum(a, b, out=a), torch.maximum(c, d, out=d))

    def scaled(self, factor: float) -> "Interval":
        """Return the product with a positive number."""
        return Interval(self.low * factor, self.high * factor)

    def mapped(self, function: Callable[[Tensor], Tensor]) -> "Interval":
        """Return the image under a non-decreasing function."""
        return Interval(function(self.low), function(self.high))

    def widened(self, relative: float, absolute: Tensor | float = 0.0) -> "Interval":
        """Return the interval with each value v moved by relative |v| + absolute."""

        def by(end: Tensor) -> Tensor:
            most = end.abs().mul_(relative)
            fits = not isinstance(absolute, Tensor)
            return most.add_(absolute) if fits else most + absolute

        below = by(self.low)
        above = below if self.high is self.low else by(self.high)
        return Interval(self.low - below, self.high + above)

    def union(self, other: "Interval") -> "Interval":
        """Return the least interval that holds both."""
        return Interval(
            torch.minimum(self.low, other.low), torch.maximum(self.high, other.high)
        )

    def where(self, condition: Tensor, other: "Interval") -> "Interval":
        """Return this interval where the condition holds, else the other."""
        return Interval(
            torch.where(condition, self.low, other.low),
            torch.where(condition, self.high, other.high),
        )

    def or_zero(self, magnitude: float) -> "Interval":
        """Return the interval extended to 0 where a value below a magnitude may vanish.

        Without a mask: choosing by one that follows the data's signs takes a processor
        ten times as long as a minimum.
        """
        # What `threshold` leaves is greater.
        most = math.nextafter(magnitude, 0.0)
        low = threshold(self.low, most, 0.0)
        high = threshold(-self.high, most, 0.0, inplace=True)
        high = high.neg_().add_(0.0)  # no zero is negative
        return Interval(
            torch.minimum(self.low, low, out=low),
            torch.maximum(self.high, high, out=high),
        )


@dataclass(frozen=True)
class Arithmetic:
    """In what an elementwise kernel computes, as declared.

    Attributes:
        format: format of intermediate results: float32; float64 or a narrower one
            where the accumulator is declared so; the output's where intermediates
            are rounded to it.
        data: format of the arguments.
        output: format of the result.
        flush: whether subnormal operands and results may be read as, or become, 0.
        fast: whether fast approximations of elementary functions are declared.
    """

    format: Format
    data: Format
    output: Format
    flush: bool
    fast: bool

    @classmethod
    def declared(cls, problem: Problem) -> "Arithmetic":
        """Return the arithmetic that a problem's declaration names."""
        claims = problem.declaration
        fmt = FORMATS["float32"]
        if claims.accumulator in ("float64", "float16", "bfloat16"):
            fmt = FORMATS[claims.accumulator]
        if claims.intermediates == "output" and problem.output.unit > fmt.unit:
            fmt = problem.output
        return cls(
            format=fmt,
            data=problem.format,
            output=problem.output,
            flush=problem.flushes,
            fast=claims.approx,
        )

    @property
    def unit(self) -> float:
        """Unit roundoff of intermediate results."""
        return self.format.unit

    def read(self, x: Tensor) -> Interval:
        """Return an argument as the arithmetic sees it.

        NaN becomes 0 and infinities a huge number: their classes are decided
        apart. A subnormal of the arithmetic may be read as 0; an argument wider
        than the arithmetic is rounded to it.
        """
        finite = torch.nan_to_num(x, nan=0.0, posinf=HUGE, neginf=-HUGE)
        seen = Interval.exact(finite)
        if self.format.precision < self.data.precision:
            seen = seen.widened(self.unit, self.format.min_subnormal / 2)
        return self._flushed(seen)

    def constant(self, value: float, like: Tensor) -> Interval:
        """Return a number of the formula: itself, or rounded to the arithmetic."""
        exact = torch.full((), value, dtype=torch.float64)
        # Asked on the host: a device is not waited for.
        held = bool(round_to(exact, self.format) == exact)
        made = torch.full_like(exact, value, device=like.device)
        return Interval.exact(made).widened(0.0 if held else self.unit)

    def rounded(self, value: Interval, halves: float = 1) -> Interval:
        """Return a value after errors of so many half units in the last place.

        Each rounding to nearest is one; "k ulp from correctly rounded" are 2 k + 1.
        """
        wider = value.widened(
            halves * self.unit + SLACK, halves * self.format.min_subnormal / 2
        )
        return self._flushed(wider)

    def last(self, value: Interval) -> Interval:
        """Return the exact result of the last operation as it is before the store.

        Where the arithmetic is in the output's format, the store is its rounding.
        """
        same = self.format.name == self.output.name
        return self._flushed(value) if same else self.rounded(value)

    def single(self, value: Interval) -> Interval:
        """Return the exact result of one + or * of arguments, before the store.

        Rounding it to p bits and then to the q of the output gives the same as
        rounding it once if p >= 2 q + 2 (Figueroa, When is double rounding
        innocuous?, 1995). In the arithmetic's subnormal range too: sums are exact
        there, and so are products of 2 q bits, but those below half of the output's
        least number, which stay below it.
        """
        wide = self.format.precision >= 2 * self.output.precision + 2
        return self._flushed(value) if wide else self.last(value)

    def _flushed(self, value: Interval) -> Interval:
        return value.or_zero(self.format.min_normal) if self.flush else value

    def accepted(
        self,
        problem: Problem,
        reference: Tensor,
        value: Interval,
        *,
        classes: Tensor | None = None,
        ambiguous: Tensor | None = None,
    ) -> Acceptance:
        """Return the acceptance of a value before the store.

        Range-limited, besides the given elements, where arguments or result lie
        beyond the range of an arithmetic with less range than the output.

        Args:
            problem: the inputs and the declaration.
            reference: float64, the exact result with its special values.
            value: what a correct kernel may hold where the result is finite.
            classes: admitted classes; those of the reference by default.
            ambiguous: range-limited elements.
        """
        if self.format.max_finite < self.output.max_finite:
            top = self.format.max_finite
            beyond = torch.isfinite(reference) & (reference.abs() > top)
            for x in problem.tensors.values():
                beyond = beyond | (torch.isfinite(x) & (x.abs() > top))
            ambiguous = beyond if ambiguous is None else ambiguous | beyond
        return between(
            problem,
            reference,
            value.low.expand_as(reference),
            value.high.expand_as(reference),
            classes=classes,
            ambiguous=ambiguous,
        )


def enclosed(
    problem: Problem,
    function: Callable[[Tensor], Tensor],
    bounds: Callable[[Interval, Arithmetic], Interval],
) -> Acceptance:
    """Return the acceptance of a function of `x`.

    Args:
        problem: with the tensor `x`.
        function: in float64, special values included.
        bounds: what a kernel may hold for it, in an arithmetic.
    """
    x, arithmetic = problem.tensors["x"], Arithmetic.declared(problem)
    made = bounds(arithmetic.read(x), arithmetic)
    return arithmetic.accepted(problem, function(x), made)


def product_classes(a: Tensor, seen_a: Interval, b: Tensor, seen_b: Interval) -> Tensor:
    """Return the classes of a product: IEEE 754's, for every value of the factors.

    A factor that may have vanished gives NaN with an infinity, one of either sign
    an infinity of either sign.

    Args:
        a: the first factor, special values included.
        seen_a: what a kernel may hold for it where it is finite.
        b: the second factor.
        seen_b: what a kernel may hold for it where it is finite.
    """
    admitted = classes_of(a * b)
    for infinite, factor, seen in ((b, a, seen_a), (a, b, seen_b)):
        meet = torch.isinf(infinite) & torch.isfinite(factor)
        above, below = seen.high > 0, seen.low < 0
        upward = infinite > 0
        plus = torch.where(upward, above, below)
        minus = torch.where(upward, below, above)
        vanishes = (seen.low <= 0) & (seen.high >= 0)
        for holds, bit in (
            (plus, POSITIVE_INF),
            (minus, NEGATIVE_INF),
            (vanishes, NAN),
        ):
            admitted = torch.where(meet & holds, admitted | bit, admitted)
    return admitted.to(torch.uint8)


def added_classes(a: Tensor, b: Tensor) -> Tensor:
    """Return the classes of a sum of two terms: IEEE 754's, for every pair of theirs.

    Args:
        a: classes that the first term may have.
        b: classes that the second one may have.
    """

    def both(one: int, other: int) -> Tensor:
        return ((a & one) != 0) & ((b & other) != 0)

    infinities = (POSITIVE_INF, NEGATIVE_INF)
    nan = both(NAN, ANY) | both(ANY, NAN) | both(*infinities)
    nan = nan | both(*reversed(infinities))
    admitted = torch.where(nan, NAN, 0)
    for bit in infinities:
        alone = both(bit, FINITE | bit) | both(FINITE, bit)
        admitted = torch.where(alone, admitted | bit, admitted)
    finite = both(FINITE, FINITE)
    return torch.where(finite, admitted | FINITE, admitted).to(torch.uint8)
