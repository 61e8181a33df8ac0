"""How many bits sums are kept in, and how matrix units align and round them."""

import math
from dataclasses import dataclass
from typing import Final

from kfuzz.core.accumulators import Accumulator
from kfuzz.core.arithmetic_facts import Claim, Outcome, Reading
from kfuzz.core.recipe import Case
from kfuzz.probe.formats import SHORT, precision
from kfuzz.probe.order import meeting
from kfuzz.probe.rows import Row
from kfuzz.probe.subject import (
    NOTHING,
    SIZES,
    Inapplicable,
    Subject,
    Unobserved,
    number,
    shown,
)

ACCUMULATOR: Final = "accumulator"
ALIGNMENT: Final = "alignment"
FUSED: Final = "fused"

# Distances between terms of 1: a tile in which several meet first hides what is
# narrow between tiles alone.
_TILES: Final = (1, 16, 32, 64, 128, 256)
# The great term is 2^b. While b is two less than the bits of a format, sums of it and
# of fewer than 2^b units are exact in every order.
_LEAST: Final = 5
_SPARE: Final = 2
# Where weights may be off in float32's last places: far from there.
_INEXACT: Final = 15
# Two factors make the great term in the narrower formats.
_RIGHT: Final = {"float16": 11, "float8_e4m3fn": 7, "float8_e5m2": 11}
# Exponents of the least power of two that these hold, and of the greatest.
_REACH: Final = {
    "float16": (-24, 15), "float8_e4m3fn": (-9, 8), "float8_e5m2": (-16, 15),
}  # fmt: skip
_NAMES: Final = {8: "bfloat16", 11: "float16", 24: "float32"}
_BITS: Final = {"float64": 53, "float16": 11, "bfloat16": 8, "float32": 24}


@dataclass(frozen=True)
class _Asked:
    """A sum of 2^bits, units, and -2^bits.

    Attributes:
        bits: exponent of the great term.
        tile: distance between units.
        last: place of the negative great term; the positive one stands at 0.
        unit: 1 or -1: 2^b + 1 has a bit more than 2^b - 1, whichever meets.
        n: terms.
    """

    bits: int
    tile: int
    last: int
    unit: float
    n: int

    @property
    def places(self) -> list[int]:
        """Where the units stand."""
        return [k for k in range(1, self.n - 1, self.tile) if k != self.n // 2]

    @property
    def right(self) -> float:
        """The sum."""
        return self.unit * len(self.places)

    def row(self, scale: float) -> Row:
        """Return the terms, the great ones times what their right factors leave."""
        great = 2.0**self.bits * scale
        at = dict.fromkeys(self.places, self.unit)
        return Row(0.0, {**at, 0: great, self.last: -great})

    def told(self, value: float) -> str:
        """Return the sum that came, in words."""
        return (
            f"2^{self.bits}, {self.unit:+.0f} in each {self.tile} terms, "
            f"-2^{self.bits} at {self.last}: {number(value)}, {self.right:.0f} is right"
        )


def accumulator(subject: Subject) -> Reading:
    """Return how many bits a sum keeps.

    Of 2^b, units, and -2^b the sum is that of the units in every order, unless
    2^b + 1 has more bits than are kept.
    """
    n = _size(subject)
    right = _RIGHT.get(subject.dtype, 0) if subject.adder.products else 0
    top = max(24, declared_bits(subject.accumulator, subject)) - _SPARE
    top = min(top, _REACH.get(subject.dtype, (0, top))[1] + right)
    if not subject.adder.exact:
        top = min(top, _INEXACT)
    lost: list[tuple[_Asked, float, Case]] = []
    for last in (n - 1, n // 2):
        factors = Row(1.0, {0: 2.0**right, last: 2.0**right})
        asked = [
            _Asked(bits, tile, last, unit, n)
            for bits in range(_LEAST, top + 1)
            for tile in (t for t in (*_TILES, n) if t <= n)
            for unit in (1.0, -1.0)
        ]
        # More units than 2^b would need another bit by themselves.
        asked = [each for each in asked if len(each.places) < 2**each.bits]
        rows = [each.row(2.0**-right) for each in asked]
        got = subject.values(n, rows, [factors])
        for each, row, value in zip(asked, rows, got, strict=True):
            near = not subject.adder.exact and abs(value - each.right) < 0.5
            if value != each.right and not near:
                lost.append((each, value, subject.case(n, [row], [factors])))
    return _kept(subject, sorted(lost, key=lambda told: told[0].bits), top, n)


def _size(subject: Subject) -> int:
    """Return the number of terms: the number of ones must be exact in the output."""
    most = min(subject.most_terms, 2 ** precision(subject.adder.output))
    return subject.size([n for n in SIZES[::-1] if n <= most])


def _kept(
    subject: Subject, lost: list[tuple[_Asked, float, Case]], top: int, n: int
) -> Reading:
    """Return what follows from the sums in which units were lost."""
    range_case, overflow = _overflow(subject, n)
    declared = declared_bits(subject.accumulator, subject)
    first = [told for told in lost if told[0].bits == lost[0][0].bits]
    observed = tuple(each.told(value) for each, value, _ in first[:3])
    kept = first[0][0].bits if first else top + 1
    found = f"at least {kept} bits"
    if first and (kept == _LEAST or not all(math.isfinite(v) for _, v, _ in first)):
        found = "what comes is no sum of the terms in any format"
    elif first:
        found = f"{kept} bits" + (f", as {_NAMES[kept]}" if kept in _NAMES else "")
        tile = min(each.tile for each, _, _ in first)
        found += f" between tiles of {tile} terms" if tile > 1 else ""
    if overflow:
        found, observed = f"{found}, no range beyond float16", (*observed, overflow)
    narrow = bool(first) and kept < declared
    if not declared:
        outcome = Outcome.UNDECIDED
    elif narrow or (overflow and declared > precision("float16")):
        outcome = Outcome.DIFFERS
    elif kept > declared:
        outcome = Outcome.BETTER
    else:
        outcome = Outcome.AS_DECLARED
    witnesses = (*(case for _, _, case in first[:1]), *range_case)
    differs = outcome is Outcome.DIFFERS
    claims: dict[str, Claim] = {}
    if differs and first and kept in _NAMES:
        claims["accumulator"] = _NAMES[kept]
    return subject.reading(
        ACCUMULATOR, found, f"{declared} bits" if declared else "", outcome,
        reason="" if declared else "its width depends on the unit",
        terms=n, observed=observed, witnesses=witnesses,
        claims=claims,
    )  # fmt: skip


def _overflow(subject: Subject, n: int) -> tuple[tuple[Case, ...], str]:
    """Return the case that overflows a float16 sum, and what it gave if it did."""
    if subject.dtype != "float16" or subject.adder.divisor(n) > 1:
        return (), ""
    row = Row(0.0, {0: 60000.0, 1: 60000.0, 2: -60000.0, 3: -60000.0, 4: 1.0})
    [value] = subject.values(n, [row])
    if math.isfinite(value):
        return (), ""
    told = f"60000 + 60000 - 60000 - 60000 + 1 = {number(value)}"
    return (subject.case(n, [row]),), told


def declared_bits(claim: Accumulator, subject: Subject) -> int:
    """Return the bits that a declared accumulator keeps; 0 where units differ in it."""
    if claim.model == "any_tensor_core" and subject.dtype.startswith("float8"):
        return 0
    if claim.model in ("splitk", "atomic"):
        return min(24, _BITS.get(claim.dtype, 24))
    return _BITS.get(claim.model, 24)


def alignment(subject: Subject) -> Reading:
    """Return down to which bit terms are aligned that are added at once.

    2^10, 2^(10-k) and -2^10 in one block leave 2^(10-k) for k up to that bit.
    """
    n = _size(subject)
    if (how := meeting(subject, n)) != "at once":
        raise Inapplicable(f"terms are added {how}, two at a time")
    right = max(-14, _REACH.get(subject.dtype, (0, 0))[0])
    right = right if subject.adder.products else 0
    # The greatest term, as two factors, and the least that the left one can be.
    top = 8 if subject.dtype.startswith("float8") else 10
    least, most = _REACH.get(subject.dtype, (-40, 40))
    bits = [k for k in range(4, 40) if least <= top - k - right <= most]
    if not bits:
        raise Inapplicable(f"{subject.dtype} holds no terms far enough apart")
    rows = [
        Row(0.0, {0: 2.0**top, 1: 2.0 ** (top - k - right), 2: -(2.0**top)})
        for k in bits
    ]
    got = subject.values(n, rows, [Row(1.0, {1: 2.0**right})])
    kept = [k for k, value in zip(bits, got, strict=True) if value]
    raw = (f"k = {bits[0]} to {bits[-1]}: {shown(got)}",)
    if not kept or kept != bits[: len(kept)]:
        why = "what is kept does not end at one bit"
        raise Unobserved(why, observed=raw, terms=n)
    ends = f"{kept[-1]} bits" if kept != bits else f"at least {kept[-1]} bits"
    found = f"{ends} below the greatest of three terms"
    return subject.undeclared(ALIGNMENT, found, observed=raw, terms=n)


def fused(subject: Subject) -> Reading:
    """Return whether several additions are rounded as one, and how.

    Of 2^23, 2^23 and three terms of 1 each, every addition by itself leaves 2^24; at
    once they make 2^24 + 3, which rounds to 2^24 + 2 or, to nearest, + 4. What is
    subtracted far behind shows it in narrow results too.
    """
    n = _size(subject)
    if (how := meeting(subject, n)) == "in a tree":
        return subject.undeclared(FUSED, "two terms at a time")
    far = n - 1
    if subject.dtype in ("float32", "float64", "bfloat16"):
        left, right, end = 2.0**23, 1.0, -(2.0**24)
    elif subject.dtype == "float16" and subject.adder.products:
        left, right, end = 2.0**12, 2.0**11, -(2.0**13)
    else:
        raise Inapplicable(f"{subject.dtype} holds no such terms")
    at = {0: left, 1: left, 2: 1.0, 3: 1.0, 4: 1.0, far: end}
    [value] = subject.values(
        n, [Row(0.0, at)], [Row(1.0, {0: right, 1: right, far: right})]
    )
    told = {
        0.0: "each addition is rounded by itself",
        2.0: "several at once, then truncated",
        4.0: "several at once, then rounded to nearest",
        3.0: "kept beyond 24 bits",
    }
    raw = (f"2^23 + 2^23 + 1 + 1 + 1 - 2^24 = {number(value)}",)
    if value not in told or (how == "in turn" and value == 4.0):
        why = "no rounding of float32 sums gives this"
        raise Unobserved(why, observed=raw, terms=n)
    why = NOTHING
    if subject.dtype in SHORT:
        why = "what is declared allows either"
    return subject.undeclared(FUSED, told[value], why, observed=raw, terms=n)
