"""The families of floating numbers: each a formula, and its declaration below."""

import math
from typing import Any, Final

from kfuzz.core.value_families.table import (
    Code,
    Column,
    Draw,
    Family,
    Row,
    by_name,
    edges,
    infinity_bits,
    nan_bits,
)

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

    By seed: half of the places at random, a tail of random length, or a tail
    that grows shorter from row to row (a causal mask).
    """
    places = {Column.EXPONENT_KEY: 17, Column.SIGN_KEY: 18, Column.AUX: d.pick(16, 3)}
    return _normal(d) | {Column.CODE: Code.MASKED} | places


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
    Family(
        "randn", "plain", "baseline", _normal, {"weight": _TAME, "mask": 1},
        stretched=True,
    ),
    Family(
        "uniform01", "plain", "errors of one sign accumulate",
        lambda d: _fraction(d, 0.0, 1.0), {"variance": 2 * _TAME - 1}, stretched=True,
    ),
    Family(
        "ones", "plain", "biased rounding, uniform softmax",
        lambda d: {Column.A: 1.0}, {"weight": _TAME, "variance": _TAME},
    ),
    Family(
        "zeros", "plain", "division by zero, signed zeros",
        lambda d: {}, {"weight": _TAME, "variance": _TAME, "mask": 1},
    ),
    Family("all_equal", "plain", "biased rounding, zero variance", _all_equal),
    Family(
        "negative", "plain", "zero as identity or as fill of a tail",
        _negative, {"mask": 1}, stretched=True,
    ),
    Family(
        "exact_int", "exact", "any lost bit, in every order",
        _exact_int, {"weight": _TAME, "mask": 1}, beside="exact",
    ),
    Family(
        "exact_walk", "exact", "any lost bit behind large partial sums",
        _exact_walk, beside="exact",
    ),
    Family(
        "powers", "exact", "powers of two: products and scaling are exact",
        _powers, {"weight": _TAME}, stretched=True, beside="exact",
    ),
    Family(
        "balanced", "exact", "plus and minus c: mean 0, variance c*c exactly",
        _balanced, beside="exact",
    ),
    Family(
        "ties", "exact", "repeated values: ties of maxima", _ties, beside="exact"
    ),
    Family("absorb", "order", "a large head stops a narrow accumulator", _absorb),
    Family("cancel", "order", "large mirrored pairs: reordering, partials", _cancel),
    Family("ramp", "order", "rising scores: online rescaling", _ramp),
    Family("tail_big", "order", "the last element dominates: tail masks", _tail_big),
    Family("onehot_tail", "order", "only the last element counts", _onehot_tail),
    Family(
        "onehot_edge", "order", "only one element at a tile edge counts", _onehot_edge
    ),
    Family(
        "offset", "extreme", "mean far above spread: one-pass variance",
        _offset, cancels=True,
    ),
    Family(
        "offset_ulp", "extreme", "mean plus a few ulps: cancellation",
        _offset_ulp, cancels=True,
    ),
    Family(
        "expspread", "extreme", "45 binades: coerced operands, order", _expspread
    ),
    Family(
        # 96 to 104: float32 exp overflows from 88.8 on.
        "big_logits", "extreme", "plus and minus 100: no max subtraction",
        lambda d: _fraction(d, 96.0, 8.0) | _signs(2),
    ),
    Family(
        # -128 to -104: float32 exp is zero from -104 down.
        "neg_logits", "extreme", "all below -100: zero as max identity",
        lambda d: _fraction(d, -104.0, -24.0), {"mask": 1},
    ),
    Family("nearmax", "extreme", "intermediate overflow", _nearmax),
    Family(
        "subnormal", "extreme", "flushing of subnormal numbers",
        lambda d: _bits(d, 1, (1 << (d.fmt.precision - 1)) - 1),
    ),
    Family("minnormal", "extreme", "values around the least normal number", _minnormal),
    Family("halfway", "extreme", "midpoints of the 16-bit formats: rounding", _halfway),
    Family(
        "nan1", "special", "one NaN: swallowing, contamination", _nans, finite=False
    ),
    Family("inf1", "special", "one infinity", _infinities, finite=False),
    Family("infmix", "special", "infinities of both signs", _infmix, finite=False),
    Family(
        "ninf_mask", "special", "masked logits", _ninf_mask, {"mask": 3}, finite=False
    ),
    Family(
        "ninf_all", "special", "fully masked rows", _ninf_all, {"mask": 1}, finite=False
    ),
    Family("signed_zeros", "special", "lost signs of zero", lambda d: _bits(d, 0, 1)),
    Family("permutation", "structured", "transposed or swapped operands", _permutation),
    Family("hadamard", "structured", "plus and minus 1, orthogonal rows", _hadamard),
    Family("transpose_of", "structured", "operand correlated with another", None),
    Family(
        "edge_big", "order", "an element at a tile edge dominates: seams", _edge_big
    ),
    Family(
        "scaled", "extreme", "2 to 16 times normal: operands rounded once too often",
        _scaled, beside="scaled",
    ),
    Family(
        # Products with what has one sign are whole rows at a far level too.
        "far_rows", "extreme", "rows at a far level: finite numbers for -Inf",
        _far_rows, beside="plain",
    ),
    Family(
        "mixed_rows", "extreme", "rows of several kinds: ways chosen from a sample",
        _mixed_rows,
    ),
)  # fmt: skip
