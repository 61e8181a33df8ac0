"""What `fused_kernel` is told of each member: the families as rows of a table.

The rows are made by numpy, for all members of one family at once. What a family is
stands in `families` and `patterns`; here it is said a second time, and tests hold both
to the same bits.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kfuzz.core.tiles import edges
from kfuzz.execution.values import fused_kernel as at
from kfuzz.execution.values.generator import (
    coprime,
    entry,
    greatest_exponent,
    two_to,
)
from kfuzz.execution.values.grids import Streams
from kfuzz.execution.values.patterns import as_signed, infinity_bits, nan_bits
from kfuzz.numerics.formats import Format

# A column, and an integer, a float or an array of one of them per member.
Columns: TypeAlias = dict[Any, Any]

_QUARTER_NEGATIVE: Final = (1.0, 1.0, 1.0, -1.0)


class Draw:
    """The numbers of some members of one family.

    Attributes:
        n: size of the structured axis.
        rows: product of the other sizes.
        fmt: format of the values.
    """

    def __init__(
        self, streams: Streams, start: int, stop: int, rows: int, n: int, fmt: Format
    ) -> None:
        """Take members `start` to `stop` of those that have `streams`."""
        self.n, self.rows, self.fmt = n, rows, fmt
        self.top = greatest_exponent(fmt)
        self._streams = streams
        self._mine = slice(start, stop)

    def key(self, stream: int) -> NDArray[np.int64]:
        """Return the keys of a stream."""
        return self._streams.key(stream)[self._mine].view(np.int64)

    def pick(self, stream: int, count: int) -> NDArray[np.int64]:
        """Return one integer of 0..count-1 per member."""
        return self._streams.picks(stream, count)[self._mine]

    def words(self, stream: int = 0) -> Columns:
        """Return what draws a word per element."""
        return {at.KEY: self.key(stream), at.ROW_STEP: self.n, at.STEP: 1}

    def row_words(self, stream: int = 0) -> Columns:
        """Return what draws one word for all elements of a row."""
        return {at.KEY: self.key(stream), at.ROW_STEP: 1, at.STEP: 0}

    def signs(self, stream: int, signed: Any = 1) -> Columns:
        """Return what draws a sign where a word is drawn."""
        return {at.SIGN_KEY: self.key(stream), at.SIGNED: signed}

    def normal(self, stream: int = 0) -> Columns:
        """Return what draws nearly normal values."""
        drawn = {at.MODE: 1, at.B: 2.0**-31, at.ROUNDED: 1}
        return self.words(stream) | drawn

    def fraction(self, a: float, b: float, c: Any = 1.0) -> Columns:
        """Return (a + b * fraction) * c."""
        drawn = {at.FACTOR: 1, at.A: a, at.B: b * 2.0**-32, at.C: c, at.ROUNDED: 1}
        return self.words() | drawn

    def bits(self, start: int, count: int) -> Columns:
        """Return bit patterns from `start` on, `count` in all, of both signs."""
        drawn = {at.RAW: 1, at.START: start, at.FACTOR: 1, at.COUNT: count}
        return self.words() | drawn | self.signs(2)

    def spot(self, patterns: Sequence[int]) -> Columns:
        """Return normal values but for one of some bit patterns."""
        places = edges(self.n)
        place = entry(places, self.pick(16, len(places)))
        row = entry((0, self.rows - 1, self.rows // 2), self.pick(17, 3))
        bits = entry(self.signed(patterns), self.pick(18, len(patterns)))
        one = {at.SPOT: row * self.n + place + 1, at.SPOT_BITS: bits}
        return self.normal() | one

    def signed(self, patterns: Sequence[int]) -> list[int]:
        """Return bit patterns of the format as signed integers."""
        itemsize = self.fmt.dtype.itemsize
        return [as_signed(bits, itemsize) for bits in patterns]


_BUILD: Final[dict[str, Callable[[Draw], Columns]]] = {}


def _family(build: Callable[[Draw], Columns]) -> Callable[[Draw], Columns]:
    _BUILD[build.__name__.removeprefix("_")] = build
    return build


_BUILD.update(
    {
        "randn": Draw.normal,
        "uniform01": lambda d: d.fraction(0.0, 1.0),
        "ones": lambda d: {at.A: 1.0},
        "zeros": lambda d: {},
        "big_logits": lambda d: d.fraction(96.0, 8.0) | d.signs(2),
        "neg_logits": lambda d: d.fraction(-104.0, -24.0),
        "subnormal": lambda d: d.bits(1, (1 << (d.fmt.precision - 1)) - 1),
        "signed_zeros": lambda d: d.bits(0, 1),
        "nan1": lambda d: d.spot([nan_bits(d.fmt.name, v) for v in range(4)]),
        "inf1": lambda d: d.spot(
            [infinity_bits(d.fmt.name, negative=sign) for sign in (False, True)]
        ),
    }
)


@_family
def _all_equal(d: Draw) -> Columns:
    factor = two_to(d.pick(1, 7) - 3)
    return d.fraction(1.0, 1.0, factor) | d.row_words() | d.signs(2)


@_family
def _negative(d: Draw) -> Columns:
    return d.normal() | {at.MODE: 2, at.A: 1.0, at.C: -two_to(d.pick(3, 4))}


@_family
def _exact_int(d: Draw) -> Columns:
    limit = min(8, math.isqrt((1 << 22) // d.n))
    limits = [max(1, x) for x in (1, min(3, limit), limit, limit)]
    greatest = entry(limits, d.pick(1, 4))
    least = greatest * (d.pick(2, 2) - 1)
    drawn = {at.START: least, at.FACTOR: 1, at.COUNT: greatest - least + 1}
    return d.words() | drawn


@_family
def _exact_walk(d: Draw) -> Columns:
    peak = (1 << 19) // max((d.n - 1) // 2, 1)
    greatest = max(1, min((1 << d.fmt.precision) - 1, peak))
    return {at.CODE: at.WALK, at.ROW_KEY: d.key(1), at.AUX: greatest} | d.words()


@_family
def _powers(d: Draw) -> Columns:
    exponent = {at.EXPONENT_KEY: d.key(0), at.EXPONENTS: 9, at.LEAST: -4}
    return d.words() | {at.A: 1.0} | exponent | d.signs(1)


@_family
def _balanced(d: Draw) -> Columns:
    return {at.CODE: at.BALANCED, at.ROW_KEY: d.key(0)} | d.words(1)


@_family
def _ties(d: Draw) -> Columns:
    flat = (d.pick(1, 4) == 0) * 1
    return {at.CODE: at.TIES, at.ROW_KEY: d.key(2), at.AUX: flat} | d.words()


@_family
def _absorb(d: Draw) -> Columns:
    exponents = (11, 11) if d.fmt.name == "float16" else (11, 8)
    head = entry([2.0 ** min(e, d.top) for e in exponents], d.pick(0, 2))
    sign = entry(_QUARTER_NEGATIVE, d.pick(2, 4))
    made = {at.A: sign, at.HAS_FIRST: 1, at.FIRST: head * sign}
    if d.n >= 3:
        last = 1.0 - (1.0 + head) * d.pick(1, 2)
        made |= {at.HAS_LAST: 1, at.LAST: last * sign}
    return made


@_family
def _cancel(d: Draw) -> Columns:
    aux = {at.CODE: at.CANCEL, at.AUX: min(12, d.top - 3)}
    return d.normal(2) | aux | {at.EXPONENT_KEY: d.key(0), at.SIGN_KEY: d.key(1)}


@_family
def _ramp(d: Draw) -> Columns:
    bits = (d.n - 1).bit_length()
    step = two_to(entry([min(e, d.top - 1) - bits for e in (3, 6, 10)], d.pick(0, 3)))
    start = d.n // 2 * d.pick(1, 2)
    drawn = {at.ROW_KEY: d.key(2), at.ROW_COUNT: 2, at.POSITION: 1}
    return drawn | {at.START: -start, at.C: step, at.ROUNDED: 1}


@_family
def _tail_big(d: Draw) -> Columns:
    tops = [2.0 ** min(e, d.top - 1) for e in (4, 6, 9)]
    last = entry(tops, d.pick(3, 3)) * entry(_QUARTER_NEGATIVE, d.pick(4, 4))
    return d.normal() | {at.HAS_LAST: 1, at.LAST: last}


@_family
def _onehot_tail(d: Draw) -> Columns:
    return {at.CODE: at.ONE_HOT, at.ROW_KEY: d.key(0)}


@_family
def _onehot_edge(d: Draw) -> Columns:
    hot = {at.CODE: at.ONE_HOT, at.ROW_KEY: d.key(1), at.AUX: len(edges(d.n))}
    return hot | d.words()


@_family
def _edge_big(d: Draw) -> Columns:
    tops = [2.0 ** min(e, d.top - 1) for e in (4, 7, 9)]
    large = entry(tops, d.pick(3, 3)) * entry(_QUARTER_NEGATIVE, d.pick(4, 4))
    edge = {at.CODE: at.EDGE, at.ROW_KEY: d.key(5), at.AUX: len(edges(d.n))}
    return d.normal() | edge | {at.LAST: large}


@_family
def _offset(d: Draw) -> Columns:
    precision = d.fmt.precision
    least = min(3, precision - 1)
    spread = least + d.pick(3, max(1, precision - 4 - least + 1))
    m = entry([min(e, d.top - 2) for e in (0, 3, 6, 10)], d.pick(4, 4))
    sign = entry(_QUARTER_NEGATIVE, d.pick(5, 4))
    return d.normal() | {at.A: two_to(m), at.B: two_to(m - spread - 31), at.C: sign}


@_family
def _offset_ulp(d: Draw) -> Columns:
    p = d.fmt.precision
    ulps = [2.0 ** (min(e, d.top - 1) - p + 1) for e in (0, 4, 8)]
    row = {at.ROW_KEY: d.key(0), at.ROW_COUNT: 1 << (p - 2), at.START: 1 << (p - 1)}
    ulp = entry(ulps, d.pick(2, 3))
    return d.words(1) | {at.FACTOR: 1, at.COUNT: 4, at.C: ulp} | row


@_family
def _expspread(d: Draw) -> Columns:
    least = max(-30, d.fmt.emin)
    count = min(15, d.top - 4) - least + 1
    exponent = {at.EXPONENT_KEY: d.key(2), at.EXPONENTS: count, at.LEAST: least}
    return d.fraction(1.0, 1.0) | exponent | d.signs(3)


@_family
def _nearmax(d: Draw) -> Columns:
    chosen = d.pick(3, 4)
    share = d.fmt.max_finite / d.n * entry(_QUARTER_NEGATIVE, chosen)
    return d.fraction(0.5, 0.5, share) | d.signs(2, (chosen == 0) * 1)


@_family
def _minnormal(d: Draw) -> Columns:
    quarter = 1 << (d.fmt.precision - 2)
    return d.bits(quarter, 3 * quarter + 1)


@_family
def _halfway(d: Draw) -> Columns:
    narrower = [p for p in (11, 8) if p < d.fmt.precision] or [d.fmt.precision - 1]
    p = entry(narrower, d.pick(2, len(narrower)))
    half = 1 << (p - 1)
    drawn = {at.START: 2 * half + 1, at.FACTOR: 2, at.COUNT: half}
    exponent = {at.EXPONENTS: 8, at.LEAST: -2 - p, at.SHIFT: 24}
    return d.words() | drawn | exponent | {at.EXPONENT_KEY: d.key(0)} | d.signs(1)


@_family
def _infmix(d: Draw) -> Columns:
    keys = {at.EXPONENT_KEY: d.key(16), at.SIGN_KEY: d.key(17)}
    return d.normal() | {at.CODE: at.INFINITIES} | keys


@_family
def _ninf_mask(d: Draw) -> Columns:
    keys = {at.EXPONENT_KEY: d.key(17), at.SIGN_KEY: d.key(18)}
    return d.normal() | {at.CODE: at.MASKED, at.AUX: d.pick(16, 3)} | keys


@_family
def _ninf_all(d: Draw) -> Columns:
    return d.normal() | {at.CODE: at.MASKED_ROWS, at.EXPONENT_KEY: d.key(19)}


@_family
def _permutation(d: Draw) -> Columns:
    factor = coprime(1 + d.pick(0, d.n), d.n)
    return {at.CODE: at.PERMUTATION, at.AUX: factor, at.OTHER: d.pick(1, d.n)}


@_family
def _hadamard(d: Draw) -> Columns:
    shuffle = d.pick(0, 1 << (d.n - 1).bit_length())
    return {at.CODE: at.HADAMARD, at.A: 1.0, at.AUX: shuffle}


FAMILIES: Final = frozenset(_BUILD)


def columns_of(family: str, draw: Draw) -> Columns:
    """Return what a family says of some members."""
    return _BUILD[family](draw)
