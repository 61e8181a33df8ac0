"""Value families that are made of bit patterns: subnormals, NaN, infinities.

Narrowing does not keep NaN payloads, and arithmetic may flush subnormals, so
these families are written into the storage as integers.
"""

import math
from collections.abc import Callable, Sequence
from typing import Final

import torch
from torch import Tensor

from kfuzz.core.dtypes import DTYPES, canonical_nan, number_to_bits
from kfuzz.core.tiles import edges
from kfuzz.execution.values.generator import Grid, entry

# Integer dtype of the same width, by bytes per element.
INTEGERS: Final = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

# Streams below belong to `randn`, on which the overlays are written.
_FIRST: Final = 16


def as_signed(bits: int, itemsize: int) -> int:
    """Return an unsigned bit pattern as the signed integer of the same bits."""
    width = 8 * itemsize
    return bits - (1 << width) if bits >> (width - 1) else bits


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


def _signed_magnitudes(grid: Grid, magnitude: Tensor) -> Tensor:
    """Return raw signed integers (rows, n) of the magnitudes with random signs."""
    itemsize = DTYPES[grid.fmt.name].itemsize
    negative = grid.words(2) >> 31
    # Two's complement: setting the top bit subtracts 2**(width - 1).
    raw = magnitude + negative * -(1 << (8 * itemsize - 1))
    return raw.to(INTEGERS[itemsize])


def _field(grid: Grid, count: int) -> Tensor:
    word = grid.words(0)
    return (grid.wide(word, 1) if count > 1 << 32 else word) % count


def _subnormal(grid: Grid) -> Tensor:
    """Every non-zero subnormal, of both signs."""
    return _signed_magnitudes(grid, 1 + _field(grid, (1 << grid.fmt.precision - 1) - 1))


def _minnormal(grid: Grid) -> Tensor:
    """From half the least normal number to twice it, both signs."""
    quarter = 1 << (grid.fmt.precision - 2)
    return _signed_magnitudes(grid, quarter + _field(grid, 3 * quarter + 1))


def _signed_zeros(grid: Grid) -> Tensor:
    return _signed_magnitudes(grid, torch.zeros_like(grid.position))


RAW: Final[dict[str, Callable[[Grid], Tensor]]] = {
    "subnormal": _subnormal,
    "minnormal": _minnormal,
    "signed_zeros": _signed_zeros,
}


def _fill_where(grid: Grid, raw: Tensor, mask: Tensor, bits: int) -> None:
    raw.masked_fill_(mask, as_signed(bits, DTYPES[grid.fmt.name].itemsize))


def _one(grid: Grid, raw: Tensor, patterns: Sequence[int]) -> None:
    """Write one element: an edge of the axis, in the first, last or middle row."""
    places = edges(grid.n)
    place = entry(places, grid.pick(_FIRST, len(places)))
    row = entry((0, grid.rows - 1, grid.rows // 2), grid.pick(_FIRST + 1, 3))
    itemsize = DTYPES[grid.fmt.name].itemsize
    signed = [as_signed(bits, itemsize) for bits in patterns]
    grid.put(raw, row, place, entry(signed, grid.pick(_FIRST + 2, len(signed))))


def _nan1(grid: Grid, raw: Tensor) -> None:
    _one(grid, raw, [nan_bits(grid.fmt.name, variant) for variant in range(4)])


def _inf1(grid: Grid, raw: Tensor) -> None:
    name = grid.fmt.name
    _one(grid, raw, [infinity_bits(name, negative=sign) for sign in (False, True)])


def _infmix(grid: Grid, raw: Tensor) -> None:
    """Per row none, one sign or both; the first row has both if it has room."""
    word = grid.row_words(_FIRST)
    which = torch.where(grid.row == 0, 3, word & 3)
    first = (word >> 2) % grid.n
    second = (first + 1 + grid.row_words(_FIRST + 1) % max(grid.n - 1, 1)) % grid.n
    for bit, place in ((1, first), (2, second)):
        mask = (grid.position == place) & ((which & bit) > 0)
        _fill_where(grid, raw, mask, infinity_bits(grid.fmt.name, negative=bit == 2))


def _mask(grid: Grid) -> Tensor:
    """Return where a masked row is hidden; at least one place a row is not.

    By seed: half of the places at random, a tail of random length, or a tail
    that grows shorter from row to row (a causal mask).
    """

    def scattered() -> Tensor:
        keep = grid.row_words(_FIRST + 1) % grid.n
        return (grid.words(_FIRST + 2) >> 31 > 0) & (grid.position != keep)

    def tails() -> Tensor:
        return grid.position > grid.row_words(_FIRST + 1) % grid.n

    def causal() -> Tensor:
        return grid.position > grid.row % grid.n

    return grid.select(grid.pick(_FIRST, 3), (scattered, tails, causal))


def _ninf_mask(grid: Grid, raw: Tensor) -> None:
    minus = infinity_bits(grid.fmt.name, negative=True)
    _fill_where(grid, raw, _mask(grid), minus)


def _ninf_all(grid: Grid, raw: Tensor) -> None:
    """Half of the rows, the first among them, are hidden as a whole."""
    whole = (grid.row_words(_FIRST + 3) >> 31 > 0) | (grid.row == 0)
    minus = infinity_bits(grid.fmt.name, negative=True)
    _fill_where(grid, raw, whole.expand(raw.shape), minus)


OVERLAYS: Final[dict[str, Callable[[Grid, Tensor], None]]] = {
    "nan1": _nan1,
    "inf1": _inf1,
    "infmix": _infmix,
    "ninf_mask": _ninf_mask,
    "ninf_all": _ninf_all,
}
