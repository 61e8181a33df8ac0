"""Stores of two programs to one element that nothing orders.

The interpreter runs the programs of a launch one after the other. What would order
them on a GPU too are atomics: one on an address comes after those that earlier
programs did there, and after all that these programs had stored by then. Whatever
the semantics asked for, atomics are taken to order: rather miss a race than report
a lock.
"""

from collections.abc import Callable, Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kfuzz.execution.interpreter.reach import Region

Indices = NDArray[np.int64]
Flags = NDArray[np.bool_]
Bytes = NDArray[np.uint8]

_NARROW: Final = 32
"""Atomics on more addresses at once are taken for atomics on the whole region."""

_MOST_UNITS: Final = 1 << 26
"""Regions of more units are not followed: their stamps would take 256 MiB."""


class _Stamps:
    """Per unit of a region when it was last stored to, 0 where never."""

    def __init__(self, region: Region, unit: int) -> None:
        self.unit = unit
        self._units = -(-(region.high - region.low) // unit)
        self.times = np.zeros(self._units, np.int32)


class Races:
    """Follows the stores and atomics of one launch.

    Args:
        programs: how many programs the launch runs.
    """

    def __init__(self, programs: int) -> None:
        self._programs = programs
        self._now = 0
        self._starts: list[int] = []
        self._stamps: dict[Region, _Stamps] = {}
        # What each atomic's address has been told: per program, in the order of
        # execution, up to when its stores come before.
        self._clocks: dict[int | Region, NDArray[np.int32]] = {}
        self._known = np.zeros(programs, np.int32)

    @property
    def possible(self) -> bool:
        """Whether there are programs to race."""
        return self._programs > 1

    def next_program(self) -> None:
        """Let another program begin."""
        self._now += 1
        self._starts.append(self._now)
        if self._clocks:
            self._known = np.zeros(self._programs, np.int32)

    def store(
        self,
        region: Region,
        offsets: Indices,
        stored: Bytes,
        current: Callable[[Flags], Bytes],
    ) -> list[tuple[Flags, int]]:
        """Record a plain store, before it is carried out.

        Args:
            region: where.
            offsets: byte offsets in it.
            stored: the bytes, [stores, size].
            current: returns the bytes that the selected elements hold, alike.

        Returns:
            Per program that stored other bits there, without an order between
            the two: which stores, and its number in the order of execution.
        """
        stamps = self._stamps_of(region, offsets, stored.shape[1])
        if stamps is None:
            return []
        self._now += 1
        units = _units(offsets, stored.shape[1], stamps.unit)
        found = []
        if len(self._starts) > 1:
            times = stamps.times[units]
            older = (times > 0) & (times < self._starts[-1])
            suspects: Flags = np.any(older, axis=1)
            if suspects.any():
                found = self._unordered(
                    suspects, times, older, stored, current(suspects)
                )
        stamps.times[units] = self._now
        return found

    def atomic(self, region: Region, offsets: Indices, size: int) -> None:
        """Record an atomic: it orders programs, and takes over its elements."""
        if not self.possible:
            return
        stamps = self._stamps.get(region)
        if stamps is not None:
            stamps = self._stamps_of(region, offsets, size)
            assert stamps is not None
            stamps.times[_units(offsets, size, stamps.unit)] = 0
        addresses = np.unique(offsets) + region.low
        keys: list[int | Region]
        if addresses.size > _NARROW:
            self.acquire(
                a
                for a in self._clocks
                if a is region or (isinstance(a, int) and region.low <= a < region.high)
            )
            keys = [region]
        else:
            keys = [int(a) for a in addresses]
            self.acquire([region, *keys])
        self._now += 1
        number = len(self._starts) - 1
        told = self._known.copy()
        told[number] = self._now
        for key in keys:
            before = self._clocks.get(key)
            self._clocks[key] = told if before is None else np.maximum(before, told)

    def read(self, address: int) -> None:
        """Record a load of one element: what polls an atomic's result follows it."""
        if address in self._clocks:
            self.acquire([address])

    def acquire(self, keys: Iterable[int | Region]) -> None:
        """Come after what the given addresses and regions have been told."""
        for key in keys:
            clock = self._clocks.get(key)
            if clock is not None:
                np.maximum(self._known, clock, out=self._known)

    def _unordered(
        self,
        suspects: Flags,
        times: NDArray[np.int32],
        older: Flags,
        stored: Bytes,
        held: Bytes,
    ) -> list[tuple[Flags, int]]:
        times, older, stored = times[suspects], older[suspects], stored[suspects]
        shape = (*times.shape, -1)
        differs = (stored.reshape(shape) != held.reshape(shape)).any(2)
        starts = np.array(self._starts, np.int32)
        owners = np.searchsorted(starts, times, side="right") - 1
        racy = older & differs & (times > self._known[np.maximum(owners, 0)])
        places = np.flatnonzero(suspects)
        found = []
        for owner in np.unique(owners[racy]):
            flags = np.zeros(suspects.shape, np.bool_)
            flags[places[(racy & (owners == owner)).any(1)]] = True
            found.append((flags, int(owner)))
        return found

    def _stamps_of(self, region: Region, offsets: Indices, size: int) -> _Stamps | None:
        """Return the stamps of a region in units that divide these stores."""
        unit = size if not (offsets % size).any() else 1
        stamps = self._stamps.get(region)
        if stamps is None:
            if (region.high - region.low) // unit > _MOST_UNITS:
                return None
            stamps = self._stamps[region] = _Stamps(region, unit)
        elif unit < stamps.unit:
            stamps.times = np.repeat(stamps.times, stamps.unit // unit)
            stamps.unit = unit
        return stamps


def _units(offsets: Indices, size: int, unit: int) -> Indices:
    """Return the units that each store covers, [stores, units of one]."""
    first = offsets // unit
    if size == unit:
        return first[:, None]
    steps: Indices = np.arange(size // unit)
    return first[:, None] + steps
