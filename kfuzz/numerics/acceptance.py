"""What an operator's error model accepts for a case, element by element."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, reduce
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn.functional import hardshrink

from kfuzz.core.declaration import Declaration
from kfuzz.core.recipe import Scalar
from kfuzz.numerics.accumulation import (
    Accumulation,
    code,
    infinity,
    is_at_hand,
    is_finite,
    not_a_number,
    plainly_finite,
    zero,
)
from kfuzz.numerics.formats import (
    FORMATS,
    WHOLE,
    Format,
    is_subnormal,
    round_to,
)

# Classes of a value, as bits of `Acceptance.classes`.
FINITE: Final = 1
NAN: Final = 2
POSITIVE_INF: Final = 4
NEGATIVE_INF: Final = 8
ANY: Final = FINITE | NAN | POSITIVE_INF | NEGATIVE_INF


@dataclass(frozen=True)
class Problem:
    """The very inputs a kernel was given, as the oracle sees them.

    Attributes:
        tensors: float64 copies (of integers int64 ones, of masks the masks) by
            parameter name, shape [members, *shape]; absent where the
            implementation omits an optional argument.
        scalars: scalar arguments; `dim` counts from the end (negative), a dtype
            is its name.
        format: format of the data arguments.
        output: format in which results are stored.
        declaration: what the kernel claims.
        attribution: the acceptance is asked for to attribute a miss to a
            narrower format: bounds stay finite where they are vacuous.
    """

    tensors: Mapping[str, Tensor]
    scalars: Mapping[str, Scalar]
    format: Format
    output: Format
    declaration: Declaration
    attribution: bool = False

    @property
    def accumulation(self) -> Accumulation:
        """How sums are kept, as declared."""
        claims = self.declaration
        return Accumulation.declared(claims, attribution=self.attribution)

    @property
    def flushes(self) -> bool:
        """Whether subnormal numbers may be taken for, or become, 0."""
        return self.declaration.subnormals != "preserve"

    def number(self, name: str) -> float:
        """Return a scalar argument as float."""
        value = self.scalars[name]
        assert value is not None, f"{name} has no value"
        return float(value)

    def axis(self, name: str = "dim") -> int:
        """Return a dimension or another integer argument; dimensions are negative."""
        value = self.scalars[name]
        assert value is not None, f"{name} has no value"
        return int(value)

    def format_of(self, name: str = "dtype") -> Format:
        """Return the floating format that a dtype argument names."""
        return FORMATS[str(self.scalars[name])]


Relation = Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]]
"""From the stored outputs to what of them is right, see `Acceptance.relation`."""


@dataclass(frozen=True)
class Acceptance:
    """The allowed results of one output, before the final store.

    All tensors have the shape [members, *output shape]. A result is admitted
    if its class is, and, where it is finite, if it lies between the correctly
    rounded ends of [low, high]: rounding is monotone, so this
    is exact for every kernel whose value before the store lies in [low, high].

    Attributes:
        reference: float64, the exact result as far as float64 holds it.
        low: float64, least allowed value before the store.
        high: float64, greatest allowed value before the store.
        classes: uint8, admitted classes before the store.
        undecided: bool, the bound is vacuous: never judged.
        ambiguous: bool, some order or a naive square overflows: a miss there
            is undecided (range-limited).
        output: the format of the result.
        overflow: "inf", "nan" or "saturate", the declared policy.
        store: "rne", "rz" or "stochastic", the declared rounding of the store.
        flush: whether a subnormal result may be stored as zero.
        flushed: whether it must be.
        signed_zeros: whether a zero has the sign of a reference of zero, as
            where bits are only moved.
        safety: how many times wider than the derived bound the interval is.
        unknown: the oracle's operators for which there is no error rule.
        relation: judges all outputs together where the answer is not unique; one
            and the same for all of them.
        exact: int64, the integers that results are, or truth values as 0 and 1: where
            low and high are one number, no other bits are admitted. None for floating
            results.
    """

    reference: Tensor
    low: Tensor
    high: Tensor
    classes: Tensor
    undecided: Tensor
    ambiguous: Tensor
    output: Format
    overflow: str = "inf"
    store: str = "rne"
    flush: bool = False
    flushed: bool = False
    signed_zeros: bool = False
    safety: float = 1.0
    unknown: tuple[str, ...] = ()
    relation: Relation | None = None
    exact: Tensor | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the output, without the member dimension."""
        return tuple(self.reference.shape[1:])

    def mapped(self, change: Callable[[Tensor], Tensor]) -> "Acceptance":
        """Return the acceptance with another tensor for each of its tensors."""
        held = {field.name: getattr(self, field.name) for field in fields(self)}
        made: dict[str, Any] = {
            n: change(x) for n, x in held.items() if isinstance(x, Tensor)
        }
        return replace(self, **made)

    @cached_property
    def stored(self) -> tuple[Tensor, Tensor]:
        """The least and the greatest allowed stored values, float64."""
        low, high = self.low, self.high
        if self.exact is None:  # else they are numbers of the format
            lower, upper = ("rne", "rne") if self.store == "rne" else ("rd", "ru")
            one = low is high and lower == upper
            low = round_to(low, self.output, lower)
            high = low if one else round_to(high, self.output, upper)
        if self.flush and self.flushed:
            low = torch.where(is_subnormal(low, self.output), 0.0, low)
            high = torch.where(is_subnormal(high, self.output), 0.0, high)
        return low, high


def tightened(a: Acceptance) -> Acceptance:
    """Return the acceptance with its interval as derived, without the safety."""
    low = a.reference - (a.reference - a.low) / a.safety
    high = a.reference + (a.high - a.reference) / a.safety
    return replace(a, low=low, high=high, safety=1.0)


def classes_of(x: Tensor) -> Tensor:
    """Return the class bit of every element of a float64 tensor, uint8."""
    if plainly_finite(x):
        return torch.full_like(x, FINITE, dtype=torch.uint8)
    finite, nan = code(FINITE, x), code(NAN, x)
    out = torch.where(x == float("inf"), code(POSITIVE_INF, x), finite)
    out = torch.where(x == float("-inf"), code(NEGATIVE_INF, x), out)
    return torch.where(x.isnan(), nan, out)


def around(
    problem: Problem,
    reference: Tensor,
    error: Tensor | float,
    *,
    classes: Tensor | None = None,
    ambiguous: Tensor | None = None,
    undecided: Tensor | None = None,
    output: Format | None = None,
) -> Acceptance:
    """Return the acceptance of [reference - error, reference + error].

    Args:
        problem: the inputs and the declaration.
        reference: float64 [members, *shape]; NaN and infinities are classes.
        error: half-width, absolute; infinite or NaN means vacuous.
        classes: admitted classes; those of the reference by default.
        ambiguous: range-limited elements; none by default.
        undecided: elements that cannot be judged besides the vacuous ones.
        output: format of the result; the problem's by default.
    """
    # A number and not a tensor of it: to be brought to a device it would wait.
    low = high = reference
    if isinstance(error, Tensor) or error:
        low, high = reference - error, reference + error
    return between(
        problem, reference, low, high,
        classes=classes, ambiguous=ambiguous, undecided=undecided,
        output=output,
    )  # fmt: skip


def whole(problem: Problem, values: Tensor) -> Acceptance:
    """Return the acceptance of integers or truth values: each is distinguished.

    Args:
        problem: the inputs and the declaration.
        values: the result, [members, *shape], of a data type of `WHOLE`.
    """
    output = WHOLE[str(values.dtype).removeprefix("torch.")]
    made = around(problem, values.to(torch.float64), 0.0, output=output)
    return replace(made, exact=values.to(torch.int64))


def moved(problem: Problem, values: Tensor) -> Acceptance:
    """Return the acceptance of values that are only moved: every bit counts.

    Payload and sign of a NaN are free.
    """
    return replace(around(problem, values, 0.0), signed_zeros=True)


def between(
    problem: Problem,
    reference: Tensor,
    low: Tensor,
    high: Tensor,
    *,
    classes: Tensor | None = None,
    ambiguous: Tensor | None = None,
    undecided: Tensor | None = None,
    output: Format | None = None,
) -> Acceptance:
    """Return the acceptance of an interval; arguments as in `around`."""
    stored = problem.output if output is None else output
    if ambiguous is None:
        ambiguous = torch.zeros_like(reference, dtype=torch.bool)
    admitted = classes_of(reference) if classes is None else classes
    # Finite where both ends are; their difference is far below what overflows.
    wide = low if low is high else high - low
    if plainly_finite(wide):
        vacuous = torch.zeros_like(wide, dtype=torch.bool)
    else:
        bounded = is_finite(wide)
        one = low is high
        low = torch.where(bounded, low, zero(low))
        high = low if one else torch.where(bounded, high, zero(high))
        # FINITE is 1, and more than the 0 of what is not bounded.
        vacuous = torch.gt(admitted & FINITE, bounded)
    if undecided is not None:
        vacuous = vacuous | undecided
    d = problem.declaration
    return Acceptance(
        reference=reference,
        low=low,
        high=high,
        classes=admitted,
        undecided=vacuous,
        ambiguous=ambiguous,
        output=stored,
        overflow=d.overflow,
        store=d.store,
        # No integer is subnormal.
        flush=problem.flushes and not stored.integral,
        flushed=d.subnormals == "flush",
    )


def reshaped(acceptance: Acceptance, shape: Sequence[int]) -> Acceptance:
    """Return the acceptance with its tensors in another shape."""
    return acceptance.mapped(lambda x: x.reshape(shape))


def undecided_at_infinities(
    problem: Problem, made: Acceptance, *names: str
) -> Acceptance:
    """Return an acceptance that decides nothing beside an infinity without a NaN.

    For operators of which some right forms subtract infinities, or multiply them by 0,
    where others do not. A NaN among the arguments of an element still reaches it.

    Args:
        problem: floating arguments that are broadcast from the last dimension on.
        made: of their shape, or of their sum.
        names: the arguments that it depends on; all by default.
    """
    every = [x for n, x in problem.tensors.items() if not names or n in names]
    dims = max(x.dim() for x in every)
    aligned = [
        x.reshape(x.shape[0], *[1] * (dims - x.dim()), *x.shape[1:]) for x in every
    ]
    beside = torch.stack(torch.broadcast_tensors(*aligned))  # type: ignore[no-untyped-call]
    infinite, nan = torch.isinf(beside).any(0), beside.isnan().any(0)
    if infinite.shape != made.reference.shape:
        infinite, nan = (m.flatten(1).any(1) for m in (infinite, nan))
    return replace(made, undecided=made.undecided | (infinite & ~nan))


def hull(*accepted: Acceptance) -> Acceptance:
    """Return the first acceptance with what lies between any of them, or in one.

    What is undecided of one is so of all.
    """
    if len(accepted) == 1:
        return accepted[0]
    parts = [(a, (a.classes & FINITE) > 0) for a in accepted]
    low = torch.stack([torch.where(finite, a.low, math.inf) for a, finite in parts])
    high = torch.stack([torch.where(finite, a.high, -math.inf) for a, finite in parts])
    classes = [a.classes for a in accepted]
    return replace(
        accepted[0],
        low=torch.nan_to_num(low.amin(0), posinf=0.0),
        high=torch.nan_to_num(high.amax(0), neginf=0.0),
        classes=reduce(torch.bitwise_or, classes),
        undecided=torch.stack([a.undecided for a in accepted]).any(0),
        ambiguous=torch.stack([a.ambiguous for a in accepted]).any(0),
    )


# Classes of sums with special terms, decided without doing the arithmetic.


@dataclass(frozen=True)
class SumClasses:
    """What the special terms of a sum make of it.

    Attributes:
        admitted: uint8 class bits.
        reference: float64 NaN, +Inf or -Inf; 0 where the sum is finite.
        finite: bool, no special term.
        ambiguous: bool, some order overflows: a miss is undecided.
    """

    admitted: Tensor
    reference: Tensor
    finite: Tensor
    ambiguous: Tensor

    def accepted(self, problem: Problem, value: Tensor, error: Tensor) -> Acceptance:
        """Return the acceptance of sums, of the value and error of the finite ones."""
        return around(
            problem,
            torch.where(self.finite, value, self.reference),
            error,
            classes=self.admitted,
            ambiguous=self.ambiguous,
        )


def sum_classes(
    nan: Tensor, plus: Tensor, minus: Tensor, may_overflow: Tensor
) -> SumClasses:
    """Return the classes of sums (README.md here, special values).

    Args:
        nan: bool, a term is NaN.
        plus: bool, a term is +Inf.
        minus: bool, a term is -Inf.
        may_overflow: bool, the finite terms overflow in some order. A sum with
            one infinity may then turn NaN; that too is undecided.
    """
    is_nan = nan | (plus & minus)
    admitted = torch.where(plus, code(POSITIVE_INF, nan), code(FINITE, nan))
    admitted = torch.where(minus, code(NEGATIVE_INF, nan), admitted)
    admitted = torch.where(is_nan, code(NAN, nan), admitted)
    reference = torch.where(plus, infinity(nan), zero(nan))
    reference = torch.where(minus, -infinity(nan), reference)
    reference = torch.where(is_nan, not_a_number(nan), reference)
    return SumClasses(
        admitted=admitted,
        reference=reference,
        finite=~(is_nan | plus | minus),
        ambiguous=may_overflow & ~is_nan,
    )


def intermediate_unit(problem: Problem) -> float:
    """Return the unit roundoff of intermediate results, as declared."""
    unit = FORMATS["float32"].unit
    if problem.declaration.accumulator == "float64":
        unit = FORMATS["float64"].unit
    if problem.declaration.intermediates == "output":
        unit = max(unit, problem.output.unit)
    return unit


# Enclosures of what a chain of rounded operations may hold, step by step.
#
# The bounds of elementwise operators are not linearised: each step maps the least and
# the greatest value that the step before may have left, so that they hold for coarse
# intermediates and at overflow too.

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
        if self.high is self.low:
            return Interval(torch.minimum(a, b), torch.maximum(a, b, out=b))
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
        above = below.clone() if self.high is self.low else by(self.high)
        low = torch.sub(self.low, below, out=below)
        return Interval(low, torch.add(self.high, above, out=above))

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
        # What `hardshrink` leaves is greater.
        most = math.nextafter(magnitude, 0.0)
        one = self.high is self.low
        if is_at_hand(self.low) and (self.low.abs() if one else self.low).amin() > most:
            return self
        low, high = hardshrink(self.low, most), hardshrink(self.high, most)
        torch.minimum(self.low, low, out=low)
        return Interval(low, torch.maximum(self.high, high, out=high))


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
