"""The finite value families of `kfuzz.core.families`, as functions of a grid.

Each function returns float64 that broadcasts to the shape of its grid. Those in
`EXACT` return values of the grid's format; those in `ROUNDED` are rounded to it
afterwards. Streams are numbered within
each function; a family never draws more than one value from a stream.
"""

import math
from collections.abc import Callable
from typing import Final

import numpy as np
import torch
from torch import Tensor

from kfuzz.core.tiles import edges
from kfuzz.execution.values.generator import (
    Grid,
    coprime,
    entry,
    greatest_exponent,
    signs,
    two_to,
    uploaded,
)
from kfuzz.numerics.formats import power_of_two

Builder = Callable[[Grid], Tensor]
EXACT: Final[dict[str, Builder]] = {}
ROUNDED: Final[dict[str, Builder]] = {}

# Products of two exact_int operands, summed over the axis, stay below 2**24,
# where every order of a float32 accumulator is exact.
_EXACT_PRODUCTS: Final = 1 << 22
_EXACT_INT_LIMIT: Final = 8
# Of the tensors of some families one in four is turned round.
_QUARTER_NEGATIVE: Final = (1.0, 1.0, 1.0, -1.0)
# Peak of exact_walk: times 8 (an exact_int operand) and twice (up and down
# again) it is within 2**24 too.
_WALK_PEAK: Final = 1 << 19


def _family(name: str, table: dict[str, Builder]) -> Callable[[Builder], Builder]:
    def register(build: Builder) -> Builder:
        table[name] = build
        return build

    return register


def _constant(grid: Grid, value: float) -> Tensor:
    return torch.full((1, 1), value, dtype=torch.float64, device=grid.device)


def _real(integers: Tensor) -> Tensor:
    return integers.to(torch.float64)


@_family("randn", ROUNDED)
def randn(grid: Grid) -> Tensor:
    """Nearly normal, mean 0."""
    return grid.normal(0)


@_family("uniform01", ROUNDED)
def _uniform01(grid: Grid) -> Tensor:
    return grid.fraction(0)


@_family("ones", EXACT)
def _ones(grid: Grid) -> Tensor:
    return _constant(grid, 1.0)


@_family("zeros", EXACT)
def _zeros(grid: Grid) -> Tensor:
    return _constant(grid, 0.0)


@_family("all_equal", ROUNDED)
def _all_equal(grid: Grid) -> Tensor:
    """One value per row, of every significand, within a factor 8 of 1."""
    word = grid.row_words(0)
    factor = grid.laid(two_to(grid.pick(1, 7) - 3))
    magnitude = (1.0 + _real(word) * 2.0**-32) * factor
    return magnitude * signs(grid.row_words(2) >> 31)


@_family("negative", ROUNDED)
def _negative(grid: Grid) -> Tensor:
    return -(1.0 + grid.normal(0).abs()) * grid.laid(two_to(grid.pick(3, 4)))


@_family("exact_int", EXACT)
def _exact_int(grid: Grid) -> Tensor:
    """Integers, of both signs or none negative, with small sums of products."""
    limit = min(_EXACT_INT_LIMIT, math.isqrt(_EXACT_PRODUCTS // grid.n))
    limits = [max(1, x) for x in (1, min(3, limit), limit, limit)]
    greatest = entry(limits, grid.pick(1, 4))
    least = greatest * (grid.pick(2, 2) - 1)
    count = grid.laid(greatest - least + 1)
    return _real(grid.words(0) % count + grid.laid(least))


@_family("exact_walk", EXACT)
def _exact_walk(grid: Grid) -> Tensor:
    """Rising steps, then the same steps back; the rest totals 0 to 3."""
    half = (grid.n - 1) // 2
    greatest = max(1, min((1 << grid.fmt.precision) - 1, _WALK_PEAK // max(half, 1)))
    position = grid.position
    mirrored = torch.minimum(position, 2 * half - 1 - position)
    step = grid.words_at(0, mirrored.clamp(min=0)) % greatest + 1
    walk = torch.where(position < half, step, -step)
    rest = torch.where(position == grid.n - 1, grid.row_words(1) % 4, 0)
    return _real(torch.where(position < 2 * half, walk, rest))


@_family("powers", EXACT)
def _powers(grid: Grid) -> Tensor:
    return power_of_two(grid.words(0) % 9 - 4) * grid.signs(1)


@_family("balanced", EXACT)
def _balanced(grid: Grid) -> Tensor:
    """+c and -c in neighbouring pairs, c of 1 or 3 times a power of two per row.

    An odd last element is 0.
    """
    word = grid.row_words(0)
    scale = _real((word & 1) * 2 + 1) * power_of_two((word >> 1) % 6 - 2)
    position = grid.position
    sign = signs((grid.words_at(1, position >> 1) + position) & 1)
    values = scale * sign
    if grid.n % 2:
        values[..., -1] = 0.0
    return values


@_family("ties", EXACT)
def _ties(grid: Grid) -> Tensor:
    """Three integers a row, the greatest in half of the places.

    For a quarter of the seeds the greatest is zero, of either sign.
    """
    word = grid.words(0)
    below = torch.clamp((word & 3) - 1, min=0)
    pick = grid.pick(1, 4)
    flat = grid.laid((pick == 0) * 1)
    top = (grid.row_words(2) % 5 - 2) * (1 - flat)
    negative = (((word >> 2) & flat) > 0) & (below == 0)
    return torch.where(negative, -0.0, _real(top - below))


@_family("absorb", EXACT)
def _absorb(grid: Grid) -> Tensor:
    """2**p of a 16-bit accumulator, then ones that it cannot take in.

    For half of the seeds the head is taken away again at the end, so that the
    sum is the number of ones.
    """
    # A float16 kernel that narrows its sums narrows them to float16.
    exponents = (11, 11) if grid.fmt.name == "float16" else (11, 8)
    greatest = greatest_exponent(grid.fmt)
    heads = [2.0 ** min(e, greatest) for e in exponents]
    head = entry(heads, grid.pick(0, 2))
    values = torch.ones(
        (*grid.shape[:-2], 1, grid.n), dtype=torch.float64, device=grid.device
    )
    values[..., :1] = grid.laid(head)
    if grid.n >= 3:
        values[..., -1:] = grid.laid(1.0 - (1.0 + head) * grid.pick(1, 2))
    return values * grid.laid(entry(_QUARTER_NEGATIVE, grid.pick(2, 4)))


@_family("cancel", ROUNDED)
def _cancel(grid: Grid) -> Tensor:
    """Large values mirrored about the middle with the other sign, and randn."""
    top = min(12, greatest_exponent(grid.fmt) - 3)
    position = grid.position
    opposite = grid.n - 1 - position
    pair = torch.minimum(position, opposite)
    word = grid.words_at(0, pair)
    exponent = top - (word >> 1) % 5
    magnitude = 1.0 + _real(grid.words_at(1, pair)) * 2.0**-32
    sign = signs(((word >> 8) & 1) ^ (position > opposite).to(torch.int64))
    large = magnitude * power_of_two(exponent) * sign
    is_large = ((word & 1) | (pair == 0).to(torch.int64)) > 0
    return torch.where(is_large & (position != opposite), large, grid.normal(2))


@_family("ramp", ROUNDED)
def _ramp(grid: Grid) -> Tensor:
    """Rising along the axis in equal steps, over 8, 64 or 1024 in all."""
    greatest = greatest_exponent(grid.fmt) - 1
    tops = [min(e, greatest) - (grid.n - 1).bit_length() for e in (3, 6, 10)]
    step = grid.laid(two_to(entry(tops, grid.pick(0, 3))))
    start = grid.laid(grid.n // 2 * grid.pick(1, 2))
    phase = grid.row_words(2) & 1
    return _real(grid.position - start + phase) * step


@_family("tail_big", ROUNDED)
def _tail_big(grid: Grid) -> Tensor:
    greatest = greatest_exponent(grid.fmt) - 1
    tops = [2.0 ** min(e, greatest) for e in (4, 6, 9)]
    sign = entry(_QUARTER_NEGATIVE, grid.pick(4, 4))
    values = grid.normal(0)
    values[..., -1:] = grid.laid(entry(tops, grid.pick(3, 3)) * sign)
    return values


@_family("onehot_tail", EXACT)
def _onehot_tail(grid: Grid) -> Tensor:
    """Zeros; the last element of each row is 1, 2, 3 or 4."""
    is_last = grid.position == grid.n - 1
    return _real(torch.where(is_last, grid.row_words(0) % 4 + 1, 0))


@_family("onehot_edge", EXACT)
def _onehot_edge(grid: Grid) -> Tensor:
    """Zeros; one element of each row, where two tiles may meet, is 1 to 4."""
    places = uploaded(np.array(edges(grid.n)), grid.device)
    place = places[grid.row_words(0) % len(places)]
    return _real(torch.where(grid.position == place, grid.row_words(1) % 4 + 1, 0))


@_family("edge_big", ROUNDED)
def _edge_big(grid: Grid) -> Tensor:
    """Normal but for one element of each row, where two tiles may meet: it is large.

    Far enough above the others for exp of the difference to overflow, mostly: what
    leaves out one element of a maximum shows nowhere else.
    """
    greatest = greatest_exponent(grid.fmt) - 1
    tops = [2.0 ** min(e, greatest) for e in (4, 7, 9)]
    large = entry(tops, grid.pick(3, 3)) * entry(_QUARTER_NEGATIVE, grid.pick(4, 4))
    places = uploaded(np.array(edges(grid.n)), grid.device)
    place = places[grid.row_words(5) % len(places)]
    return torch.where(grid.position == place, grid.laid(large), grid.normal(0))


@_family("offset", ROUNDED)
def _offset(grid: Grid) -> Tensor:
    """Normal about a mean of 2**m with a deviation of 2**(m-d).

    d leaves at least four bits of the format to the deviation.
    """
    precision, greatest = grid.fmt.precision, greatest_exponent(grid.fmt)
    least = min(3, precision - 1)
    d = least + grid.pick(3, max(1, precision - 4 - least + 1))
    m = entry([min(e, greatest - 2) for e in (0, 3, 6, 10)], grid.pick(4, 4))
    sign = entry(_QUARTER_NEGATIVE, grid.pick(5, 4))
    mean, deviation = grid.laid(two_to(m) * sign), grid.laid(two_to(m - d) * sign)
    return mean + grid.normal(0) * deviation


@_family("offset_ulp", EXACT)
def _offset_ulp(grid: Grid) -> Tensor:
    """A mean per row plus 0 to 3 units in its last place."""
    precision = grid.fmt.precision
    greatest = greatest_exponent(grid.fmt) - 1
    ulps = [2.0 ** (min(e, greatest) - precision + 1) for e in (0, 4, 8)]
    base = (1 << (precision - 1)) + grid.row_words(0) % (1 << (precision - 2))
    ulp = grid.laid(entry(ulps, grid.pick(2, 3)))
    return _real(base + grid.words(1) % 4) * ulp


@_family("expspread", ROUNDED)
def _expspread(grid: Grid) -> Tensor:
    """Every significand times 2**-30 to 2**15, or what the format has of it."""
    least = max(-30, grid.fmt.emin)
    # Four binades below the greatest: sums of a few elements stay finite.
    greatest = min(15, greatest_exponent(grid.fmt) - 4)
    exponent = grid.words(2) % (greatest - least + 1) + least
    return (1.0 + grid.fraction(0)) * power_of_two(exponent) * grid.signs(3)


@_family("big_logits", ROUNDED)
def _big_logits(grid: Grid) -> Tensor:
    """96 to 104 of either sign: float32 exp overflows from 88.8 on."""
    return (96.0 + 8.0 * grid.fraction(0)) * grid.signs(2)


@_family("neg_logits", ROUNDED)
def _neg_logits(grid: Grid) -> Tensor:
    """-128 to -104: float32 exp is zero from -104 down."""
    return -(104.0 + 24.0 * grid.fraction(0))


@_family("nearmax", ROUNDED)
def _nearmax(grid: Grid) -> Tensor:
    """Half to all of the greatest finite value over n.

    Of four seeds one has both signs, one is negative throughout: below whatever finite
    number stands for -Inf.
    """
    share = grid.fmt.max_finite / grid.n
    values = share * (0.5 + 0.5 * grid.fraction(0))
    chosen = grid.pick(3, 4)
    mixed = grid.laid((chosen == 0) * 1)
    values = values * grid.laid(entry(_QUARTER_NEGATIVE, chosen))
    return values * signs((grid.words(2) >> 31) & mixed)


@_family("halfway", EXACT)
def _halfway(grid: Grid) -> Tensor:
    """Midpoints between neighbours of a narrower format.

    Of float16 or bfloat16 where the format holds them, else of a format with
    one significand bit less.
    """
    narrower = [p for p in (11, 8) if p < grid.fmt.precision]
    narrower = narrower or [grid.fmt.precision - 1]
    p = entry(narrower, grid.pick(2, len(narrower)))
    half = grid.laid(1 << (p - 1))
    word = grid.words(0)
    twice = (half + word % half) * 2 + 1
    exponent = (word >> 24) % 8 - 2
    return _real(twice) * power_of_two(exponent - grid.laid(p)) * grid.signs(1)


@_family("permutation", EXACT)
def _permutation(grid: Grid) -> Tensor:
    """One 1 per row, in different places for up to n rows."""
    multiplier = grid.laid(coprime(1 + grid.pick(0, grid.n), grid.n))
    place = (grid.row * multiplier + grid.laid(grid.pick(1, grid.n))) % grid.n
    return _real(grid.position == place)


@_family("hadamard", EXACT)
def _hadamard(grid: Grid) -> Tensor:
    """Rows of a Sylvester-Hadamard matrix in a shuffled order, cut to n."""
    shuffle = grid.pick(0, 1 << (grid.n - 1).bit_length())
    parity = (grid.row ^ grid.laid(shuffle)) & grid.position
    for shift in (16, 8, 4, 2, 1):
        parity = parity ^ (parity >> shift)
    return signs(parity & 1)
