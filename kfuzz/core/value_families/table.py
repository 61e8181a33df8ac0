"""What a family of values is, and the table by which the floating ones are made.

A formula says in columns what is made of one tensor. Most are one expression of drawn
integers k and e,

    value = (A + k * B) * C * 2**e * (1 or -1);

the rest have a code of their own. Streams are numbered within each family, which never
draws more than one value from a stream.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from typing import Any, Final, TypeAlias

from kfuzz.core.dtypes import DTYPES, canonical_nan, number_to_bits


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
        purpose: the faults it exposes.
        make: of floating families the row of the table, of others the values,
            from a grid; of hostile ones the value that spoils valid indices. None
            for what copies another argument.
        odds: how often it is drawn for an argument of a role ("weight", "variance",
            "mask", "integer"), where that is not once, or never for masks.
        finite: whether no value is NaN or infinite.
        stretched: whether an element depends on its number alone, so that any part
            of a tensor can be made without the rest.
        cancels: whether it cancels where a mean is taken out of the data.
        beside: a family or group that half of the other data arguments have where the
            first one has this: what both make together shows with neither alone.
    """

    name: str
    group: str
    purpose: str
    make: Callable[..., Any] | None = field(repr=False)
    odds: Mapping[str, int] = field(default_factory=dict)
    finite: bool = True
    stretched: bool = False
    cancels: bool = False
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
