"""The families of values, of integers, truth values and indices: one declaration each.

Each family exists because it exposes a class of faults that random normal data hides.
Strategies read from here what is drawn how often. `kfuzz.execution.values` makes the
values: of a floating family from the row of a table that its formula gives, on the host
(`formula`) and by a compiled kernel (`fused_fills`); of the others from an expression.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from typing import Any, Final, TypeAlias

from kfuzz.core.dtypes import DTYPES, canonical_nan, number_to_bits

# What a family of values is, and the table by which the floating ones are made.
#
# A formula says in columns what is made of one tensor. Most are one expression of drawn
# integers k and e,
#
#     value = (A + k * B) * C * 2**e * (1 or -1);
#
# the rest have a code of their own. Streams are numbered within each family, which
# never draws more than one value from a stream.


class Column(IntEnum):
    """What a row of the table says; 0 where a formula gives nothing, B and C 1.

    Columns of `KEYS` name a stream, those of `REALS` are float64, all others integers.
    """

    CODE = 0
    KEY = 1
    EXPONENT_KEY = 2
    SIGN_KEY = 3
    ROW_KEY = 4
    # The word of an element is that of row * ROW_STEP + position * STEP.
    ROW_STEP = 5
    STEP = 6
    # k is normal in 2**-31 (MODE 1), its magnitude (2), or (0) START + POSITION *
    # position + FACTOR * (word mod COUNT) + (word of the row mod ROW_COUNT); COUNT 0
    # for 2**32.
    MODE = 7
    START = 8
    POSITION = 9
    FACTOR = 10
    COUNT = 11
    ROW_COUNT = 12
    # e is LEAST + (word >> SHIFT) mod EXPONENTS; 0 where EXPONENTS is 0.
    EXPONENTS = 13
    LEAST = 14
    SHIFT = 15
    SIGNED = 16
    A = 17
    B = 18
    C = 19
    HAS_FIRST = 20
    FIRST = 21
    HAS_LAST = 22
    LAST = 23
    # Whether the value is rounded to the format, or k is its bits but for the sign.
    ROUNDED = 24
    RAW = 25
    # One element that is overwritten, one more than its number, and its bits.
    SPOT = 26
    SPOT_BITS = 27
    AUX = 28
    OTHER = 29
    # From here on elements that are overwritten, by their place among those of the
    # item: one more than it, and their bits, in turn.
    PLANTS = 30


SLOTS: Final = 3
"""How many elements a row can overwrite besides the formula."""
COLUMNS: Final = Column.PLANTS + 2 * SLOTS
KEYS: Final = (Column.KEY, Column.EXPONENT_KEY, Column.SIGN_KEY, Column.ROW_KEY)
REALS: Final = (Column.A, Column.B, Column.C, Column.FIRST, Column.LAST)


class Code(IntEnum):
    """What a formula has besides the expression, or in its place."""

    PLAIN = 0
    TIES = 1
    BALANCED = 2
    WALK = 3
    CANCEL = 4
    ONE_HOT = 5
    PERMUTATION = 6
    HADAMARD = 7
    MASKED = 8
    MASKED_ROWS = 9
    INFINITIES = 10
    EDGE = 11
    NOTHING = 12  # the item is left as it is
    MIXED = 13


# Per column a number, or an array with one per item. `Draw` is `generator.Grid`: what
# it picks is an array with a number per item too.
Row: TypeAlias = dict[Column, Any]
Draw: TypeAlias = Any


@dataclass(frozen=True)
class Family:
    """A way to generate the values of a tensor.

    Attributes:
        name: as recipes spell it.
        group: "plain", "exact" (results are exactly representable, so any
            error shows), "extreme" (offsets and magnitudes), "order" (the
            place of the large values matters), "special" (holds NaN, Inf or
            signed zeros) or "structured" (matrices); of integer data "integer",
            of truth values "bool"; of indices "index" (all below their bound) or
            "hostile" (some are not).
        make: of floating families the row of the table, of others the values,
            from a grid; of hostile ones the value that spoils valid indices. None
            for what copies another argument.
        odds: how often it is drawn for an argument of a role ("weight", "variance",
            "mask", "integer"), where that is not once, or never for masks; and how
            much more often for data whose mean is taken out ("mean"), and that have
            more elements in a row than the widest usual block ("long").
        finite: whether no value is NaN or infinite.
        stretched: whether an element depends on its number alone, so that any part
            of a tensor can be made without the rest.
        beside: a family or group that half of the other data arguments have where the
            first one has this: what both make together shows with neither alone.
    """

    name: str
    group: str
    make: Callable[..., Any] | None = field(repr=False)
    odds: Mapping[str, int] = field(default_factory=dict)
    finite: bool = True
    stretched: bool = False
    beside: str = ""


def infinity_bits(dtype: str, *, negative: bool = False) -> int:
    """Return the bits of an infinity, or of the greatest value if it has none."""
    d = DTYPES[dtype]
    sign = int(negative) << (8 * d.itemsize - 1)
    if d.has_inf:
        return number_to_bits(math.inf, dtype) | sign
    return (canonical_nan(dtype) - 1) | sign


def nan_bits(dtype: str, variant: int) -> int:
    """Return a quiet NaN: plain, negative, with payload, or both (0 to 3).

    The payload is the greatest, which GPUs make and to which rounding adds a carry,
    or the least, which narrowing drops. Formats with a single NaN have none.
    """
    d = DTYPES[dtype]
    bits = canonical_nan(dtype) | (variant & 1) << (8 * d.itemsize - 1)
    if not variant & 2 or not d.has_inf:
        return bits
    quiet = canonical_nan(dtype) ^ infinity_bits(dtype)
    return bits | (1 if variant & 1 else quiet - 1)


def by_name(*families: Family) -> dict[str, Family]:
    """Return families by their names, in their order."""
    return {family.name: family for family in families}


# Block sizes that kernels use, and the indices at which their tiles meet.

# Powers of two from one tensor-core tile to the widest usual block.
TILES: Final = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)


@lru_cache(maxsize=4096)
def edges(n: int) -> tuple[int, ...]:
    """Return the indices of 0..n-1 at which tile handling goes wrong.

    Returns:
        First, last and middle index, both sides of the end of the first tile
        of every size, and the start of the last tile of every size; ascending,
        without repeats, empty for n == 0.
    """
    found = {0, n - 1, n // 2}
    for tile in TILES:
        found |= {tile - 1, tile, (n - 1) // tile * tile}
    return tuple(sorted(i for i in found if 0 <= i < n))


# The families of floating numbers: each a formula, and its declaration below.

# What formulas are made of.


def _words(d: Draw, stream: int = 0) -> Row:
    """A word per element."""
    return {Column.KEY: stream, Column.ROW_STEP: d.n, Column.STEP: 1}


def _signs(stream: int, signed: Any = 1) -> Row:
    """A sign where a word is drawn."""
    return {Column.SIGN_KEY: stream, Column.SIGNED: signed}


def _normal(d: Draw, stream: int = 0) -> Row:
    """Nearly normal values."""
    drawn = {Column.MODE: 1, Column.B: 2.0**-31, Column.ROUNDED: 1}
    return _words(d, stream) | drawn


def _fraction(d: Draw, a: float, b: float) -> Row:
    """Words as a number: a + b * fraction."""
    made = {Column.B: b * 2.0**-32, Column.FACTOR: 1, Column.ROUNDED: 1}
    return _words(d) | ({Column.A: a} if a else {}) | made


def _bits(d: Draw, start: int, count: int) -> Row:
    """Bit patterns from `start` on, `count` in all, of both signs."""
    drawn = {Column.RAW: 1, Column.START: start, Column.COUNT: count}
    return _words(d) | drawn | {Column.FACTOR: 1} | _signs(2)


def _spot(d: Draw, patterns: list[int]) -> Row:
    """Normal values but for one of some bit patterns.

    It lies at an edge of the axis, in the first, last or middle row.
    """
    place = d.entry(edges(d.n), 16)
    row = d.entry((0, d.rows - 1, d.rows // 2), 17)
    one = {Column.SPOT: row * d.n + place + 1}
    return _normal(d) | one | {Column.SPOT_BITS: d.entry(d.signed(patterns), 18)}


def _quarter_negative(d: Draw, stream: int) -> Any:
    """Of four tensors one is turned round."""
    return d.entry((1.0, 1.0, 1.0, -1.0), stream)


def _tops(d: Draw, exponents: tuple[int, ...]) -> list[float]:
    return [2.0 ** min(e, d.top - 1) for e in exponents]


# The families of floating numbers.


def _all_equal(d: Draw) -> Row:
    """One value per row, of every significand, within a factor 8 of 1."""
    one = {Column.ROW_STEP: 1, Column.STEP: 0}
    scale = {Column.C: d.two_to(d.pick(1, 7) - 3)}
    return _fraction(d, 1.0, 1.0) | scale | one | _signs(2)


def _negative(d: Draw) -> Row:
    scale = -d.two_to(d.pick(3, 4))
    return _normal(d) | {Column.MODE: 2, Column.A: 1.0, Column.C: scale}


def _exact_int(d: Draw) -> Row:
    """Integers, of both signs or none negative, with small sums of products.

    Products of two such operands, summed over the axis, stay below 2**24, where every
    order of a float32 accumulator is exact.
    """
    limit = min(8, math.isqrt((1 << 22) // d.n))
    greatest = d.entry([max(1, x) for x in (1, min(3, limit), limit, limit)], 1)
    least = greatest * (d.pick(2, 2) - 1)
    drawn = {Column.START: least, Column.COUNT: greatest - least + 1}
    return _words(d) | drawn | {Column.FACTOR: 1}


def _exact_walk(d: Draw) -> Row:
    """Rising steps, then the same steps back; the rest totals 0 to 3.

    Times 8 (an exact_int operand) and twice (up and down again) its peak is within
    2**24 too.
    """
    peak = (1 << 19) // max((d.n - 1) // 2, 1)
    greatest = max(1, min((1 << d.fmt.precision) - 1, peak))
    walk = {Column.CODE: Code.WALK, Column.ROW_KEY: 1, Column.AUX: greatest}
    return _words(d) | walk


def _powers(d: Draw) -> Row:
    exponent = {Column.EXPONENT_KEY: 0, Column.EXPONENTS: 9, Column.LEAST: -4}
    return _words(d) | {Column.A: 1.0} | exponent | _signs(1)


def _balanced(d: Draw) -> Row:
    """+c and -c in neighbouring pairs, c of 1 or 3 times a power of two per row.

    An odd last element is 0.
    """
    return _words(d, 1) | {Column.CODE: Code.BALANCED, Column.ROW_KEY: 0}


def _ties(d: Draw) -> Row:
    """Three integers a row, the greatest in half of the places.

    For a quarter of the seeds the greatest is zero, of either sign.
    """
    flat = (d.pick(1, 4) == 0) * 1
    return _words(d) | {Column.CODE: Code.TIES, Column.ROW_KEY: 2, Column.AUX: flat}


def _absorb(d: Draw) -> Row:
    """2**p of a 16-bit accumulator, then ones that it cannot take in.

    For half of the seeds the head is taken away again at the end, so that the
    sum is the number of ones.
    """
    # A float16 kernel that narrows its sums narrows them to float16.
    exponents = (11, 11) if d.fmt.name == "float16" else (11, 8)
    head = d.entry([2.0 ** min(e, d.top) for e in exponents], 0)
    sign = _quarter_negative(d, 2)
    made = {Column.A: sign, Column.HAS_FIRST: 1, Column.FIRST: head * sign}
    if d.n < 3:
        return made
    last = (1.0 - (1.0 + head) * d.pick(1, 2)) * sign
    return made | {Column.HAS_LAST: 1, Column.LAST: last}


def _cancel(d: Draw) -> Row:
    """Large values mirrored about the middle with the other sign, and randn."""
    large = {Column.CODE: Code.CANCEL, Column.AUX: min(12, d.top - 3)}
    return _normal(d, 2) | large | {Column.EXPONENT_KEY: 0, Column.SIGN_KEY: 1}


def _ramp(d: Draw) -> Row:
    """Rising along the axis in equal steps, over 8, 64 or 1024 in all."""
    bits = (d.n - 1).bit_length()
    step = d.two_to(d.entry([min(e, d.top - 1) - bits for e in (3, 6, 10)], 0))
    start = d.n // 2 * d.pick(1, 2)
    phase = {Column.ROW_KEY: 2, Column.ROW_COUNT: 2, Column.ROUNDED: 1}
    return phase | {Column.POSITION: 1, Column.START: -start, Column.C: step}


def _tail_big(d: Draw) -> Row:
    last = d.entry(_tops(d, (4, 6, 9)), 3) * _quarter_negative(d, 4)
    return _normal(d) | {Column.HAS_LAST: 1, Column.LAST: last}


def _onehot_tail(d: Draw) -> Row:
    """Zeros; the last element of each row is 1, 2, 3 or 4."""
    return {Column.CODE: Code.ONE_HOT, Column.ROW_KEY: 0}


def _onehot_edge(d: Draw) -> Row:
    """Zeros; one element of each row, where two tiles may meet, is 1 to 4."""
    one = {Column.CODE: Code.ONE_HOT, Column.ROW_KEY: 1, Column.AUX: len(edges(d.n))}
    return _words(d) | one


def _edge_big(d: Draw) -> Row:
    """Normal but for one element of each row, where two tiles may meet: it is large.

    Far enough above the others for exp of the difference to overflow, mostly: what
    leaves out one element of a maximum shows nowhere else.
    """
    large = d.entry(_tops(d, (4, 7, 9)), 3) * _quarter_negative(d, 4)
    edge = {Column.CODE: Code.EDGE, Column.ROW_KEY: 5, Column.AUX: len(edges(d.n))}
    return _normal(d) | edge | {Column.LAST: large}


def _offset(d: Draw) -> Row:
    """Normal about a mean of 2**m with a deviation of 2**(m-d).

    d leaves at least four bits of the format to the deviation.
    """
    precision = d.fmt.precision
    least = min(3, precision - 1)
    spread = least + d.pick(3, max(1, precision - 4 - least + 1))
    m = d.entry([min(e, d.top - 2) for e in (0, 3, 6, 10)], 4)
    scale = {Column.A: d.two_to(m), Column.B: d.two_to(m - spread - 31)}
    return _normal(d) | scale | {Column.C: _quarter_negative(d, 5)}


def _offset_ulp(d: Draw) -> Row:
    """A mean per row plus 0 to 3 units in its last place."""
    p = d.fmt.precision
    ulps = [2.0 ** (min(e, d.top - 1) - p + 1) for e in (0, 4, 8)]
    base = {Column.ROW_KEY: 0, Column.ROW_COUNT: 1 << (p - 2), Column.FACTOR: 1}
    above = {Column.START: 1 << (p - 1), Column.COUNT: 4, Column.C: d.entry(ulps, 2)}
    return _words(d, 1) | base | above


def _expspread(d: Draw) -> Row:
    """Every significand times 2**-30 to 2**15, or what the format has of it."""
    least = max(-30, d.fmt.emin)
    # Four binades below the greatest: sums of a few elements stay finite.
    count = min(15, d.top - 4) - least + 1
    drawn = {Column.EXPONENT_KEY: 2, Column.EXPONENTS: count, Column.LEAST: least}
    return _fraction(d, 1.0, 1.0) | drawn | _signs(3)


def _nearmax(d: Draw) -> Row:
    """Half to all of the greatest finite value over n.

    Of four seeds one has both signs, one is negative throughout: below whatever finite
    number stands for -Inf.
    """
    share = d.fmt.max_finite / d.n * _quarter_negative(d, 3)
    signed = _signs(2, (d.pick(3, 4) == 0) * 1)
    return _fraction(d, 0.5, 0.5) | {Column.C: share} | signed


def _minnormal(d: Draw) -> Row:
    """From half the least normal number to twice it, both signs."""
    quarter = 1 << (d.fmt.precision - 2)
    return _bits(d, quarter, 3 * quarter + 1)


def _halfway(d: Draw) -> Row:
    """Midpoints between neighbours of a narrower format.

    Of float16 or bfloat16 where the format holds them, else of a format with
    one significand bit less.
    """
    narrower = [p for p in (11, 8) if p < d.fmt.precision] or [d.fmt.precision - 1]
    p = d.entry(narrower, 2)
    half = 1 << (p - 1)
    twice = {Column.START: 2 * half + 1, Column.FACTOR: 2, Column.COUNT: half}
    power = {Column.EXPONENTS: 8, Column.LEAST: -2 - p, Column.SHIFT: 24}
    return _words(d) | twice | power | {Column.EXPONENT_KEY: 0} | _signs(1)


def _infmix(d: Draw) -> Row:
    """Per row none, one sign or both; the first row has both if it has room."""
    places = {Column.EXPONENT_KEY: 16, Column.SIGN_KEY: 17}
    return _normal(d) | {Column.CODE: Code.INFINITIES} | places


def _ninf_mask(d: Draw) -> Row:
    """Parts of rows are hidden, at least one place a row is not.

    By seed: half of the places at random, a tail of random length, or a tail that grows
    shorter from row to row (a causal mask).
    """
    places = {Column.EXPONENT_KEY: 17, Column.SIGN_KEY: 18, Column.AUX: d.pick(16, 3)}
    return _normal(d) | {Column.CODE: Code.MASKED} | places


def _ninf_head(d: Draw) -> Row:
    """Heads of rows are hidden, of random lengths: in long rows whole first blocks."""
    return _ninf_mask(d) | {Column.AUX: 3}


def _ninf_all(d: Draw) -> Row:
    """Half of the rows, the first among them, are hidden as a whole."""
    return _normal(d) | {Column.CODE: Code.MASKED_ROWS, Column.EXPONENT_KEY: 19}


def _scaled(d: Draw) -> Row:
    """Normal times 2 to 16, one factor for the tensor.

    Products of two such are 4 to 256 times as large, as the scores of attention are
    where training went far: an operand rounded once too often shows in exp of them.
    """
    factor = d.entry((2.0, 3.0, 4.0, 6.0, 8.0, 11.0, 16.0), 3)
    return _normal(d) | {Column.B: factor * 2.0**-31}


def _far_rows(d: Draw) -> Row:
    """One value per row, of either sign, from 2**7 to half the greatest number.

    For half of the seeds to 2**18 at most: of sums of what is larger the bounds admit
    anything.
    """
    least = min(7, d.top - 2)
    span = d.entry((min(11, d.top - least), d.top - least), 4)
    one = {Column.ROW_STEP: 1, Column.STEP: 0}
    level = {Column.EXPONENT_KEY: 2, Column.LEAST: least, Column.EXPONENTS: span}
    return _fraction(d, 1.0, 1.0) | level | one | _signs(3)


MIXED_KINDS: Final = 5
"""Of rows: normal, zeros, integers, large, far below zero."""


def _mixed_rows(d: Draw) -> Row:
    """Rows of several kinds behind one, half, or all but one that are of a tame kind.

    A tame kind is one of the first three of `MIXED_KINDS`.
    """
    first = d.entry((1, max(1, d.rows // 2), max(1, d.rows - 1)), 6)
    kinds = {Column.CODE: Code.MIXED, Column.AUX: d.pick(7, 3), Column.OTHER: first}
    scale = 2.0 ** min(6, d.top - 3)
    return _normal(d) | kinds | {Column.ROW_KEY: 5, Column.LAST: scale}


def _permutation(d: Draw) -> Row:
    """One 1 per row, in different places for up to n rows."""
    step = d.coprime(1 + d.pick(0, d.n), d.n)
    place = {Column.AUX: step, Column.OTHER: d.pick(1, d.n)}
    return place | {Column.CODE: Code.PERMUTATION}


def _hadamard(d: Draw) -> Row:
    """Rows of a Sylvester-Hadamard matrix in a shuffled order, cut to n."""
    shuffle = d.pick(0, 1 << (d.n - 1).bit_length())
    return {Column.CODE: Code.HADAMARD, Column.A: 1.0, Column.AUX: shuffle}


def _nans(d: Draw) -> Row:
    return _spot(d, [nan_bits(d.fmt.name, variant) for variant in range(4)])


def _infinities(d: Draw) -> Row:
    signs = (False, True)
    return _spot(d, [infinity_bits(d.fmt.name, negative=sign) for sign in signs])


# Weights, biases and variances hold mostly what is tame; an additive mask holds -Inf
# whatever a kernel declares of its data.
_TAME: Final = 31

FAMILIES: Final = by_name(
    # Baseline.
    Family("randn", "plain", _normal, {"weight": _TAME, "mask": 1}, stretched=True),
    # Errors of one sign accumulate.
    Family(
        "uniform01", "plain", lambda d: _fraction(d, 0.0, 1.0),
        {"variance": 2 * _TAME - 1}, stretched=True,
    ),
    # Biased rounding, uniform softmax.
    Family(
        "ones", "plain", lambda d: {Column.A: 1.0},
        {"weight": _TAME, "variance": _TAME},
    ),
    # Division by zero, signed zeros.
    Family(
        "zeros", "plain", lambda d: {}, {"weight": _TAME, "variance": _TAME, "mask": 1},
    ),
    # Biased rounding, zero variance.
    Family("all_equal", "plain", _all_equal),
    # Zero as identity or as fill of a tail.
    Family("negative", "plain", _negative, {"mask": 1}, stretched=True),
    # Any lost bit, in every order.
    Family(
        "exact_int", "exact", _exact_int, {"weight": _TAME, "mask": 1}, beside="exact",
    ),
    # Any lost bit behind large partial sums.
    Family("exact_walk", "exact", _exact_walk, beside="exact"),
    # Powers of two: products and scaling are exact.
    Family(
        "powers", "exact", _powers, {"weight": _TAME}, stretched=True, beside="exact",
    ),
    # Plus and minus c: mean 0, variance c*c exactly.
    Family("balanced", "exact", _balanced, beside="exact"),
    # Repeated values: ties of maxima.
    Family("ties", "exact", _ties, beside="exact"),
    # A large head stops a narrow accumulator.
    Family("absorb", "order", _absorb),
    # Large mirrored pairs: reordering, partials.
    Family("cancel", "order", _cancel),
    # Rising scores: online rescaling.
    Family("ramp", "order", _ramp),
    # The last element dominates: tail masks.
    Family("tail_big", "order", _tail_big),
    # Only the last element counts.
    Family("onehot_tail", "order", _onehot_tail),
    # Only one element at a tile edge counts.
    Family("onehot_edge", "order", _onehot_edge),
    # Mean far above spread: one-pass variance.
    Family("offset", "extreme", _offset, {"mean": 3}),
    # Mean plus a few ulps: cancellation.
    Family("offset_ulp", "extreme", _offset_ulp, {"mean": 3}),
    # 45 binades: coerced operands, order.
    Family("expspread", "extreme", _expspread),
    # Plus and minus 100: no max subtraction. 96 to 104: float32 exp overflows from
    # 88.8 on.
    Family("big_logits", "extreme", lambda d: _fraction(d, 96.0, 8.0) | _signs(2)),
    # All below -100: zero as max identity. -128 to -104: float32 exp is zero from
    # -104 down.
    Family("neg_logits", "extreme", lambda d: _fraction(d, -104.0, -24.0), {"mask": 1}),
    # Intermediate overflow.
    Family("nearmax", "extreme", _nearmax),
    # Flushing of subnormal numbers.
    Family(
        "subnormal", "extreme", lambda d: _bits(d, 1, (1 << (d.fmt.precision - 1)) - 1),
    ),
    # Values around the least normal number.
    Family("minnormal", "extreme", _minnormal),
    # Midpoints of the 16-bit formats: rounding.
    Family("halfway", "extreme", _halfway),
    # One NaN: swallowing, contamination.
    Family("nan1", "special", _nans, finite=False),
    # One infinity.
    Family("inf1", "special", _infinities, finite=False),
    # Infinities of both signs.
    Family("infmix", "special", _infmix, finite=False),
    # Masked logits.
    Family("ninf_mask", "special", _ninf_mask, {"mask": 3}, finite=False),
    # Blocks of them before any other.
    Family("ninf_head", "special", _ninf_head, {"mask": 1, "long": 3}, finite=False),
    # Fully masked rows.
    Family("ninf_all", "special", _ninf_all, {"mask": 1}, finite=False),
    # Lost signs of zero.
    Family("signed_zeros", "special", lambda d: _bits(d, 0, 1)),
    # Transposed or swapped operands.
    Family("permutation", "structured", _permutation),
    # Plus and minus 1, orthogonal rows.
    Family("hadamard", "structured", _hadamard),
    # Operand correlated with another.
    Family("transpose_of", "structured", None),
    # An element at a tile edge dominates: seams.
    Family("edge_big", "order", _edge_big),
    # 2 to 16 times normal: operands rounded once too often.
    Family("scaled", "extreme", _scaled, beside="scaled"),
    # Rows at a far level: finite numbers for -Inf. Products with what has one sign
    # are whole rows at a far level too.
    Family("far_rows", "extreme", _far_rows, beside="plain"),
    # Rows of several kinds: ways chosen from a sample.
    Family("mixed_rows", "extreme", _mixed_rows),
)  # fmt: skip


# The families of integers, truth values and indices.


def _int_uniform(grid: Draw, least: int) -> Any:
    low = grid.words(0)
    return low if least >= -(1 << 31) else (grid.words(1) << 32) | low


# Of integer data, such as the codes of quantized numbers: from a grid and the least
# integer, int64 of which the lower bits are meant.
INTEGER_FAMILIES: Final = by_name(
    # Baseline: the whole range of the dtype.
    Family("int_uniform", "integer", _int_uniform, {"integer": 2}),
    # -8 to 7: what is exact in every format.
    Family(
        "int_small", "integer", lambda grid, least: grid.words(0) % 16 + max(-8, least),
    ),
    # All 0.
    Family("int_zeros", "integer", lambda grid, least: grid.position * 0),
    # The least and the greatest: clamping, signs.
    Family("int_ends", "integer", lambda grid, least: -(grid.words(0) & 1) ^ least),
)  # fmt: skip

# Of truth values: not 0 where true.
BOOL_FAMILIES: Final = by_name(
    # Baseline: either, half and half.
    Family("bool_random", "bool", lambda grid: grid.words(0) >> 31),
    # 1 in 16 false.
    Family("bool_mostly_true", "bool", lambda grid: grid.words(0) % 16),
    # 1 in 16 true.
    Family("bool_mostly_false", "bool", lambda grid: grid.words(0) % 16 == 0),
    # Nothing is left out.
    Family("bool_all_true", "bool", lambda grid: grid.position >= 0),
    # Everything is left out.
    Family("bool_all_false", "bool", lambda grid: grid.position < 0),
    # One of each row: all but one left out.
    Family(
        "bool_one_true", "bool",
        lambda grid: grid.position == grid.row_words(0) % grid.n,
    ),
    # Neighbours differ: packed, shared loads.
    Family(
        "bool_alternating", "bool",
        lambda grid: (grid.row + grid.position + grid.laid(grid.pick(0, 2))) & 1,
    ),
    # The last of each row alone: tail masks.
    Family("bool_tail", "bool", lambda grid: grid.position == grid.n - 1),
)  # fmt: skip


def _sorted(grid: Draw, bound: int) -> Any:
    """Rising along the axis from 0 to at most bound - 1, each row shifted."""
    return (grid.position * bound + grid.row_words(0) % bound) // grid.n


def _permuted(grid: Draw, bound: int) -> Any:
    """Consecutive elements step through all values before one repeats."""
    multiplier = grid.laid(grid.coprime(1 + grid.pick(0, bound), bound))
    flat = grid.row * grid.n + grid.position
    return (flat * multiplier + grid.laid(grid.pick(1, bound))) % bound


# Of indices below a bound n: from a grid and n; a hostile value from n, the least and
# the greatest integer.
INDEX_FAMILIES: Final = by_name(
    # Baseline.
    Family("index_uniform", "index", lambda grid, bound: grid.words(0) % bound),
    # All 0: the first row or class.
    Family("index_first", "index", lambda grid, bound: grid.position * 0),
    # All n-1: tail masks of what is indexed.
    Family("index_last", "index", lambda grid, bound: grid.position * 0 + (bound - 1)),
    # Rising: coalesced and blocked reads.
    Family("index_sorted", "index", _sorted),
    # Falling: assumed order.
    Family(
        "index_reversed", "index", lambda grid, bound: bound - 1 - _sorted(grid, bound),
    ),
    # One value: duplicates, atomics.
    Family(
        "index_equal", "index",
        lambda grid, bound: grid.position * 0 + grid.laid(grid.pick(0, bound)),
    ),
    # Each value once where possible.
    Family("index_permuted", "index", _permuted),
    # 0, n-1 and the edges of tiles of n.
    Family(
        "index_edges", "index",
        lambda grid, bound: grid.places(edges(bound), grid.words(0)),
    ),
    # -1: wraps, or reads before the start.
    Family("index_negative", "hostile", lambda bound, least, greatest: -1),
    # N: one past the end, padded columns.
    Family("index_bound", "hostile", lambda bound, least, greatest: bound),
    # N+1: two past the end.
    Family("index_beyond", "hostile", lambda bound, least, greatest: bound + 1),
    # The least integer: overflowing offsets.
    Family("index_least", "hostile", lambda bound, least, greatest: least),
    # The greatest one: overflowing offsets.
    Family("index_greatest", "hostile", lambda bound, least, greatest: greatest),
)  # fmt: skip


STRETCHED: Final = tuple(f.name for f in FAMILIES.values() if f.stretched)
COPIES: Final = frozenset(f.name for f in FAMILIES.values() if f.make is None)
"""Families that make an argument of another one."""


def is_hostile(family: str) -> bool:
    """Whether a family holds indices that are not below their bound."""
    return family in INDEX_FAMILIES and INDEX_FAMILIES[family].group == "hostile"


def families_of(dtype: str, below: str = "") -> tuple[str, Mapping[str, Family]]:
    """Return what kind of values an argument holds, and the families of it.

    Args:
        dtype: of the argument.
        below: for indices the dimension whose size they stay below.
    """
    if below:
        return "index", INDEX_FAMILIES
    match DTYPES[dtype].kind:
        case "bool":
            return "bool", BOOL_FAMILIES
        case "int" | "uint":
            return "integer", INTEGER_FAMILIES
        case _:
            return "value", FAMILIES
