"""The formulas of `kfuzz.core.value_families` as operations on tensors, on any device.

`fused_fills` does the same by one compiled kernel; tests hold both to the same bits.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kfuzz.core.dtypes import DTYPES
from kfuzz.core.random_streams import splitmix64
from kfuzz.core.value_families import (
    BOOL_FAMILIES,
    FAMILIES,
    INDEX_FAMILIES,
    INTEGER_FAMILIES,
    MIXED_KINDS,
    Code,
    Column,
    Row,
    edges,
    infinity_bits,
    is_hostile,
)
from kfuzz.execution.device.backends import backend_of
from kfuzz.numerics.formats import Format, power_of_two

# Counter-based random numbers that are the same bits on every device.
#
# Every number is a function of (seed, stream, counter) only, made of int64
# additions, multiplications that stay below 2**63, shifts and xors, and of exact
# float64 operations: no random state, no transcendental function, nothing that a
# device or a torch version may round in its own way.
#
# Keys and picks of all items of a batch are made on the host together, by numpy, and
# brought to the device in few pieces; the elements of all items are made there as those
# of one.

Words: TypeAlias = NDArray[np.uint64]
# One number per item: an array, or the plain number of the only one. Numpy would take
# ten times as long for one.
Numbers: TypeAlias = Any

# Integer dtype of the same width, by bytes per element.
INTEGERS: Final = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

_MASK32: Final = (1 << 32) - 1
_MASK64: Final = (1 << 64) - 1
_LOW: Final = np.uint64(_MASK32)
# The 32-bit mixer of C. Wellons' hash-prospector with the least measured bias
# among two-round ones whose multipliers are below 2**31, so that a 32-bit word
# times a multiplier fits a signed 64-bit integer.
_MULTIPLIERS: Final = (0x21F0AAAD, 0x735A2D97)
# Mean of the sum of four 16-bit fields, the centre of the normal approximation.
_BELL_CENTRE: Final = 2 * 0xFFFF


def as_signed(bits: int, itemsize: int) -> int:
    """Return an unsigned bit pattern as the signed integer of the same bits."""
    width = 8 * itemsize
    return bits - (1 << width) if bits >> (width - 1) else bits


def splitmix64_all(state: Words) -> Words:
    """Return what `core.streams.splitmix64` gives each state; they wrap around."""
    z = state + np.uint64(0x9E3779B97F4A7C15)
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


def mixed(counter: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return a word per counter from the halves of a key; they broadcast."""
    # Half of the key enters between the rounds: with the other half alone all
    # streams would be windows of one and the same sequence.
    x = counter + low
    x &= _MASK32
    x ^= x >> 16
    x *= _MULTIPLIERS[0]
    x += high
    x &= _MASK32
    x ^= x >> 15
    x *= _MULTIPLIERS[1]
    x &= _MASK32
    x ^= x >> 15
    return x


def mixed_on_host(
    counter: NDArray[np.uint32], low: Any, high: Any
) -> NDArray[np.uint32]:
    """Return what `mixed` does: numpy has words of 32 bits that wrap around.

    Args:
        counter: the lower 32 bits are what counts.
        low: lower half of a key, uint32; it broadcasts.
        high: the other half.
    """
    x: NDArray[np.uint32] = counter + low
    x ^= x >> 16
    x *= np.uint32(_MULTIPLIERS[0])
    x += high
    x ^= x >> 15
    x *= np.uint32(_MULTIPLIERS[1])
    x ^= x >> 15
    return x


def uploaded(array: NDArray[Any], device: torch.device) -> Tensor:
    """Return an array on a device, without a wait for what the device is doing."""
    made = torch.from_numpy(array)
    if backend_of(device).has.on_host:
        return made
    return made.pin_memory().to(device, non_blocking=True)


class Streams:
    """The keys and picks of many seeds, made as they are asked for.

    Attributes:
        seeds: one per item, uint64.
        one: the seed where there is one item, else None.
        device: where the elements are made.
        on_host: whether that is where numpy is.
    """

    def __init__(self, seeds: Words, device: torch.device) -> None:
        """Take the seeds."""
        self.seeds = seeds
        self.device = device
        self.on_host = backend_of(device).has.on_host
        self.one = int(seeds[0]) if len(seeds) == 1 else None
        self._keys: dict[int, Words] = {}
        self._halves: dict[int, Tensor] = {}

    @cached_property
    def _mixed(self) -> Words:
        return splitmix64_all(self.seeds)

    @cached_property
    def _inverse(self) -> Words:
        return splitmix64_all(~self.seeds)

    def key(self, stream: int) -> Words:
        """Return the keys of a stream, [items]."""
        if self.one is not None:
            return np.array([self.only_key(stream)], dtype=np.uint64)
        if stream not in self._keys:
            self._keys[stream] = splitmix64_all(self._mixed ^ np.uint64(stream))
        return self._keys[stream]

    def only_key(self, stream: int) -> int:
        """Return the key of a stream where there is one item."""
        assert self.one is not None
        return splitmix64(splitmix64(self.one) ^ stream)

    def halves(self, stream: int) -> Tensor:
        """Return low and high halves of keys on the device, int64 [2, items, 1, 1]."""
        if stream not in self._halves:
            key = self.key(stream)
            both = np.stack((key & _LOW, key >> np.uint64(32))).view(np.int64)
            self._halves[stream] = uploaded(both.reshape(2, -1, 1, 1), self.device)
        return self._halves[stream]

    def picks(self, stream: int, count: int, items: slice) -> Numbers:
        """Return one integer of 0..count-1 for each of some items."""
        if self.one is not None:
            return splitmix64(splitmix64(~self.one & _MASK64) ^ stream) % count
        drawn = splitmix64_all(self._inverse ^ np.uint64(stream))
        return (drawn % np.uint64(count)).astype(np.int64)[items]


@dataclass(frozen=True, eq=False)
class Grid:
    """The logical elements of items of one shape, as rows along the structured axis.

    Elements have a shape that broadcasts to (items, rows, n). What is one number per
    item (`pick`) is an array of numpy, of streams of one item a plain number; `laid`
    brings it to where it meets elements.

    Attributes:
        rows: product of the sizes outside the axis, at least 1.
        n: size of the axis, at least 1.
        fmt: format of the values.
        streams: of these items, and of others before and after them.
        start: the first of these items.
        stop: one past the last.
        first: number of the first element, of a part of a larger tensor as one row:
            its words are those that the same elements have in the whole; what follows
            from the place along the axis (`position`, `row`, `n`) is not.
        total: elements of that larger tensor, 0 for a grid that is whole.
    """

    rows: int
    n: int
    fmt: Format
    streams: Streams
    start: int = 0
    stop: int = 1
    first: int = 0
    total: int = 0

    @property
    def device(self) -> torch.device:
        """Where the numbers are made."""
        return self.streams.device

    @property
    def count(self) -> int:
        """How many items there are."""
        return self.stop - self.start

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of the elements: (items, rows, n)."""
        return (self.count, self.rows, self.n)

    @property
    def top(self) -> int:
        """Exponent of the greatest finite value of the format."""
        return math.frexp(self.fmt.max_finite)[1] - 1

    @cached_property
    def position(self) -> Tensor:
        """Index along the axis, int64 of shape (1, n)."""
        return torch.arange(self.n, device=self.device).view(1, self.n)

    @cached_property
    def row(self) -> Tensor:
        """Index of the row, int64 of shape (rows, 1)."""
        return torch.arange(self.rows, device=self.device).view(self.rows, 1)

    @cached_property
    def _counter(self) -> Any:
        """A counter per element, (rows, n): int64, on the host uint32 of numpy."""
        return self._counted(self.first, 1).reshape(self.rows, self.n)

    @cached_property
    def _row_counter(self) -> Any:
        """A counter per row, (rows, 1), as `_counter`."""
        if not self.streams.on_host:
            return self.row
        return np.arange(self.rows, dtype=np.uint32).reshape(self.rows, 1)

    @property
    def _counters(self) -> Any:
        """Two counters per element, (2, 1, rows, n)."""
        if self.total:
            other = self._counted(self.first + self.total, 1)
            kind: Any = np if self.streams.on_host else torch
            both = kind.stack((self._counter, other.reshape(self.rows, self.n)))
        else:
            both = self._counted(0, 2)
        return both.reshape(2, 1, self.rows, self.n)

    def _counted(self, first: int, times: int) -> Any:
        """Return consecutive counters, so many times the elements of an item."""
        number = times * self.rows * self.n
        if not self.streams.on_host:
            return torch.arange(first, first + number, device=self.device)
        made = np.arange(number, dtype=np.uint32)
        return made + np.uint32(first & _MASK32) if first else made

    # What formulas pick, a number per item.

    def pick(self, stream: int, count: int) -> Numbers:
        """Return one integer of 0..count-1 per item."""
        return self.streams.picks(stream, count, slice(self.start, self.stop))

    def entry(self, table: Sequence[float], stream: int) -> Numbers:
        """Return the entry of a table that each item picks."""
        picked = self.pick(stream, len(table))
        return table[picked] if isinstance(picked, int) else np.asarray(table)[picked]

    @staticmethod
    def two_to(exponent: Numbers) -> Numbers:
        """Return 2.0**exponent, exactly."""
        if isinstance(exponent, int):
            return math.ldexp(1.0, exponent)
        return np.ldexp(1.0, exponent)

    @staticmethod
    def coprime(least: Numbers, n: int) -> Numbers:
        """Return the least numbers from `least` on that share no factor with n."""
        if isinstance(least, int):
            return next(x for x in count(least) if math.gcd(x, n) == 1)
        found = least.copy()
        while (common := np.gcd(found, n) != 1).any():
            found[common] += 1
        return found

    def signed(self, patterns: Sequence[int]) -> list[int]:
        """Return bit patterns of the format as signed integers."""
        itemsize = DTYPES[self.fmt.name].itemsize
        return [as_signed(bits, itemsize) for bits in patterns]

    def laid(self, number: Any) -> Any:
        """Return what is one number per item such that it broadcasts with elements.

        A number that is the same for all items stays one.
        """
        if not isinstance(number, np.ndarray):
            return number
        if len(number) == 1:
            return number.item()
        return uploaded(number.reshape(-1, 1, 1), self.device)

    def places(self, table: Sequence[int], words: Tensor) -> Tensor:
        """Return the entry of a table that each word picks."""
        every = uploaded(np.array(table), self.device)
        return every[words % len(table)]

    # What is drawn per element.

    def _mixed(self, stream: int, counter: Any) -> Tensor:
        """Return a word per counter, int64."""
        if self.streams.on_host:
            return torch.from_numpy(self._on_host(stream, counter).astype(np.int64))
        low, high = self.streams.halves(stream)[:, self.start : self.stop].unbind(0)
        return mixed(counter, low, high)

    def _on_host(self, stream: int, counter: Any) -> NDArray[np.uint32]:
        """Return a word per counter; those lie on the CPU."""
        if isinstance(counter, Tensor):
            counter = counter.numpy().astype(np.uint32)
        if self.streams.one is not None:
            key = self.streams.only_key(stream)
            return mixed_on_host(
                counter, np.uint32(key & _MASK32), np.uint32(key >> 32)
            )
        keys: Any = self.streams.key(stream)[self.start : self.stop].reshape(-1, 1, 1)
        low, high = keys.astype(np.uint32), (keys >> np.uint64(32)).astype(np.uint32)
        return mixed_on_host(counter, low, high)

    def words(self, stream: int) -> Tensor:
        """Return a 32-bit word per element."""
        return self._mixed(stream, self._counter)

    def words_at(self, stream: int, position: Tensor) -> Tensor:
        """Return words that repeat wherever `position` (1, n) repeats."""
        return self._mixed(stream, self.row * self.n + position)

    def row_words(self, stream: int) -> Tensor:
        """Return a 32-bit word per row, (items, rows, 1)."""
        return self._mixed(stream, self._row_counter)

    def normal(self, stream: int) -> Tensor:
        """Return nearly normal float64: mean 0, deviation 1.155.

        The sum of four 16-bit fields of two words, with lower bits appended so
        that the values fill the significand of the format: numbers with few
        bits would make sums exact and hide rounding errors. All lie in (-4, 4).
        """
        # Both words from one call: on small tensors calls are what costs.
        if self.streams.on_host:
            both = self._on_host(stream, self._counters)
            values = torch.from_numpy(bell_on_host(both))
        else:
            values = bell(self._mixed(stream, self._counters))
        if self.fmt.precision > 24:
            # 32 bits more, rounded once by the addition.
            low = self.words(stream + 1).to(torch.float64) * 2.0**-63
            values = values + low
        return values


def bell(both: Tensor) -> Tensor:
    """Return the numbers of `Grid.normal`, float64, from two words of each, int64."""
    fields = (both & 0xFFFF) + (both >> 16)
    low = (both[0] ^ (both[1] >> 8)) & 0xFFFF
    total = ((fields[0] + fields[1] - _BELL_CENTRE) << 16) + low - 0x8000
    return total.to(torch.float64) * 2.0**-31


def bell_on_host(both: NDArray[np.uint32]) -> NDArray[np.float64]:
    """Return what `bell` does: all of it is exact in float64."""
    fields = (both & 0xFFFF) + (both >> 16)
    low = (both[0] ^ (both[1] >> 8)) & 0xFFFF
    values: NDArray[np.float64] = (fields[0] + fields[1]).astype(np.float64)
    values -= _BELL_CENTRE + 0.5  # 0x8000 of the lower bits
    values *= 2.0**-15
    values += low * 2.0**-31
    return values


def signs(bit: Tensor) -> Tensor:
    """Return float64 +1 where the int64 bit is 0, -1 where it is 1."""
    return bit.to(torch.float64).mul_(-2.0).add_(1.0)


def narrowed(x: Tensor, fmt: Format) -> Tensor:
    """Return as float64 what one conversion to a format's dtype leaves as it is.

    Adding and subtracting 1.5 * 2**k, k chosen per element so that the sum's
    last place is the format's, rounds once to nearest even and needs a third of the
    operations of `kfuzz.numerics.formats.round_to`, with which it agrees (but a
    negative number that rounds to zero becomes +0).

    Args:
        x: finite float64 whose rounding is within the format's range.
        fmt: a format with a torch dtype of its name.

    Returns:
        `x` itself where the conversion rounds once, else the rounded values.
    """
    if fmt.precision >= 24:
        # One conversion of IEEE 754, or none.
        return x
    exponent = (x.contiguous().view(torch.int64) >> 52) & 0x7FF
    exponent.clamp_(min=fmt.emin + 1023)
    exponent += 53 - fmt.precision
    exponent <<= 52
    exponent |= 1 << 51
    magic = exponent.view(torch.float64)
    return (x + magic).sub_(magic)


# Of so many seeds of a hostile family one replaces every element.
_ALL_SHARE: Final = 4


def fill_rows(rows: Tensor, grid: Grid, family: str, *, bound: int = 0) -> None:
    """Write the values of a family.

    Args:
        rows: of the shape of the grid, contiguous; it is overwritten.
        grid: of the items.
        family: any but those that copy, of the kind that the dtype and the bound say.
        bound: of indices, what they stay below.
    """
    make: Any
    if bound:
        wanted = "index_uniform" if is_hostile(family) else family
        make = INDEX_FAMILIES[wanted].make
        rows.copy_(make(grid, bound))
        if wanted != family:
            _spoil(rows, grid, family, bound)
    elif rows.dtype is torch.bool:
        make = BOOL_FAMILIES[family].make
        rows.copy_(make(grid))
    elif not rows.is_floating_point():
        make = INTEGER_FAMILIES[family].make
        rows.copy_(make(grid, torch.iinfo(rows.dtype).min))
    else:
        make = FAMILIES[family].make
        _Formula(make(grid), grid).write(rows)


def _spoil(rows: Tensor, grid: Grid, family: str, bound: int) -> None:
    """Overwrite one index of each item, or all, by the value of a hostile family."""
    make: Any = INDEX_FAMILIES[family].make
    limits = torch.iinfo(rows.dtype)
    value = make(bound, limits.min, limits.max)
    row = grid.entry((0, grid.rows - 1, grid.rows // 2), 2)
    place, every = grid.entry(edges(grid.n), 1), grid.pick(3, _ALL_SHARE) == 0
    row, place, every = (np.broadcast_to(x, grid.count) for x in (row, place, every))
    for item in range(grid.count):
        if every[item]:
            rows[item].fill_(value)
        else:
            rows[item, int(row[item]), int(place[item])] = value


class _Formula:
    """The row of a family in the making, on one grid."""

    def __init__(self, row: Row, grid: Grid) -> None:
        self._row, self._grid = row, grid
        # Bits of k, where they are the value's, and where it is negative.
        self._k: Any = 0
        self._negative: Any = None

    def _at(self, column: Column) -> Any:
        return self._grid.laid(self._row.get(column, 0))

    def _drawn(self, column: Column) -> Tensor:
        """Return the words of a key, one per element or per row."""
        stream = self._row[column]
        if self._row[Column.STEP]:
            return self._grid.words(stream)
        return self._grid.row_words(stream)

    def _of_row(self, column: Column) -> Tensor:
        return self._grid.row_words(self._row[column])

    def write(self, rows: Tensor) -> None:
        """Write the values of the grid's shape, in the dtype of its format."""
        row, grid = self._row, self._grid
        if row.keys() <= {Column.A}:  # one number throughout
            rows.fill_(row.get(Column.A, 0.0))
            return
        raw = rows.view(INTEGERS[rows.element_size()])
        value = self._value()
        if Column.HAS_LAST in row or Column.HAS_FIRST in row:
            value = value.expand(grid.shape).clone()
            if Column.HAS_LAST in row:
                value[..., -1:] = self._at(Column.LAST)
            if Column.HAS_FIRST in row:
                value[..., :1] = self._at(Column.FIRST)
        if Column.RAW in row:
            # Two's complement: setting the top bit subtracts 2**(width - 1).
            top = -(1 << (8 * rows.element_size() - 1))
            raw.copy_(self._k + self._negative * top)
            return
        if self._negative is not None:
            value = value * signs(self._negative)
        rows.copy_(narrowed(value, grid.fmt) if Column.ROUNDED in row else value)
        self._overwrite(raw)

    def _value(self) -> Tensor:
        """Return the value before signs, float64 that broadcasts to the shape."""
        row = self._row
        value = self._integers()
        factor = row.get(Column.B, 1.0)
        if row.get(Column.MODE):  # the grid draws k in units of 2**-31
            factor = factor * 2.0**31
        if not isinstance(factor, float) or factor != 1.0:
            value = value * self._grid.laid(factor)
        if Column.A in row:
            value = self._at(Column.A) + value
        if Column.C in row:
            value = value * self._at(Column.C)
        if Column.EXPONENTS in row:
            word = self._drawn(Column.EXPONENT_KEY)
            if Column.SHIFT in row:
                word = word >> row[Column.SHIFT]
            exponent = word % self._at(Column.EXPONENTS) + self._at(Column.LEAST)
            value = value * power_of_two(exponent)
        if Column.SIGNED in row:
            self._negative = self._drawn(Column.SIGN_KEY) >> 31
            signed = self._at(Column.SIGNED)
            if isinstance(signed, Tensor) or signed != 1:
                self._negative = self._negative & signed
        special = _CODES.get(row.get(Column.CODE, Code.PLAIN))
        return value if special is None else special(self, value)

    def _integers(self) -> Tensor:
        """Return k as float64; of normal values in units of one."""
        row, grid = self._row, self._grid
        if mode := row.get(Column.MODE):
            values = grid.normal(row[Column.KEY])
            return values.abs() if mode == 2 else values
        k: Any = 0
        low: Tensor | None = None
        if Column.FACTOR in row:
            drawn, count = self._drawn(Column.KEY), self._at(Column.COUNT)
            wide = grid.fmt.precision > 24 and row[Column.STEP]
            if Column.COUNT not in row:
                # Finer than 32 bits where the format is.
                low = grid.words(row[Column.KEY] + 1) >> 12 if wide else None
            elif isinstance(count, int) and count > 1 << 32:
                fine = grid.words(row[Column.KEY] + 1) >> 12
                drawn = ((drawn << 20) | fine) % count
            else:
                drawn = drawn % count
            factor = row[Column.FACTOR]
            k = drawn if factor == 1 else drawn * factor
        if Column.ROW_COUNT in row:
            k = k + self._of_row(Column.ROW_KEY) % row[Column.ROW_COUNT]
        if Column.POSITION in row:
            k = k + grid.position * row[Column.POSITION]
        if Column.START in row:
            k = k + self._at(Column.START)
        self._k = k
        if not isinstance(k, Tensor):
            return torch.full((1, 1), k, dtype=torch.float64, device=grid.device)
        real: Tensor = k.to(torch.float64)
        return real if low is None else real + low.to(torch.float64) * 2.0**-20

    def ties(self, value: Tensor) -> Tensor:
        flat = self._at(Column.AUX)
        word = self._drawn(Column.KEY)
        below = torch.clamp((word & 3) - 1, min=0)
        top = (self._of_row(Column.ROW_KEY) % 5 - 2) * (1 - flat)
        self._negative = ((word >> 2) & flat) * (below == 0)
        values: Tensor = (top - below).to(torch.float64)
        return values

    def balanced(self, value: Tensor) -> Tensor:
        grid = self._grid
        word = self._of_row(Column.ROW_KEY)
        scale = ((word & 1) * 2 + 1).to(torch.float64)
        scale = scale * power_of_two((word >> 1) % 6 - 2)
        position = grid.position
        pair = grid.words_at(self._row[Column.KEY], position >> 1)
        self._negative = (pair + position) & 1
        if grid.n % 2 == 0:
            return scale
        lone = position == grid.n - 1
        self._negative = torch.where(lone, 0, self._negative)
        return torch.where(lone, 0.0, scale)

    def walk(self, value: Tensor) -> Tensor:
        grid, position = self._grid, self._grid.position
        half = (grid.n - 1) // 2
        mirrored = torch.minimum(position, 2 * half - 1 - position).clamp(min=0)
        drawn = grid.words_at(self._row[Column.KEY], mirrored)
        step: Tensor = drawn % self._row[Column.AUX] + 1
        step = torch.where(position < half, step, -step)
        rest = self._of_row(Column.ROW_KEY) & 3
        rest = torch.where(position == grid.n - 1, rest, 0)
        return torch.where(position < 2 * half, step, rest).to(torch.float64)

    def cancel(self, value: Tensor) -> Tensor:
        grid, position = self._grid, self._grid.position
        opposite = grid.n - 1 - position
        pair = torch.minimum(position, opposite)
        word = grid.words_at(self._row[Column.EXPONENT_KEY], pair)
        fraction = grid.words_at(self._row[Column.SIGN_KEY], pair).to(torch.float64)
        exponent = self._row[Column.AUX] - (word >> 1) % 5
        sign = signs(((word >> 8) & 1) ^ (position > opposite).to(torch.int64))
        large = (1.0 + fraction * 2.0**-32) * power_of_two(exponent) * sign
        is_large = ((word & 1) | (pair == 0).to(torch.int64)) > 0
        return torch.where(is_large & (position != opposite), large, value)

    def _edge(self, words: Tensor) -> Tensor:
        return self._grid.places(edges(self._grid.n), words)

    def one_hot(self, value: Tensor) -> Tensor:
        grid = self._grid
        place: Tensor | int = grid.n - 1
        if Column.AUX in self._row:
            place = self._edge(grid.row_words(self._row[Column.KEY]))
        one = self._of_row(Column.ROW_KEY) % 4 + 1
        return torch.where(grid.position == place, one, 0).to(torch.float64)

    def edge(self, value: Tensor) -> Tensor:
        place = self._edge(self._of_row(Column.ROW_KEY))
        is_there = self._grid.position == place
        return torch.where(is_there, self._at(Column.LAST), value)

    def mixed(self, value: Tensor) -> Tensor:
        grid, large = self._grid, value * self._at(Column.LAST)
        kind = self._of_row(Column.ROW_KEY) % MIXED_KINDS
        is_first = grid.row < self._at(Column.OTHER)
        kind = torch.where(is_first, self._at(Column.AUX), kind)
        value = torch.where(kind == 1, 0.0, value)
        value = torch.where(kind == 2, torch.floor(large * 2.0**-4), value)
        value = torch.where(kind == 3, large, value)
        below = -2.0 * self._at(Column.LAST) - value.abs()
        return torch.where(kind == 4, below, value)

    def permutation(self, value: Tensor) -> Tensor:
        grid = self._grid
        place = (grid.row * self._at(Column.AUX) + self._at(Column.OTHER)) % grid.n
        one: Tensor = grid.position == place
        return one.to(torch.float64)

    def hadamard(self, value: Tensor) -> Tensor:
        parity = (self._grid.row ^ self._at(Column.AUX)) & self._grid.position
        for shift in (16, 8, 4, 2, 1):
            parity = parity ^ (parity >> shift)
        self._negative = parity & 1
        return value

    def _overwrite(self, raw: Tensor) -> None:
        """Write what is no number: infinities, hidden places, one special value."""
        grid, row = self._grid, self._row
        code, spot = row.get(Column.CODE), row.get(Column.SPOT)
        if code is None and spot is None:
            return
        if code in _HIDING:
            minus, plus = grid.signed(
                [infinity_bits(grid.fmt.name, negative=sign) for sign in (True, False)]
            )
        match code:
            case Code.MASKED:
                raw.masked_fill_(self._mask(), minus)
            case Code.MASKED_ROWS:
                word = self._of_row(Column.EXPONENT_KEY)
                raw.masked_fill_((word >> 31 > 0) | (grid.row == 0), minus)
            case Code.INFINITIES:
                word = self._of_row(Column.EXPONENT_KEY)
                which = torch.where(grid.row == 0, 3, word & 3)
                first = (word >> 2) % grid.n
                further = self._of_row(Column.SIGN_KEY) % max(grid.n - 1, 1)
                second = (first + 1 + further) % grid.n
                for bit, place, bits in ((1, first, plus), (2, second, minus)):
                    there = (grid.position == place) & ((which & bit) > 0)
                    raw.masked_fill_(there, bits)
        if isinstance(spot, int):
            raw.view(-1)[spot - 1] = row[Column.SPOT_BITS]
        elif spot is not None:
            flat = np.arange(grid.count) * (grid.rows * grid.n)
            both = np.stack((flat + spot - 1, row[Column.SPOT_BITS]))
            at, made = uploaded(both, grid.device).unbind(0)
            raw.view(-1).index_put_((at,), made.to(raw.dtype))

    def _mask(self) -> Tensor:
        """Return where a masked row is hidden."""
        grid, kinds = self._grid, self._row[Column.AUX]
        position = grid.position
        keep = self._of_row(Column.EXPONENT_KEY) % grid.n
        makers: tuple[Callable[[], Tensor], ...] = (
            lambda: (
                (grid.words(self._row[Column.SIGN_KEY]) >> 31 > 0) & (position != keep)
            ),
            lambda: position > keep,
            lambda: position > grid.row % grid.n,
            lambda: position < keep,
        )
        first, *others = np.unique(kinds).tolist()
        hidden: Tensor = makers[first]()
        wanted = self._at(Column.AUX)
        for kind in others:
            is_so: Tensor = wanted == kind
            hidden = torch.where(is_so, makers[kind](), hidden)
        return hidden


_HIDING: Final = (Code.MASKED, Code.MASKED_ROWS, Code.INFINITIES)
_CODES: Final[dict[Code, Callable[[_Formula, Tensor], Tensor]]] = {
    Code.TIES: _Formula.ties,
    Code.BALANCED: _Formula.balanced,
    Code.WALK: _Formula.walk,
    Code.CANCEL: _Formula.cancel,
    Code.ONE_HOT: _Formula.one_hot,
    Code.EDGE: _Formula.edge,
    Code.MIXED: _Formula.mixed,
    Code.PERMUTATION: _Formula.permutation,
    Code.HADAMARD: _Formula.hadamard,
}
