"""Counter-based random numbers that are the same bits on every device.

Every number is a function of (seed, stream, counter) only, made of int64
additions, multiplications that stay below 2**63, shifts and xors, and of exact
float64 operations: no random state, no transcendental function, nothing that a
device or a torch version may round in its own way.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kfuzz.core.streams import splitmix64
from kfuzz.numerics.formats import Format

# A number of one grid (int or float), or an array of those of several (`grids`).
Number: TypeAlias = Any

_MASK32: Final = (1 << 32) - 1
_MASK64: Final = (1 << 64) - 1
# The 32-bit mixer of C. Wellons' hash-prospector with the least measured bias
# among two-round ones whose multipliers are below 2**31, so that a 32-bit word
# times a multiplier fits a signed 64-bit integer.
_MULTIPLIERS: Final = (0x21F0AAAD, 0x735A2D97)
# Mean of the sum of four 16-bit fields, the centre of the normal approximation.
_BELL_CENTRE: Final = 2 * 0xFFFF


def words(seed: int, stream: int, counter: Tensor) -> Tensor:
    """Return one 32-bit word per counter.

    Args:
        seed: 64-bit seed.
        stream: which of the independent sequences of this seed.
        counter: int64, any shape, non-negative; taken modulo 2**32.

    Returns:
        int64 in [0, 2**32), of the counter's shape and device.
    """
    low, high = _halves(seed, stream)
    return mixed(counter, low, high)


def _halves(seed: int, stream: int) -> tuple[int, int]:
    """Return the halves of the key of a stream."""
    key = splitmix64(splitmix64(seed & _MASK64) ^ stream)
    return key & _MASK32, key >> 32


def mixed(counter: Tensor, low: int | Tensor, high: int | Tensor) -> Tensor:
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


def mixed_on_host(counter: Tensor, low: Any, high: Any) -> NDArray[np.uint32]:
    """Return what `mixed` does: numpy has words of 32 bits that wrap around.

    Args:
        counter: int64 on the CPU.
        low: lower half of a key, uint32; it broadcasts.
        high: the other half.
    """
    x: NDArray[np.uint32] = counter.numpy().astype(np.uint32) + low
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
    if device.type == "cpu":
        return made
    return made.pin_memory().to(device, non_blocking=True)


@dataclass(frozen=True)
class Grid:
    """The logical elements of a tensor as rows along its structured axis.

    What is written for a grid holds for `kfuzz.execution.values.grids.Grids` too, many
    tensors at once, if it lays out what is one number per tensor (`pick`) before that
    meets tensors, and counts axes from the end.

    Attributes:
        rows: product of the sizes outside the axis, at least 1.
        n: size of the axis, at least 1.
        fmt: format of the values.
        seed: 64-bit seed.
        device: where the numbers are made.
    """

    rows: int
    n: int
    fmt: Format
    seed: int
    device: torch.device

    @cached_property
    def position(self) -> Tensor:
        """Index along the axis, int64 of shape (1, n)."""
        return torch.arange(self.n, device=self.device).view(1, self.n)

    @cached_property
    def row(self) -> Tensor:
        """Index of the row, int64 of shape (rows, 1)."""
        return torch.arange(self.rows, device=self.device).view(self.rows, 1)

    @cached_property
    def _counter(self) -> Tensor:
        count = torch.arange(self.rows * self.n, device=self.device)
        return count.view(self.rows, self.n)

    @property
    def _counters(self) -> Tensor:
        """Two counters per element, (2, rows, n)."""
        count = 2 * self.rows * self.n
        return torch.arange(count, device=self.device).view(2, self.rows, self.n)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the elements: (rows, n)."""
        return (self.rows, self.n)

    def pick(self, stream: int, count: int) -> Number:
        """Return one integer of 0..count-1 for the whole tensor."""
        return splitmix64(splitmix64(~self.seed & _MASK64) ^ stream) % count

    def laid(self, number: Number) -> Tensor:
        """Return a number per tensor such that it broadcasts with tensors.

        Of one tensor it stays the plain number that it is.
        """
        made: Tensor = number
        return made

    def select(self, pick: Number, builders: Sequence[Callable[[], Tensor]]) -> Tensor:
        """Return what the builder of number `pick` makes."""
        return builders[pick]()

    def put(self, raw: Tensor, row: Number, place: Number, bits: Number) -> None:
        """Overwrite one element of the contiguous integers `raw`."""
        raw[row, place] = bits

    def _mixed(self, stream: int, counter: Tensor) -> Tensor:
        """Return a word per counter, int64."""
        if self.device.type == "cpu":
            return torch.from_numpy(self._on_host(stream, counter).astype(np.int64))
        return words(self.seed, stream, counter)

    def _on_host(self, stream: int, counter: Tensor) -> NDArray[np.uint32]:
        """Return a word per counter; those lie on the CPU."""
        low, high = _halves(self.seed, stream)
        return mixed_on_host(counter, np.uint32(low), np.uint32(high))

    def words(self, stream: int) -> Tensor:
        """Return a 32-bit word per element, (rows, n)."""
        return self._mixed(stream, self._counter)

    def words_at(self, stream: int, position: Tensor) -> Tensor:
        """Return words that repeat wherever `position` (1, n) repeats."""
        return self._mixed(stream, self.row * self.n + position)

    def row_words(self, stream: int) -> Tensor:
        """Return a 32-bit word per row, (rows, 1)."""
        return self._mixed(stream, self.row)

    def wide(self, first: Tensor, stream: int) -> Tensor:
        """Return 52-bit integers whose upper 32 bits are `first` (rows, n)."""
        return (first << 20) | (self.words(stream) >> 12)

    def fraction(self, stream: int) -> Tensor:
        """Return float64 uniform in [0, 1), (rows, n), finer than the format."""
        word = self.words(stream)
        if self.fmt.precision > 24:
            return self.wide(word, stream + 1).to(torch.float64) * 2.0**-52
        return word.to(torch.float64) * 2.0**-32

    def signs(self, stream: int) -> Tensor:
        """Return float64 +1 or -1 per element, (rows, n)."""
        return signs(self.words(stream) >> 31)

    def normal(self, stream: int) -> Tensor:
        """Return nearly normal float64, (rows, n): mean 0, deviation 1.155.

        The sum of four 16-bit fields of two words, with lower bits appended so
        that the values fill the significand of the format: numbers with few
        bits would make sums exact and hide rounding errors. All lie in (-4, 4).
        """
        # Both words from one call: on small tensors calls are what costs.
        if self.device.type == "cpu":
            both = self._on_host(stream, self._counters)
            values = torch.from_numpy(bell_on_host(both))
        else:
            values = bell(self._mixed(stream, self._counters))
        if self.fmt.precision > 24:
            # 32 bits more, rounded once by the addition.
            low = self.words(stream + 1).to(torch.float64) * 2.0**-63
            values = values + low
        return values


@dataclass(frozen=True)
class Stretch(Grid):
    """Consecutive elements of a larger grid in C order, as one row.

    Its words are those that the same elements have in the whole; what follows from
    the place along the axis (`position`, `row`, `n`) is not.

    Attributes:
        first: number of the first element.
        total: elements of the whole grid.
    """

    first: int = 0
    total: int = 0

    @cached_property
    def _counter(self) -> Tensor:
        stop = self.first + self.n
        return torch.arange(self.first, stop, device=self.device).view(1, self.n)

    @property
    def _counters(self) -> Tensor:
        return torch.stack((self._counter, self._counter + self.total))


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


def entry(table: Sequence[int] | Sequence[float], pick: Number) -> Number:
    """Return the entry of a table that each tensor has picked."""
    return table[pick] if isinstance(pick, int) else np.asarray(table)[pick]


def two_to(exponent: Number) -> Number:
    """Return 2.0**exponent of a number per tensor, exactly."""
    if isinstance(exponent, int):
        return math.ldexp(1.0, exponent)
    return np.ldexp(1.0, exponent)


def coprime(least: Number, n: int) -> Number:
    """Return the least number from `least` on that has no factor in common with n."""
    if isinstance(least, int):
        while math.gcd(least, n) != 1:
            least += 1
        return least
    found = least.copy()
    while (common := np.gcd(found, n) != 1).any():
        found[common] += 1
    return found


def signs(bit: Tensor) -> Tensor:
    """Return float64 +1 where the int64 bit is 0, -1 where it is 1."""
    return 1.0 - 2.0 * bit.to(torch.float64)


def greatest_exponent(fmt: Format) -> int:
    """Return floor(log2) of the greatest finite value."""
    return math.frexp(fmt.max_finite)[1] - 1


def narrow(x: Tensor, fmt: Format) -> Tensor:
    """Round float64 to nearest even and convert, for values within the range.

    Adding and subtracting 1.5 * 2**k, k chosen per element so that the sum's
    last place is the format's, rounds once and needs a third of the operations
    of `kfuzz.numerics.formats.round_to`, with which it agrees (but a negative
    number that rounds to zero becomes +0).

    Args:
        x: finite float64 whose rounding is within the format's range.
        fmt: a format with a torch dtype of its name.

    Returns:
        The rounded values in the format's dtype.
    """
    return narrowed(x, fmt).to(fmt.dtype)


def narrowed(x: Tensor, fmt: Format) -> Tensor:
    """Return as float64 what one conversion to a format's dtype leaves as it is.

    Args:
        x: as for `narrow`.
        fmt: as for `narrow`.

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
