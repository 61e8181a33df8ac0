"""Accumulation models: what a declared way of keeping sums may lose.

Notation: S = sum|t| over n exact terms, u the accumulator's unit roundoff, c the
relative coefficient such that |computed - exact| <= c S. All are deterministic worst
cases over the orders that a model leaves open.

    any order, any tree: gamma(n-1, u). Higham, Accuracy and Stability of Numerical
        Algorithms, 2nd ed., (4.6).
    blocked(h): gamma(h, u). A term passes h additions at most: the factors
        (1 + delta) of (4.3).
    compensated: 2u + (n u)^2 + 4 n u^2. Kahan's sum (4.8), and the form that adds the
        correction at the end (4.9).
    splitk(p, f): gamma(p, u_f) more. Each part is rounded to f and meets p - 1
        additions there.
    atomic(f): gamma(n, u_f). Terms are rounded to f and added there.
    tensor cores: 2.5 (n + 4) u. Products and addend are aligned to the greatest
        exponent of a block of b and truncated to F bits, and so is the sum:
        ceil(n/b) (b 2^-F + 2^-23), greatest for Volta with b = 4, F = 23 (Fasi,
        Higham, Mikaitis, Pranesh 2021; Khattak, Mikaitis 2025).
    8-bit tensor cores: ceil(n/b) (b + 2) 2^-13. The same with F = 13 and b = 16 or
        32, the path of Ada and Hopper through 14 bits.

TF32 operands lose up to 2^-10 each, truncated; as three products (tf32x3) each operand
is a + b + r with |b| < 2^-10 |x| and |r| < 2^-20 |x|, and b b' is left out: 3 * 2^-20.
"""

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

import torch
from torch import Tensor

from kfuzz.core.declaration import Accumulator, Declaration
from kfuzz.numerics.formats import FORMATS, Format, lowest_bit_exponent, power_of_two

# glibc gives freed memory beyond a threshold back to the system, which has to clear it
# anew for the next tensor; freeing a large block raises it, to 31 MiB (mallopt(3)).
torch.empty(31 << 20, dtype=torch.uint8)

# Coefficient of truncating tensor cores over (n + 4) u: see above, Volta.
TENSOR_CORE: Final = 2.5
# Fractional bits that the 8-bit path of Ada and Hopper keeps, and its blocks.
SHORT_BITS: Final = 13
_SHORT_BLOCKS: Final = (16, 32)
# What a TF32 operand loses, truncated: 2 u.
_TF32: Final = 2 * FORMATS["tf32"].unit
# A TF32 operand holds every number of 11 bits or fewer.
_TF32_BITS: Final = FORMATS["tf32"].precision


def gamma(n: int, unit: float) -> float:
    """Return n u / (1 - n u), infinite (vacuous) where n u >= 1/2."""
    product = max(n, 0) * unit
    return product / (1 - product) if product < 0.5 else math.inf


def growth(n: int, unit: float) -> float:
    """Return gamma, or n u where gamma is vacuous: for attribution only."""
    bound = gamma(n, unit)
    return bound if math.isfinite(bound) else n * unit


@dataclass(frozen=True)
class Accumulation:
    """How long sums are kept, as declared.

    Attributes:
        format: format of the accumulator.
        tf32: whether float32 operands may lose their low 13 bits first.
        attribution: use `growth` in place of `gamma`, so that a narrower
            format's interval stays finite when a miss is attributed to it.
        three: whether float32 operands are multiplied as three TF32 products.
        height: greatest number of additions that a term passes; None for any.
        compensated: whether the rounding errors of additions are carried along.
        truncates: whether any tensor core may have made the sum.
        parts: number of parts stored in `stored`; 0 where there are none.
        stored: format of stored parts or of atomic additions; None where a sum
            stays in `format`.
    """

    format: Format
    tf32: bool = False
    attribution: bool = False
    three: bool = False
    height: int | None = None
    compensated: bool = False
    truncates: bool = False
    parts: int = 0
    stored: Format | None = None

    @classmethod
    def declared(
        cls, declaration: Declaration, *, attribution: bool = False
    ) -> "Accumulation":
        """Return the accumulation that a declaration names."""
        claim = Accumulator.parse(declaration.accumulator)
        plain = cls(FORMATS["float32"], attribution=attribution)
        match claim.model:
            case "tf32":
                return replace(plain, tf32=True)
            case "tf32x3":
                return replace(plain, three=True)
            case "any_tensor_core":
                return replace(plain, truncates=True)
            case "compensated":
                return replace(plain, compensated=True)
            case "blocked":
                return replace(plain, height=claim.count)
            case "splitk":
                return replace(plain, parts=claim.count, stored=FORMATS[claim.dtype])
            case "atomic":
                # Lanes and warps may have added in float32 before.
                stored = FORMATS[claim.dtype]
                narrow = min(plain.format, stored, key=lambda f: f.precision)
                return replace(plain, format=narrow, stored=stored)
            case name:
                return replace(plain, format=FORMATS[name])

    def coefficient(self, n: int) -> float:
        """Return c for n roundings that may all befall one term.

        Holds in every model; `summation` is sharper where the structure counts.
        """
        plain = replace(self, height=None, compensated=False)
        return max(plain.summation(n + 1), self.summation(n + 1))

    def summation(self, terms: int, *, extra: int = 0) -> float:
        """Return c for a sum of exact terms, in an order that the model admits.

        Args:
            terms: how many.
            extra: further roundings of each term, before or after the additions.
        """
        c = self._inside(terms, extra, truncates=self.truncates)
        return self._stored_too(c, terms)

    def products(self, terms: int, data: Format, *, extra: int = 0) -> float:
        """Return c for a sum of products of two operands in a format.

        Products count one rounding more, unfused, and the first addition of an
        accumulator that starts at 0 another. 16-bit products are exact; matrix
        units may truncate their sums.

        Args:
            terms: how many products.
            data: format of the operands.
            extra: further roundings of each term.
        """
        short = data.precision <= _TF32_BITS
        single = self.format.name == "float32"
        count = 3 * terms if self.three and not short else terms
        units = self.truncates or ((short or self.tf32 or self.three) and single)
        units = units and not self.compensated
        extra = extra + 2 + self._conversions(data, 2)
        c = self._inside(count, extra, truncates=units)
        if self.truncates and data.precision <= 4:
            c = max(c, *(self._short(terms, b) for b in _SHORT_BLOCKS))
        if self.three and not short:
            # Beside |a||b| the terms hold the two products with low parts.
            c = c * (1 + 2.0**-8)
        return self._stored_too(c, terms) + self.operand_error(data)

    def _inside(self, terms: int, extra: int, *, truncates: bool) -> float:
        """Return c within the accumulator, before parts are stored."""
        unit = self.format.unit
        bound = growth if self.attribution else gamma
        additions = max(terms - 1, 0)
        if self.stored is not None and not self.parts:
            additions = terms  # the term itself is rounded, or the base not 0
        if self.height is not None:
            additions = min(additions, self.height)
        if self.compensated:
            c = self._compensated(terms) + bound(extra, unit)
            return c * (1 + bound(extra, unit))
        c = bound(additions + extra, unit)
        if truncates:
            # For any order additions + 1 is the number of terms.
            c = max(c, TENSOR_CORE * (additions + 1 + max(extra - 2, 0) + 4) * unit)
        return c

    def _compensated(self, terms: int) -> float:
        product = terms * self.format.unit
        # The condition under which (4.9) is derived.
        if product > 0.1 and not self.attribution:
            return math.inf
        second = product * product + 4 * product * self.format.unit
        return 2 * self.format.unit + second if terms > 1 else 0.0

    def _stored_too(self, c: float, terms: int) -> float:
        if not self.parts or self.stored is None:
            return c
        bound = growth if self.attribution else gamma
        parts = min(self.parts, max(terms, 1))  # none is empty
        return (1 + c) * (1 + bound(parts, self.stored.unit)) - 1

    @staticmethod
    def _short(terms: int, block: int) -> float:
        return float(-(-terms // block) * (block + 2) * 2.0**-SHORT_BITS)

    def _conversions(self, data: Format, operands: int) -> int:
        """Return the roundings of operands that the accumulator cannot hold."""
        return operands if data.precision > self.format.precision else 0

    def depth(self, n: int) -> int:
        """Return the most additions that one of n summed terms passes."""
        additions = max(n - 1, 0)
        return additions if self.height is None else min(additions, self.height)

    def operand_error(self, data: Format, *, operands: int = 2) -> float:
        """Return the relative error of a product by what its operands lose.

        Args:
            data: format of the operands.
            operands: 1 where the other is 1, as in a plain sum.
        """
        if data.precision <= _TF32_BITS:
            return 0.0
        if self.three:
            return (2 * operands - 1) * _TF32 * _TF32
        if self.tf32 or self.truncates:
            return (1 + _TF32) ** operands - 1
        return 0.0

    def operand_floor(self, data: Format, *, flush: bool) -> float:
        """Return the magnitude below which an operand may lose all its bits."""
        floor = data.min_normal if flush else 0.0
        if data.precision > _TF32_BITS:
            if self.tf32 or self.truncates:
                floor = max(floor, FORMATS["tf32"].min_normal)
            if self.three:  # the low part is 2^-11 of the operand
                floor = max(floor, FORMATS["tf32"].min_normal * 2.0**11)
        if data.precision > self.format.precision:
            floor = max(floor, self.format.min_normal)
        return floor

    def splits(self, data: Format) -> bool:
        """Whether operands are split into parts: an infinity then may give NaN."""
        return self.three and data.precision > _TF32_BITS

    def operand_limit(self, data: Format) -> float:
        """Return the greatest magnitude of an operand that does not overflow.

        Beyond TF32's greatest number one that is rounded to TF32 becomes infinite.
        """
        coarse = self.tf32 or self.three or self.truncates
        if coarse and data.precision > _TF32_BITS:
            return min(self.limit, FORMATS["tf32"].max_finite)
        return self.limit

    def lost(self, n: int, *, flush: bool) -> float:
        """Return what n results of operations may lose to underflow, at most."""
        total = n * (self.format.min_normal if flush else self.format.min_subnormal)
        if self.stored is not None and self.stored.precision < 24:
            least = self.stored.min_normal if flush else self.stored.min_subnormal
            total += (self.parts + 1) * least
        return total

    @property
    def exact_bits(self) -> int:
        """Integers up to 2**exact_bits are held exactly, stored parts included."""
        return min(f.precision for f in self._formats)

    def exact_products(self, data: Format) -> int:
        """Return the bits that sums of products hold exactly; 0 where none.

        TF32 operands are not exact whatever the sum.
        """
        if self.operand_error(data) > 0:
            return 0
        short = self.truncates and data.precision <= 4
        return min(SHORT_BITS, self.exact_bits) if short else self.exact_bits

    def least_exponent(self, *, flush: bool) -> int:
        """Return the exponent of the least number that every format holds."""
        if flush:
            return max(f.emin for f in self._formats)
        return max(f.emin - f.precision + 1 for f in self._formats)

    @property
    def limit(self) -> float:
        """The greatest magnitude that a partial sum can have."""
        return min(f.max_finite for f in self._formats)

    def held_bits(self, data: Format) -> int:
        """Return the significand bits below which a format is a narrower one."""
        loses = (self.tf32 or self.truncates) and data.precision > _TF32_BITS
        return min(self.format.precision, _TF32_BITS if loses else 53)

    @property
    def _formats(self) -> tuple[Format, ...]:
        return (self.format,) if self.stored is None else (self.format, self.stored)


# Tests and constants of float64 elements, and pairs of masks, in few operations.
#
# A burst's acceptance is a chain of operations on tensors, each of which costs a GPU's
# host more than the device: `torch.isfinite` is four of them, a constant that is filled
# anew is one.


def is_finite(x: Tensor) -> Tensor:
    """Return where float64 elements are neither NaN nor infinite."""
    return x.abs() < math.inf


def plainly_finite(x: Tensor) -> bool:
    """Whether no float64 element is NaN or infinite, where a sum of them shows it.

    Asked on the CPU alone, where the answer saves passes over the elements: a device
    would be waited for.
    """
    return x.device.type == "cpu" and math.isfinite(float(x.sum()))


def finite_or_zero(x: Tensor) -> Tensor:
    """Return float64 elements with +0 in place of NaN and infinities."""
    return torch.nan_to_num(x, nan=0.0, posinf=0.0, neginf=0.0)


def zero(like: Tensor) -> Tensor:
    """Return 0 as a float64 tensor without dimensions, to choose or compare with."""
    return _number(0.0, like.device)


def one(like: Tensor) -> Tensor:
    """Return 1 as a float64 tensor without dimensions."""
    return _number(1.0, like.device)


def infinity(like: Tensor) -> Tensor:
    """Return infinity as a float64 tensor without dimensions."""
    return _number(math.inf, like.device)


def not_a_number(like: Tensor) -> Tensor:
    """Return NaN as a float64 tensor without dimensions."""
    return _number(math.nan, like.device)


def meet(left: Tensor, right: Tensor) -> Tensor:
    """Return where some k has both masks: the matrix product of bits.

    It counts in a format in which a device is fast: no sum of ones and zeros comes out
    as 0 unless it is one, however it rounds.

    Args:
        left: bool [..., M, K].
        right: bool [..., K, N].
    """
    dtype = torch.float32 if left.device.type == "cpu" else torch.float16
    return left.to(dtype) @ right.to(dtype) > 0


def code(value: int, like: Tensor) -> Tensor:
    """Return a small number as an uint8 tensor without dimensions."""
    return _number(value, like.device, torch.uint8)


# Kept per device and never written to.
@cache
def _number(
    value: float, device: torch.device, dtype: torch.dtype = torch.float64
) -> Tensor:
    return torch.full((), value, dtype=dtype, device=device)


def same_bits(a: Tensor, b: Tensor) -> Tensor:
    """Return where two tensors of one dtype hold the same bits (NaN = NaN)."""
    x, y = a.contiguous(), b.contiguous()
    equal = as_integers(x) == as_integers(y)
    return equal | (torch.isnan(x) & torch.isnan(y))


def identical(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have one shape, one dtype and the same bits."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return torch.equal(as_integers(a.contiguous()), as_integers(b.contiguous()))


def as_integers(values: Tensor) -> Tensor:
    """Return contiguous elements of any dtype as the integers of their size.

    float8 has few operators.
    """
    ints = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return values.view(ints[values.element_size()])


# A-priori error bounds of floating-point arithmetic: gamma, sums, products.
#
# All bounds are deterministic worst cases of a declared arithmetic, never
# statistics and never fitted to a kernel (README.md here; Higham,
# Accuracy and Stability of Numerical Algorithms, 2nd ed., chapters 3 and 4).

U32: Final = FORMATS["float32"].unit
U64: Final = FORMATS["float64"].unit
# Relative error of exp: 2 ulp from correctly rounded, the larger of CUDA's and
# HIP's documented budgets, is 2.5 ulp = 5 u.
EXP_ERROR: Final = 5
# Rounding of the argument of exp per unit of its magnitude: subtraction 1,
# multiplication by log2(e) and the constant's error 2; `__expf` fits in 4.
EXP_ARGUMENT: Final = 4
# Above the exponent of any term: of zeros, multiples of every power.
_NO_BIT: Final = 1 << 20
# Terms of sums of products that are asked for their lowest bits before all are.
_FEW: Final = 16
# Of normal numbers of float64 whose reciprocals are normal: 2^-1022 to 2^1022.
_SCALE: Final = 1022


def sum_error(
    terms: Tensor,
    dim: int,
    acc: Accumulation,
    *,
    flush: bool,
    data: Format | None = None,
    total: Tensor | None = None,
) -> Tensor:
    """Return the bound on |computed - exact| of a sum in any order.

    Args:
        terms: float64, finite, exact terms.
        dim: the summed dimension (negative).
        acc: the declared accumulation.
        flush: whether subnormal terms or partial sums may become 0.
        data: format of the terms where they are a kernel's input, which an
            accumulator may be too narrow to hold; None where it holds them.
        total: the sums of the terms' magnitudes, where they are known.

    Returns:
        float64 without `dim`: gamma(n-1) sum|t| (Higham eq. 4.6), 0 where the
        exactness test holds (`exactly_summable`).
    """
    n = terms.shape[dim]
    total = terms.abs().sum(dim) if total is None else total
    narrow = data is not None and data.precision > acc.format.precision
    coefficient = acc.summation(n, extra=int(narrow))
    coarse = 0.0 if data is None else acc.operand_error(data, operands=1)
    error = (coefficient + coarse) * total
    floor = 0.0 if data is None else acc.operand_floor(data, flush=False)
    if floor or acc.stored is not None:
        error = _beside(error, terms, floor, dim) + acc.lost(n, flush=flush)
    # Summing the reference itself in float64, and the flushes.
    reference = gamma(max(n - 1, 0), U64) * total
    if flush:
        least = acc.format.min_normal
        error = _beside(error, terms, least, dim) + n * least
    exact = exactly_summable(terms, dim, acc, flush=flush, total=total)
    if coarse:
        exact = torch.zeros_like(exact)
    return torch.where(exact, zero(error), error + reference)


def _beside(error: Tensor, terms: Tensor, least: float, dim: int) -> Tensor:
    """Return errors with the sums of terms below a number added, if these show."""
    most = 2.0**54 * (1 + U32) * terms.shape[dim] * least
    if is_at_hand(error) and float(error.amin()) >= most:  # less than half an ulp
        return error
    return error + torch.where((size := terms.abs()) < least, size, 0.0).sum(dim)


def is_at_hand(x: Tensor) -> bool:
    """Whether there are elements that the host can look at without a wait."""
    return x.device.type == "cpu" and x.numel() > 0


def exactly_summable(
    terms: Tensor,
    dim: int,
    acc: Accumulation,
    *,
    flush: bool,
    total: Tensor | None = None,
) -> Tensor:
    """Return where every order of summation is free of rounding.

    All terms are multiples of 2**q and sum|t| <= 2**p 2**q, so that each
    partial sum is a multiple of 2**q below 2**p. Where
    subnormals may be flushed, also 2**q >= lambda.

    Args:
        terms: float64, finite.
        dim: the summed dimension (negative).
        acc: the accumulation.
        flush: whether subnormals may be flushed.
        total: the sums of the terms' magnitudes, where they are known.
    """
    total = (terms.abs().sum(dim) if total is None else total).unsqueeze(dim)
    least = acc.least_exponent(flush=flush)
    if least < -_SCALE and total.numel() and terms.shape[dim]:
        lowest = lowest_bit_exponent(terms).amin(dim)
        return fits_exactly(total.squeeze(dim), lowest, acc, flush=flush)
    # Most sums do not fit for a few of their terms, with the room of the least sum.
    at_hand = is_at_hand(terms) and terms.shape[dim] >= 4 * _FEW
    if at_hand and (low := float(total.amin())):
        bit = math.frexp(min(low, 2.0**_SCALE))[1] - 1 - acc.exact_bits
        few = terms.narrow(dim, 0, _FEW) * 2.0 ** -max(bit, least)
        if few.round().sub_(few).abs_().amax(dim).amin() > 0:
            return torch.zeros_like(total.squeeze(dim), dtype=torch.bool)
    # The lowest bit for which the sum leaves room: of a power of two one lower.
    mantissa, exponent = torch.frexp(total)
    lowest = exponent.to(torch.int64) - (mantissa == 0.5).to(torch.int64)
    lowest = (lowest - acc.exact_bits).clamp(least, _SCALE)
    up, down = power_of_two(-lowest), power_of_two(lowest)
    off = (terms * up).round_().mul_(down).sub_(terms).abs_().sum(dim, keepdim=True)
    return ((total == 0) | ((off == 0) & (total <= acc.limit))).squeeze(dim)


def products_exactly(
    magnitude: Tensor,
    a: Tensor,
    b: Tensor,
    addend: Tensor,
    acc: Accumulation,
    *,
    flush: bool,
    bits: int,
) -> Tensor:
    """Return where no order of sums of products rounds.

    Args:
        magnitude: the sums of the terms' magnitudes.
        a: float64 [..., M, K], finite.
        b: float64 [..., K, N], finite.
        addend: one more term of each sum; 0 where there is none.
        acc: the accumulation.
        flush: whether subnormals may be flushed.
        bits: bits that sums of products hold exactly.
    """

    def lowest(x: Tensor, dim: int) -> Tensor:
        return lowest_bit_exponent(x).amin(dim).unsqueeze(dim)

    # The lowest bit of all terms is no higher than that of a few: most products of
    # numbers do not fit for these alone. A device would be waited for.
    if a.shape[-1] >= 4 * _FEW and magnitude.numel() and not magnitude.is_cuda:
        few = lowest(a[..., :_FEW], -1).max() + lowest(b[..., :_FEW, :], -2).max()
        most = int(few) + bits
        if most < 1024 and float(magnitude.min()) > 2.0**most:
            return torch.zeros_like(magnitude, dtype=torch.bool)
    least = torch.minimum(lowest(a, -1) + lowest(b, -2), lowest_bit_exponent(addend))
    least = least.clamp(max=_NO_BIT)
    return fits_exactly(magnitude, least, acc, flush=flush, bits=bits)


def fits_exactly(
    total: Tensor,
    lowest: Tensor,
    acc: Accumulation,
    *,
    flush: bool,
    bits: int | None = None,
) -> Tensor:
    """Return where sums of multiples of 2**lowest with sum|t| = total are exact.

    Args:
        total: float64, sum of magnitudes.
        lowest: int64, exponent of the lowest bit of any term.
        acc: the accumulation.
        flush: whether subnormals may be flushed.
        bits: bits that are held exactly; those of the accumulation by default.
    """
    held = acc.exact_bits if bits is None else bits
    # 2**(p + q) as float64; q is clamped so that the power exists.
    reach = torch.clamp(lowest + held, -1022, 1023)
    limit = ((reach + 1023) << 52).view(torch.float64)
    least = acc.least_exponent(flush=flush)
    in_range = (lowest >= least) & (total <= acc.limit)
    return (total == 0) | (in_range & (total <= limit))


def overflow_in_some_order(
    terms: Tensor, dim: int, acc: Accumulation, total: Tensor | None = None
) -> Tensor:
    """Return where some order of summation can overflow the accumulator.

    With P and N the sums of the positive and negative magnitudes, every partial
    sum lies in [-N, P]; neither is more than their `total`, where that is known.
    """
    n = terms.shape[dim]
    if total is not None and is_at_hand(total):
        most = 2 * total.amax()  # more than the rounding of these sums can add
        if not bool(can_overflow(most, most, n, acc)):
            return torch.zeros_like(total, dtype=torch.bool)
    positive = terms.clamp(min=0).sum(dim)
    negative = (-terms).clamp(min=0).sum(dim)
    return can_overflow(positive, negative, n, acc)


def can_overflow(
    positive: Tensor, negative: Tensor, n: int, acc: Accumulation
) -> Tensor:
    """Return where partial sums in [-negative, positive] may overflow."""
    margin = 1 + growth(n + 1, acc.format.unit)
    if acc.parts and acc.stored is not None:
        margin *= 1 + growth(acc.parts, acc.stored.unit)
    return torch.maximum(positive, negative) * margin > acc.limit
