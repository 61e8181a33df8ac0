"""Checks every address that a kernel touches in Triton's interpreter.

Each load, store and atomic of each lane whose mask is set is held against what its
launch may reach. A stray lane is recorded and not carried out: the interpreter
itself would read or overwrite whatever lies there.
"""

import math
import os
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path
from types import FrameType
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kfuzz.core.recipe import TensorSpec
from kfuzz.core.verdict import Access
from kfuzz.execution.calls.patches import Patches
from kfuzz.execution.interpreter.programs import elementwise
from kfuzz.execution.memory.allocations import GuardedAllocations
from kfuzz.execution.memory.changes import WriteMap, element_offsets, single_shape
from kfuzz.execution.memory.poison import Poison, poison_word

# What memory a launch in Triton's interpreter may touch.

Indices = NDArray[np.int64]
Flags = NDArray[np.bool_]

_FAR_BYTES: Final = 1 << 20
"""Beyond this a stray address of unknown origin is called nobody's neighbour."""


@dataclass(frozen=True, eq=False)
class Region:
    """One stretch of memory that a launch may touch.

    Attributes:
        low: address of its first byte.
        high: address past its last byte.
        itemsize: bytes per element.
        argument: the operator's parameter that it belongs to, "" if none.
        memory: what it is, in words.
        spec: layout of the elements to which stores are confined; None where
            every byte may be stored to.
        writes: which elements have been written; None where all count as such.
    """

    low: int
    high: int
    itemsize: int
    argument: str
    memory: str
    spec: TensorSpec | None = None
    writes: WriteMap | None = None

    def holds_elements(self, offsets: Indices, size: int) -> Flags:
        """Return which stores of `size` bytes touch nothing but elements.

        Args:
            offsets: byte offsets from `low`, all inside the region.
            size: bytes stored at each.
        """
        if self.spec is None:
            return np.ones(offsets.shape, np.bool_)
        lies = self.elements
        first = offsets // self.itemsize
        last = (offsets + size - 1) // self.itemsize
        good = np.ones(offsets.shape, np.bool_)
        for step in range(int((last - first).max(initial=0)) + 1):
            touched = np.minimum(first + step, last)
            good &= lies[np.searchsorted(lies, touched)] == touched
        return good

    @cached_property
    def elements(self) -> Indices:
        """The sorted offsets of its elements, in elements."""
        assert self.spec is not None
        return np.sort(element_offsets(self.spec))


class Regions:
    """The regions of one launch, and which of them an address lies in."""

    def __init__(self, regions: Iterable[Region]) -> None:
        self.all = sorted(regions, key=lambda r: (r.low, r.high))
        self._lows = [r.low for r in self.all]
        self._starts = np.array(self._lows, dtype=np.uint64)
        self._ends = np.array([r.high for r in self.all], dtype=np.uint64)

    def covering(self, low: int, high: int) -> Region | None:
        """Return the region that holds all bytes from `low` to before `high`."""
        at = bisect_right(self._lows, low) - 1
        if at >= 0 and high <= self.all[at].high:
            return self.all[at]
        return None

    def numbers(self, addresses: NDArray[np.uint64], size: int) -> Indices:
        """Return per address the number of its region, -1 where it has none."""
        if not self.all:
            return np.full(addresses.shape, -1, np.int64)
        at = np.searchsorted(self._starts, addresses, side="right").astype(np.int64) - 1
        known = np.maximum(at, 0)
        # Counted from the end, so that no address near 2^64 overflows.
        room = self._ends[known].astype(np.uint64) - np.uint64(size)
        inside = (at >= 0) & (addresses <= room) & (addresses >= self._starts[known])
        return np.where(inside, at, -1)

    def nearest(
        self, addresses: NDArray[np.uint64]
    ) -> list[tuple[Region | None, Flags]]:
        """Group stray addresses by the region next to them, None if all are far."""
        if not self.all:
            return [(None, np.ones(addresses.shape, np.bool_))]
        right = np.searchsorted(self._starts, addresses, side="right")
        left = np.maximum(right.astype(np.int64) - 1, 0)
        right = np.minimum(right, len(self.all) - 1)
        # Unsigned differences: a negative one is huge, hence not the least.
        up = self._starts[right] - addresses
        down = np.maximum(addresses, self._ends[left]) - self._ends[left]
        down[addresses < self._starts[left]] = _FAR_BYTES + 1
        numbers = np.where(up < down, right, left).astype(np.int64)
        numbers[np.minimum(up, down) > _FAR_BYTES] = -1
        return [
            (None if n < 0 else self.all[n], numbers == n) for n in np.unique(numbers)
        ]


class Reach:
    """What the launches of one call may touch: arguments, allocations, the rest.

    Args:
        specs: recipes of the arguments.
        tensors: the arguments as placed.
        allocations: what the kernel allocates while it runs.
        owned: address ranges in which everything is kfuzz's: an address there is
            known to be no other tensor's.
        poison: what lies around the arguments.
        writes: which elements of those arguments have been written that hold no data
            before the call.
    """

    def __init__(
        self,
        specs: Mapping[str, TensorSpec],
        tensors: Mapping[str, Tensor],
        allocations: GuardedAllocations | None,
        *,
        owned: Sequence[tuple[int, int]] = (),
        poison: Poison = Poison.NAN,
        writes: Mapping[str, WriteMap] | None = None,
    ) -> None:
        self.poison = poison
        self._allocations = allocations
        self._owned = list(owned)
        self._placed: list[Region] = []
        self._storages: list[tuple[int, int]] = []
        for name, tensor in tensors.items():
            if tensor.numel():
                spec, low = specs[name], tensor.data_ptr()
                strict = None if dense(spec) else spec
                high = low + spec.span * tensor.itemsize
                written = None if writes is None else writes.get(name)
                self._placed.append(
                    Region(low, high, tensor.itemsize, name, name, strict, written)
                )
            storage = tensor.untyped_storage()
            self._storages.append((storage.data_ptr(), storage.nbytes()))

    def owned(self, addresses: NDArray[np.uint64]) -> Flags:
        """Return which addresses lie where nobody else's tensors are."""
        ranges = list(self._owned)
        if self._allocations is not None:
            ranges += self._allocations.blocks()
        found = np.zeros(addresses.shape, np.bool_)
        for low, high in ranges:
            found |= (addresses >= np.uint64(low)) & (addresses < np.uint64(high))
        return found

    def regions(self, launched: Iterable[Tensor]) -> Regions:
        """Return what one launch may touch."""
        found = list(self._placed)
        allocated = [] if self._allocations is None else self._allocations.regions()
        for made in allocated:
            memory = f"its own {made.described}"
            high, size = made.address + made.nbytes, made.dtype.itemsize
            found.append(
                Region(made.address, high, size, "", memory, None, made.writes)
            )
        found += self._others(launched, found)
        return Regions(found)

    def _others(self, launched: Iterable[Tensor], known: list[Region]) -> list[Region]:
        """Return the storages that kfuzz did not place, overlapping ones as one."""
        spans = [*self._storages, *((r.low, r.high - r.low) for r in known)]
        others: dict[tuple[int, int], Tensor] = {}
        for tensor in launched:
            storage = tensor.untyped_storage()
            low, nbytes = storage.data_ptr(), storage.nbytes()
            if not nbytes or any(low < a + n and a < low + nbytes for a, n in spans):
                continue
            others.setdefault((low, low + nbytes), tensor)
        merged: list[Region] = []
        for (low, high), tensor in sorted(others.items(), key=lambda item: item[0]):
            if merged and low < merged[-1].high:
                last = merged.pop()
                low, high = last.low, max(high, last.high)
            name = str(tensor.dtype).removeprefix("torch.")
            memory = f"its own {name}{list(tensor.shape)}"
            merged.append(Region(low, high, tensor.itemsize, "", memory))
        return merged


def dense(spec: TensorSpec) -> bool:
    """Whether no slack lies between the elements."""
    return spec.span == math.prod(single_shape(spec))


def tensors_in(value: Any) -> list[Tensor]:
    """Return the tensors that a kernel's argument hands over, nested ones too."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, tuple | list):
        return [t for item in value for t in tensors_in(item)]
    base = getattr(value, "base", None)  # a descriptor, or a reinterpreted tensor
    return [] if base is None or base is value else tensors_in(base)


# Accesses at fault, gathered per place in the source.

Program = tuple[int, int, int]

_OWN: Final = str(Path(__file__).parents[1]) + os.sep


def _line() -> str:
    """Return the line of the kernel that runs: the innermost of the user's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((_OWN, _triton())):
            return f"{_shown(file)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


@cache
def _triton() -> str:
    place = getattr(sys.modules.get("triton"), "__file__", None)
    return str(Path(place).parent) + os.sep if place else _OWN


def _shown(file: str) -> str:
    """Return a source file below the working directory, else its name alone."""
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except (OSError, ValueError):  # it is elsewhere, or the directory is gone
        return Path(file).name


def _distances(
    region: Region, where: str, offsets: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return how many elements away the nearest legal one lies."""
    size, span = region.itemsize, region.high - region.low
    if where == "before":
        return -(offsets // size)
    if where == "after":
        return (np.maximum(offsets, span) - span) // size + 1
    if where == "slack":
        lies, touched = region.elements, offsets // size
        right = np.minimum(np.searchsorted(lies, touched), lies.size - 1)
        left = np.maximum(right - 1, 0)
        gaps: NDArray[np.int64] = np.minimum(
            abs(lies[right] - touched), abs(touched - lies[left])
        )
        return gaps
    return np.zeros(offsets.shape, np.int64)


# Stores of two programs to one element that nothing orders.
#
# The interpreter runs the programs of a launch one after the other. What would order
# them on a GPU too are atomics: one on an address comes after those that earlier
# programs did there, and after all that these programs had stored by then. Whatever
# the semantics asked for, atomics are taken to order: rather miss a race than report
# a lock.

Bytes = NDArray[np.uint8]

_NARROW: Final = 32
"""Atomics on more addresses at once are taken for atomics on the whole region."""

_MOST_UNITS: Final = 1 << 26
"""Regions of more units are not followed: their stamps would take 256 MiB."""


class _Stamps:
    """Per unit of a region when it was last stored to, 0 where never."""

    def __init__(self, region: Region, unit: int) -> None:
        self.unit = unit
        self.times = np.zeros(-(-(region.high - region.low) // unit), np.int32)


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
        # What each atomic's address orders: per program, in the order of
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
        clock = self._known.copy()
        clock[number] = self._now
        for key in keys:
            before = self._clocks.get(key)
            self._clocks[key] = clock if before is None else np.maximum(before, clock)

    def read(self, address: int) -> None:
        """Record a load of one element: what polls an atomic's result follows it."""
        self.acquire([address])

    def acquire(self, keys: Iterable[int | Region]) -> None:
        """Come after what the given addresses and regions order."""
        for key in keys:
            if key in self._clocks:
                np.maximum(self._known, self._clocks[key], out=self._known)

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
    steps: Indices = np.arange(size // unit)
    return (offsets // unit)[:, None] + steps


LOAD: Final = "load"
STORE: Final = "store"
ATOMIC: Final = "atomic"

_MOST_POLLS: Final = 10_000
"""So many loads or atomics of one element that all give the same, with no other
access between them, are a wait. Counted, not timed: a busy machine changes nothing."""

Array = NDArray[Any]


class WaitsForLaterProgram(RuntimeError):
    """A program polls what may be another's to change that has yet to run."""


class AddressCheck:
    """What one call of a kernel does to memory, over all its launches.

    Args:
        reach: what the launches may touch.

    Attributes:
        atomic: whether what is carried out now is part of an atomic operation.
        origin: address that the pointers in use were computed from, if known.
        casts: whether an integer became a pointer in this launch.
    """

    def __init__(self, reach: Reach) -> None:
        self.atomic = False
        self.origin: int | None = None
        self.casts = False
        self._reach = reach
        # One per line, kind of access, memory and place there.
        self._entries: dict[tuple[str, str, str, str], Access] = {}
        self._regions = Regions(())
        self._races = Races(1)
        self._order: list[Program] = []
        self._programs = 1
        self._polled: tuple[int, bytes] | None = None
        self._polls = 0

    def accesses(self) -> tuple[Access, ...]:
        """Return what was recorded, in the order of first occurrence."""
        return tuple(self._entries.values())

    @property
    def regions(self) -> Regions:
        """What the launch may touch."""
        return self._regions

    def launch(self, arguments: Iterable[Any], programs: int) -> None:
        """Begin a launch."""
        launched = [t for a in arguments for t in tensors_in(a)]
        self._regions = self._reach.regions(launched)
        self._races, self._order = Races(programs), []
        self._programs = programs
        self.casts, self.origin, self.atomic = False, None, False

    def program(self, index: Program) -> None:
        """Begin a program of the launch."""
        self._order.append(index)
        self._races.next_program()
        self._polled = None

    def polled(self, ptrs: Array, result: Array) -> None:
        """Note what a load or an atomic gave: it may be a wait for another program.

        Programs run one after the other. What waits for a later one waits for ever,
        on a GPU it may not; what is the last to run waits in vain on both.

        Raises:
            WaitsForLaterProgram: if this one waits and others have yet to run.
        """
        if ptrs.size != 1:
            self._polled = None
            return
        poll = int(ptrs.item()), np.asarray(result).tobytes()
        if poll != self._polled:
            self._polled, self._polls = poll, 0
        self._polls += 1
        if self._polls >= _MOST_POLLS and len(self._order) < self._programs:
            raise WaitsForLaterProgram(
                f"program {self._order[-1]} waits for a program that has yet to run"
            )

    def load(self, native: Any, ptrs: Array, mask: Any, other: Any, dtype: Any) -> Any:
        """Carry out a load; stray lanes get poison."""
        size = np.dtype(dtype).itemsize
        region = self._covering(ptrs, size)
        if region is not None and not self.atomic:
            writes = region.writes
            if writes is None or writes.complete:
                if ptrs.size == 1:
                    self._races.read(int(ptrs.item()))
                return native.load(ptrs, mask, other, dtype)
        live = _shaped(mask, ptrs.shape)
        access = ATOMIC if self.atomic else LOAD
        pieces, bad = self._pieces(ptrs, live, size, access, region)
        if bad is None:
            result = native.load(ptrs, mask, other, dtype)
        else:
            result = np.array(native.load(ptrs, live & ~bad, other, dtype))
            result[bad] = self._poison(np.dtype(dtype))
        for piece, lanes, offsets in pieces:
            if self.atomic:
                self._races.atomic(piece, offsets, size)
            elif piece.writes is not None and not piece.writes.complete:
                found = _bytes(result[lanes], size)
                missing = piece.writes.missing(offsets, size, found)
                if missing.any():
                    self._record(access, piece, "unwritten", offsets[missing])
        return result

    def store(self, native: Any, ptrs: Array, values: Array, mask: Any) -> Any:
        """Carry out a store; stray lanes are dropped."""
        self._polled = None
        size = values.dtype.itemsize
        live = _shaped(mask, ptrs.shape)
        region = self._covering(ptrs, size)
        access = ATOMIC if self.atomic else STORE
        pieces, bad = self._pieces(ptrs, live, size, access, region)
        for piece, lanes, offsets in pieces:
            if piece.writes is not None:
                piece.writes.mark(offsets, size)
            if self.atomic:
                self._races.atomic(piece, offsets, size)
            elif self._races.possible:
                self._plain_store(native, ptrs, values, piece, lanes, offsets)
        return native.store(ptrs, values, mask if bad is None else live & ~bad)

    def atomic_rmw(
        self, native: Any, op: Any, ptrs: Array, value: Array, mask: Any, sem: Any
    ) -> Any:
        """Carry out an atomic; stray lanes are dropped and get poison."""
        live = _shaped(mask, ptrs.shape)
        bad = self._atomic(ptrs, live, value.dtype.itemsize)
        if bad is None:
            return native.atomic_rmw(op, ptrs, value, mask, sem)
        result = np.array(native.atomic_rmw(op, ptrs, value, live & ~bad, sem))
        result[bad] = self._poison(value.dtype)
        return result

    def atomic_cas(
        self, native: Any, ptrs: Array, cmp: Array, value: Array, sem: Any
    ) -> Any:
        """Carry out a compare-and-swap; stray lanes seem to have succeeded."""
        live = np.ones(ptrs.shape, np.bool_)
        bad = self._atomic(ptrs, live, value.dtype.itemsize)
        if bad is None:
            return native.atomic_cas(ptrs, cmp, value, sem)
        result = np.array(np.broadcast_to(cmp, ptrs.shape))
        if (good := ~bad).any():
            wanted, new = (_shaped(x, ptrs.shape)[good] for x in (cmp, value))
            result[good] = native.atomic_cas(ptrs[good], wanted, new, sem)
        return result

    def _atomic(self, ptrs: Array, live: Flags, size: int) -> Flags | None:
        region = self._covering(ptrs, size)
        pieces, bad = self._pieces(ptrs, live, size, ATOMIC, region)
        for piece, _, offsets in pieces:
            if piece.writes is not None:
                piece.writes.mark(offsets, size)
            self._races.atomic(piece, offsets, size)
        return bad

    def _covering(self, ptrs: Array, size: int) -> Region | None:
        """Return the region that holds every lane, masked ones included."""
        if not ptrs.size:
            return None
        return self._regions.covering(int(ptrs.min()), int(ptrs.max()) + size)

    def _pieces(
        self, ptrs: Array, live: Flags, size: int, access: str, region: Region | None
    ) -> tuple[list[tuple[Region, Flags, NDArray[np.int64]]], Flags | None]:
        """Sort the live lanes by region and record the stray ones.

        Returns:
            Per region that is legally touched the lanes and their byte offsets;
            and the stray lanes, None if there are none.
        """
        bad: Flags | None = None
        region = region or self._covering(ptrs[live], size)
        groups = [(region, live)] if region is not None else []
        if region is None and live.any():
            numbers = np.full(ptrs.shape, -2, np.int64)
            numbers[live] = self._regions.numbers(ptrs[live], size)
            groups = [
                (self._regions.all[n], numbers == n)
                for n in np.unique(numbers)
                if n >= 0
            ]
            bad = self._strays(ptrs, numbers == -1, access)
        pieces = []
        for found, lanes in groups:
            offsets = (ptrs[lanes] - np.uint64(found.low)).view(np.int64)
            if access != LOAD and found.spec is not None:
                good = found.holds_elements(offsets, size)
                if not good.all():
                    self._record(access, found, "slack", offsets[~good])
                    wrong = np.zeros(ptrs.shape, np.bool_)
                    wrong[lanes] = ~good
                    bad = wrong if bad is None else bad | wrong
                    lanes, offsets = lanes & ~wrong, offsets[good]
            if offsets.size:
                pieces.append((found, lanes, offsets))
        return pieces, bad

    def _strays(self, ptrs: Array, outside: Flags, access: str) -> Flags | None:
        """Record lanes that touch no region; return those that count as stray."""
        if self.casts:  # a live tensor that only its owner knows may lie there
            outside = outside & self._reach.owned(ptrs)
        if not outside.any():
            return None
        addresses = ptrs[outside]
        home = None
        if self.origin is not None:
            home = self._regions.covering(self.origin, self.origin + 1)
        owners: list[tuple[Region | None, Flags]]
        owners = [(home, np.ones(addresses.shape, np.bool_))]
        if home is None:
            owners = self._regions.nearest(addresses)
        for region, mine in owners:
            offsets = addresses[mine].view(np.int64)
            if region is None:
                self._record(access, None, "elsewhere", offsets)
                continue
            offsets = offsets - np.int64(region.low)
            for where, side in (("before", offsets < 0), ("after", offsets >= 0)):
                if side.any():
                    self._record(access, region, where, offsets[side])
        return outside

    def _plain_store(
        self,
        native: Any,
        ptrs: Array,
        values: Array,
        region: Region,
        lanes: Flags,
        offsets: NDArray[np.int64],
    ) -> None:
        size = values.dtype.itemsize
        stored = _bytes(_shaped(values, ptrs.shape)[lanes], size)

        def current(selected: Flags) -> NDArray[np.uint8]:
            word = np.dtype(f"u{size}")
            at = ptrs[lanes][selected]
            none = np.zeros(at.shape, word)
            held = native.load(at, np.ones(at.shape, np.bool_), none, word)
            return _bytes(held, size)

        for flags, number in self._races.store(region, offsets, stored, current):
            other = self._order[number]
            self._record(STORE, region, "race", offsets[flags], other)

    def _record(
        self,
        access: str,
        region: Region | None,
        where: str,
        offsets: NDArray[np.int64],
        other: Program | None = None,
    ) -> None:
        """Record what one operation of the running kernel does to one region.

        Args:
            access: "load", "store" or "atomic".
            region: memory concerned; None where there is none.
            where: as `Access.where` says.
            offsets: byte offsets from the region's first byte, one per lane.
            other: the other party of a race.
        """
        count = int(np.unique(offsets).size)
        argument, memory, offset, distance = "", "memory it was not given", 0, 0
        if region is not None:
            argument, memory = region.argument, region.memory
            distances = _distances(region, where, offsets)
            nearest = int(distances.argmin())
            distance = int(distances[nearest])
            offset = int(offsets[nearest]) // region.itemsize
        line = _line()
        program = self._order[-1] if self._order else None
        known = self._entries.setdefault(
            (line, access, memory, where),
            Access(
                access, argument, memory, where, distance, offset, 0, program, other,
                line,
            ),
        )  # fmt: skip
        if distance < known.distance:
            known = replace(known, distance=distance, offset=offset)
        self._entries[line, access, memory, where] = replace(
            known, count=known.count + count
        )

    def _poison(self, dtype: np.dtype[Any]) -> Any:
        """Return the poison of a NumPy dtype as one of its elements."""
        held = getattr(torch, dtype.name, torch.uint8)
        word, value = poison_word(held, self._reach.poison)
        signed = word is not torch.uint8
        one = value.to_bytes(word.itemsize, sys.byteorder, signed=signed)
        data = (one * dtype.itemsize)[: dtype.itemsize]
        return np.frombuffer(data, dtype)[0]


def _shaped(values: Any, shape: tuple[int, ...]) -> Any:
    """Return an operand in the shape of the pointers: scalars come in several."""
    values = np.asarray(values)
    if values.shape == shape:
        return values
    if values.size == int(np.prod(shape)):
        return values.reshape(shape)
    return np.broadcast_to(values, shape)


def _bytes(values: Array, size: int) -> NDArray[np.uint8]:
    """Return the bytes of each element, [elements, size]."""
    flat = np.ascontiguousarray(values).reshape(-1)
    return flat.view(np.uint8).reshape(-1, size)


# Where Triton's interpreter hands its memory operations to the address check.

Current = Callable[[], AddressCheck | None]

_ORIGIN: Final = "kfuzz.origin"  # the argument that a pointer was computed from

# Operations whose result points into the memory that their operand points into.
_CARRIERS: Final = (
    "create_addptr", "create_splat", "create_unsplat", "create_expand_dims",
    "create_broadcast", "create_reshape", "create_trans",
)  # fmt: skip
_CASTS: Final = ("create_bitcast", "create_int_to_ptr")
_ATOMICS: Final = (
    "create_atomic_rmw", "create_atomic_cas", "create_atomic_load",
    "create_atomic_store", "create_atomic_poll",
)  # fmt: skip
_PLAIN: Final = ("create_masked_load", "create_masked_store")
_BLOCKS: Final = ("BlockPointerHandle", "TensorDescHandle")
# What is checked of the native part, and which of its arguments are the pointers.
_POINTERS: Final = {"load": 0, "store": 0, "atomic_rmw": 1, "atomic_cas": 0}


def install(module: Any, current: Current, patches: Patches) -> None:
    """Have every memory operation checked until the patches are undone.

    Args:
        module: `triton.runtime.interpreter`.
        current: returns the check of the call that runs, if any.
        patches: takes what is replaced.
    """
    builder, handle = module.InterpreterBuilder, module.TensorHandle
    patches.set(module, "_interpreter", _CheckedMemory(module._interpreter, current))

    def wrap(owner: Any, names: tuple[str, ...], wrapper: Any) -> None:
        for name in names:
            original = getattr(owner, name, None)
            if original is not None:
                patches.set(owner, name, wrapper(original))

    wrap(builder, ("binary_op",), lambda original: _bits(original, module.tl.int1))
    wrap(builder, _CARRIERS, lambda original: _carrier(original, handle))
    wrap(builder, _CASTS, lambda original: _cast(original, handle, current))
    for names, atomic in ((_ATOMICS, True), (_PLAIN, False)):
        wrap(builder, names, partial(_operation, handle, current, atomic))
    for name in _BLOCKS:
        wrap(getattr(module, name, None), ("materialize_pointers",), _materialized)
    patches.set(module, "_implicit_cvt", _converted(module._implicit_cvt, handle))


class _CheckedMemory:
    """The native part of the interpreter, behind the check."""

    def __init__(self, native: Any, current: Current) -> None:
        self._native = native
        self._current = current

    def __getattr__(self, name: str) -> Any:
        native = getattr(self._native, name)
        place = _POINTERS.get(name)
        if place is None:
            return elementwise(native) if name.startswith("fma") else native

        def checked(*arguments: Any) -> Any:
            check = self._current()
            if check is None:
                return native(*arguments)
            result = getattr(check, name)(self._native, *arguments)
            if name != "store":
                check.polled(arguments[place], result)
            return result

        return checked


def _bits(original: Any, int1: Any) -> Any:
    """Give a comparison the type of bits, which the interpreter calls its operands'.

    Of a number it would become a block of numbers, which is no mask.
    """

    def binary_op(builder: Any, lhs: Any, rhs: Any, op: Any) -> Any:
        made = original(builder, lhs, rhs, op)
        if made.data.dtype == np.bool_:
            made.dtype = int1
        return made

    return binary_op


def _origin(operands: tuple[Any, ...], handle: Any) -> Any:
    for operand in operands:  # mostly no pointers: their attributes are empty
        if isinstance(operand, handle) and operand.attr:
            found = operand.attr.get(_ORIGIN)
            if found is not None:
                return found
    return None


def _carrier(original: Any, handle: Any) -> Any:
    """Hand the origin of a pointer on to what is computed from it."""

    def operation(builder: Any, *operands: Any, **named: Any) -> Any:
        made = original(builder, *operands, **named)
        if (found := _origin(operands, handle)) is not None:
            made.attr[_ORIGIN] = found
        return made

    return operation


def _cast(original: Any, handle: Any, current: Current) -> Any:
    carried = _carrier(original, handle)

    def cast(builder: Any, source: Any, to: Any, *others: Any) -> Any:
        if not to.scalar.is_ptr():
            return original(builder, source, to, *others)
        check = current()
        if check is not None and not source.dtype.scalar.is_ptr():
            check.casts = True
        return carried(builder, source, to, *others)

    return cast


def _operation(handle: Any, current: Current, atomic: bool, original: Any) -> Any:
    """Tell the check what kind of operation runs, and on whose memory."""

    def operation(builder: Any, *operands: Any, **named: Any) -> Any:
        check = current()
        if check is None:
            return original(builder, *operands, **named)
        outer = check.atomic, check.origin
        check.atomic, check.origin = outer[0] or atomic, _origin(operands, handle)
        try:
            return original(builder, *operands, **named)
        finally:
            check.atomic, check.origin = outer

    return operation


def _materialized(original: Any) -> Any:
    """Hand the origin of a block pointer or descriptor on to its pointers."""

    def materialize_pointers(block: Any, *operands: Any) -> Any:
        pointers, mask = original(block, *operands)
        found = block.base.attr.get(_ORIGIN)
        if found is not None:
            pointers.attr[_ORIGIN] = found
        return pointers, mask

    return materialize_pointers


def _converted(original: Any, handle: Any) -> Any:
    """Note of each tensor that a kernel is given that its pointer comes from it."""

    def converted(argument: Any) -> Any:
        made = original(argument)
        if hasattr(argument, "data_ptr"):
            held = getattr(made, "handle", None)
            if isinstance(held, handle):
                held.attr[_ORIGIN] = int(held.data[0])
        return made

    return converted
