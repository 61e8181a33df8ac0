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
from typing import Final

from kfuzz.core.accumulators import Accumulator
from kfuzz.core.declaration import Declaration
from kfuzz.numerics.formats import FORMATS, Format

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
