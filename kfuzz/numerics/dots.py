"""Sums of products: matrix products, linear layers, convolutions.

All are matrix products of finite operands in float64, with a bound on what an
admissible kernel may add to them, and classes found without doing the arithmetic.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kfuzz.numerics.acceptance import NAN, Acceptance, Problem, around
from kfuzz.numerics.accumulation import Accumulation
from kfuzz.numerics.bounds import U32, U64, can_overflow, fits_exactly, gamma
from kfuzz.numerics.formats import lowest_bit_exponent
from kfuzz.numerics.specials import SumClasses, sum_classes

# Above the exponent of any term: of zeros, multiples of every power.
_NO_BIT = 1 << 20


@dataclass(frozen=True)
class Dots:
    """Sums of products as an admissible kernel may hold them before the store.

    All tensors have the shape of the result.

    Attributes:
        value: float64, the sum of the finite terms.
        magnitude: float64, the sum of their magnitudes.
        error: float64, the bound on a kernel's distance from `value`.
        classes: what special terms make of it.
        admitted: uint8, admitted classes; those of `classes`, and what operands
            that may vanish give besides.
    """

    value: Tensor
    magnitude: Tensor
    error: Tensor
    classes: SumClasses
    admitted: Tensor

    @property
    def reference(self) -> Tensor:
        """The result, NaN and infinities included."""
        return torch.where(self.classes.finite, self.value, self.classes.reference)

    def accepted(self, problem: Problem) -> Acceptance:
        """Return the acceptance of the sums as they are."""
        return around(
            problem,
            self.reference,
            self.error,
            classes=self.admitted,
            ambiguous=self.classes.ambiguous,
        )

    def reshaped(self, *shape: int) -> "Dots":
        """Return the sums in another shape."""
        c = self.classes
        classes = SumClasses(
            admitted=c.admitted.reshape(shape),
            reference=c.reference.reshape(shape),
            finite=c.finite.reshape(shape),
            ambiguous=c.ambiguous.reshape(shape),
        )
        return Dots(
            self.value.reshape(shape),
            self.magnitude.reshape(shape),
            self.error.reshape(shape),
            classes,
            self.admitted.reshape(shape),
        )


def dots(
    problem: Problem,
    a: Tensor,
    b: Tensor,
    *,
    addend: Tensor | None = None,
    present: Tensor | None = None,
) -> Dots:
    """Return a b, or a b + addend, with its bound and its classes.

    The error is R (|a| |b| + |addend|), R the declared accumulation's (any order,
    the addend at any place), what underflow may take from K products and sums,
    and what is lost with operands too small for the arithmetic to hold; 0 where
    the exactness test holds.

    Args:
        problem: format of the data and declaration.
        a: float64 [..., M, K].
        b: float64 [..., K, N].
        addend: float64, broadcastable to [..., M, N]: one more term of each sum.
        present: bool, broadcastable to [..., K, N]; False where b is padding, a
            zero that some kernels multiply by and others leave out.
    """
    inner = a.shape[-1]
    terms = inner + (addend is not None)
    acc = Accumulation.declared(problem.declaration, attribution=problem.attribution)
    fa, fb = _finite(a), _finite(b)
    value, magnitude = fa @ fb, fa.abs() @ fb.abs()
    extra = torch.zeros((), dtype=torch.float64, device=a.device)
    if addend is not None:
        extra = _finite(addend)
        value, magnitude = value + extra, magnitude + extra.abs()
    flush = problem.declaration.subnormals != "preserve"
    floor = acc.operand_floor(problem.format, flush=flush)
    coefficient = acc.products(terms, problem.format) + gamma(terms, U64)
    error = coefficient * magnitude + acc.lost(terms + 1, flush=flush)
    error = error + _vanishing(fa, fb, floor) + _below(extra, floor)
    exact = _exact(fa, fb, extra, magnitude, problem, acc, floor, flush=flush)
    error = torch.where(exact, torch.zeros_like(error), error)

    # P + N = S and P - N = value for the sums P, N of terms of either sign.
    positive = (magnitude + value).clamp(min=0) / 2
    negative = (magnitude - value).clamp(min=0) / 2
    overflows = can_overflow(positive, negative, terms, acc)
    limit = acc.operand_limit(problem.format)
    if problem.format.max_finite > limit:
        overflows = overflows | (fa.abs() > limit).any(-1, keepdim=True)
        overflows = overflows | (fb.abs() > limit).any(-2, keepdim=True)
    classes, loose = _classes(a, b, addend, present, overflows)
    admitted = classes.admitted
    if floor:
        loose = loose | _vanishes_by_infinity(a, b, floor)
    if acc.splits(problem.format):
        loose = loose | _splits_infinity(a, b)
    admitted = torch.where(loose, admitted | NAN, admitted)
    return Dots(value, magnitude, error, classes, admitted)


def rounded_before(problem: Problem, made: Dots, addend: Tensor) -> Dots:
    """Return sums whose products may be rounded to the output before the addend.

    With float32 intermediates they are not.

    Args:
        problem: format of the output and declaration.
        made: the sums, addend included.
        addend: float64, broadcastable to their shape.
    """
    out = problem.output
    if problem.declaration.intermediates != "output" or out.unit <= U32:
        return made
    flush = problem.declaration.subnormals != "preserve"
    size = (made.value - _finite(addend)).abs() + made.error
    error = made.error + out.unit * size
    error = error + (out.min_normal if flush else out.min_subnormal)
    beyond = (size * (1 + out.unit) > out.max_finite) & made.classes.finite
    classes = replace(made.classes, ambiguous=made.classes.ambiguous | beyond)
    return replace(made, error=error, classes=classes)


def _finite(x: Tensor) -> Tensor:
    return torch.where(torch.isfinite(x), x, torch.zeros_like(x))


def _below(x: Tensor, floor: float) -> Tensor:
    magnitude = x.abs()
    return torch.where(magnitude < floor, magnitude, torch.zeros_like(magnitude))


def _vanishing(a: Tensor, b: Tensor, floor: float) -> Tensor | float:
    """Return what is lost with operands below `floor`."""
    small_a, small_b = _below(a, floor), _below(b, floor)
    if not floor or not bool(small_a.any() | small_b.any()):
        return 0.0
    return small_a @ b.abs() + a.abs() @ small_b


def _exact(
    a: Tensor,
    b: Tensor,
    addend: Tensor,
    magnitude: Tensor,
    problem: Problem,
    acc: Accumulation,
    floor: float,
    *,
    flush: bool,
) -> Tensor:
    """Return where no order of the sums rounds."""
    bits = acc.exact_products(problem.format)
    if not bits or not a.shape[-1]:
        return magnitude == 0
    low_a = lowest_bit_exponent(a).amin(-1).unsqueeze(-1)
    low_b = lowest_bit_exponent(b).amin(-2).unsqueeze(-2)
    lowest = (low_a + low_b).clamp(max=_NO_BIT)
    lowest = torch.minimum(lowest, lowest_bit_exponent(addend))
    exact = fits_exactly(magnitude, lowest, acc, flush=flush, bits=bits)
    if floor:
        exact = exact & ~((a != 0) & (a.abs() < floor)).any(-1, keepdim=True)
        exact = exact & ~((b != 0) & (b.abs() < floor)).any(-2, keepdim=True)
        exact = exact & ~((addend != 0) & (addend.abs() < floor))
    return exact


def _count(left: Tensor, right: Tensor) -> Tensor:
    """Return the number of pairs in which both hold: exact in float64."""
    return left.to(torch.float64) @ right.to(torch.float64)


def _vanishes_by_infinity(a: Tensor, b: Tensor, floor: float) -> Tensor:
    """Return where an operand that may vanish meets an infinity: 0 * Inf is NaN."""
    inf_a, inf_b = torch.isinf(a), torch.isinf(b)
    if not bool(inf_a.any() | inf_b.any()):
        return torch.zeros((), dtype=torch.bool, device=a.device)
    small_a = (a != 0) & (a.abs() < floor)
    small_b = (b != 0) & (b.abs() < floor)
    return _count(small_a, inf_b) + _count(inf_a, small_b) > 0


def _splits_infinity(a: Tensor, b: Tensor) -> Tensor:
    """Return which sums hold an infinity that is split into parts.

    The low part of Inf as two TF32 numbers is Inf - Inf.
    """
    inf_a, inf_b = torch.isinf(a), torch.isinf(b)
    if not bool(inf_a.any() | inf_b.any()):
        return torch.zeros((), dtype=torch.bool, device=a.device)
    return inf_a.any(-1, keepdim=True) | inf_b.any(-2, keepdim=True)


def _classes(
    a: Tensor,
    b: Tensor,
    addend: Tensor | None,
    present: Tensor | None,
    overflows: Tensor,
) -> tuple[SumClasses, Tensor]:
    """Return the classes of the sums, and where NaN is admitted besides.

    A class-only matrix product: pairs of terms are counted, not multiplied.
    """
    shape, device = overflows.shape, overflows.device
    none = torch.zeros(shape, dtype=torch.bool, device=device)
    nan, plus, minus, loose = none, none, none, none
    if not bool(torch.isfinite(a).all() & torch.isfinite(b).all()):
        inf = float("inf")
        there = torch.ones_like(b, dtype=torch.bool) if present is None else present
        there = there.expand_as(b)
        a_nan, some_a = a.isnan(), torch.ones_like(a)
        zero_b = (b == 0) & there
        count = _count(a_nan, there) + _count(some_a, b.isnan())
        count = count + _count(a == 0, b.abs() == inf) + _count(a.abs() == inf, zero_b)
        nan = count > 0
        up = _count(a == inf, b > 0) + _count(a == -inf, b < 0)
        plus = up + _count(a > 0, b == inf) + _count(a < 0, b == -inf) > 0
        down = _count(a == inf, b < 0) + _count(a == -inf, b > 0)
        minus = down + _count(a > 0, b == -inf) + _count(a < 0, b == inf) > 0
        if present is not None:
            loose = _count(~torch.isfinite(a), ~there) > 0
    if addend is not None:
        nan = nan | addend.isnan()
        plus = plus | (addend == float("inf"))
        minus = minus | (addend == float("-inf"))
    return sum_classes(nan, plus, minus, overflows), loose
