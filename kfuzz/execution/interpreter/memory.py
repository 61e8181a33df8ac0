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
from copy import copy
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache, partial
from opcode import opmap
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kfuzz.core.finding import relative
from kfuzz.core.recipe import TensorSpec
from kfuzz.core.verdict import Access
from kfuzz.execution.calls.patches import Patches
from kfuzz.execution.interpreter.programs import Programs, elementwise, shaped
from kfuzz.execution.interpreter.races import ATOMIC, LOAD, STORE, Race, RaceLog
from kfuzz.execution.memory.allocations import GuardedAllocations
from kfuzz.execution.memory.poison import Poison, poison_word
from kfuzz.execution.memory.slots import WriteMap, element_offsets, single_shape

# What memory a launch in Triton's interpreter may touch.

Indices = NDArray[np.int64]
Flags = NDArray[np.bool_]

_TURN: Final = 1 << 32
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

    def home(self, origin: int | None) -> Region | None:
        """Return the region that pointers computed from an address may touch.

        None where the address is not known, or lies in no region.
        """
        return None if origin is None else self.covering(origin, origin + 1)

    def numbers(
        self, addresses: NDArray[np.uint64], size: int, home: Region | None = None
    ) -> Indices:
        """Return per address the number of its region, -1 where it has none.

        Args:
            addresses: of the first bytes.
            size: how many bytes from there on.
            home: the one region that may be touched; None for any.
        """
        if home is not None:
            inside = (addresses >= home.low) & (addresses <= home.high - size)
            return np.where(inside, self.all.index(home), -1)
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


def _frame() -> FrameType | None:
    """Return the innermost frame that is the user's: the kernel's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not _is_users(frame.f_code):
        frame = frame.f_back
    return frame


@lru_cache(4096)
def _is_users(code: CodeType) -> bool:
    return not code.co_filename.startswith((_OWN, _triton()))


def _line() -> str:
    """Return the line of the kernel that runs."""
    frame = _frame()
    return "" if frame is None else _line_of(frame.f_code, frame.f_lineno)


@lru_cache(4096)
def _line_of(code: CodeType, number: int) -> str:
    """Return a line of a source file below the working directory, else of its name."""
    file = code.co_filename
    below = relative(file, Path())
    return f"{below if below != file else Path(file).name}:{number}"


def _is_used() -> bool:
    """Whether the kernel uses what the call that it is in returns."""
    frame = _frame()
    if frame is None:
        return True
    code, at = frame.f_code.co_code, frame.f_lasti + 2
    while at < len(code) and code[at] == 0:  # room for what Python notes of a call
        at += 2
    return at >= len(code) or code[at] != opmap["POP_TOP"]


@cache
def _triton() -> str:
    place = getattr(sys.modules.get("triton"), "__file__", None)
    return str(Path(place).parent) + os.sep if place else _OWN


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


_MOST_POLLS: Final = 1_000
"""So many loads or atomics of one element that all give the same, with no other
access between them, are a wait. Counted, not timed: a busy machine changes nothing."""

Array = NDArray[Any]


class WaitsForLaterProgram(RuntimeError):
    """A program polls what may be another's to change that has yet to run."""


class AddressCheck:
    """What one call of a kernel does to memory, over all its launches.

    Args:
        reach: what the launches may touch.
        outdated: whether loads that race with a store get what was there before it.
        hints: whether what a kernel promises its compiler is checked, too.

    Attributes:
        hints: the same.
        atomic: whether what is carried out now is part of an atomic operation.
        origin: address that the pointers in use were computed from, if known.
        casts: whether an integer became a pointer in this launch.
        volatile: whether what is carried out now is a volatile load.
        regions: what the launch may touch.
    """

    def __init__(
        self, reach: Reach, *, outdated: bool = False, hints: bool = False
    ) -> None:
        self._outdated, self.hints = outdated, hints
        self.atomic = self.volatile = False
        self.origin: int | None = None
        self.casts = False
        self._reach = reach
        # One per line, kind of access, memory, place there, and other line of a race.
        self._entries: dict[tuple[str, str, str, str, str], Access] = {}
        self.regions = Regions(())
        self._races = RaceLog(1)
        self._order: list[Program] = []
        self._programs = 1
        self._polled: tuple[int, bytes] | None = None
        self._polls = 0

    def accesses(self) -> tuple[Access, ...]:
        """Return what was recorded, in the order of first occurrence."""
        return tuple(self._entries.values())

    def launch(self, arguments: Iterable[Any], programs: int) -> None:
        """Begin a launch."""
        launched = [t for a in arguments for t in tensors_in(a)]
        self.regions = self._reach.regions(launched)
        self._races, self._order = RaceLog(programs, history=self._outdated), []
        self._programs = programs
        self.casts, self.origin, self.atomic = False, None, False

    def promised(self, hint: str, untrue: Array) -> None:
        """Record that a hint is not true of some values."""
        key = _line(), hint, "", "hint", ""
        program = self._order[-1] if self._order else None
        value = int(untrue.flat[0])
        first = Access(hint, "", "", "hint", 0, value, 0, program, line=key[0])
        known = self._entries.get(key, first)
        self._entries[key] = replace(known, count=known.count + untrue.size)

    def program(self, index: Program) -> None:
        """Begin a program of the launch."""
        self._races.ended()
        self._order.append(index)
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
        size, live = np.dtype(dtype).itemsize, shaped(mask, ptrs.shape)
        access = ATOMIC if self.atomic else LOAD
        pieces, bad = self._pieces(ptrs, live, size, access)
        if bad is None:
            result = native.load(ptrs, mask, other, dtype)
        else:
            result = np.array(native.load(ptrs, live & ~bad, other, dtype))
            result[bad] = self._poison(np.dtype(dtype))
        for piece, lanes, offsets in pieces:
            self._loaded(piece, ptrs, lanes, size)
            if self._outdated:
                result = self._before(piece, ptrs, lanes, result)
            writes = None if self.atomic else piece.writes
            if writes is not None and not writes.complete:
                found = _bytes(result[lanes], size)
                missing = writes.missing(offsets, size, found)
                if missing.any():
                    self._record(access, piece, "unwritten", offsets[missing])
        return result

    def store(self, native: Any, ptrs: Array, values: Array, mask: Any) -> Any:
        """Carry out a store; stray lanes are dropped."""
        self._polled = None
        size = values.dtype.itemsize
        live = shaped(mask, ptrs.shape)
        access = ATOMIC if self.atomic else STORE
        pieces, bad = self._pieces(ptrs, live, size, access)
        for piece, lanes, offsets in pieces:
            if piece.writes is not None:
                piece.writes.mark(offsets, size)
            if self.atomic:
                self._met(piece, offsets, size)
            elif self._races.possible:
                word, at = np.dtype(f"u{size}"), ptrs[lanes]
                stored = np.ascontiguousarray(shaped(values, ptrs.shape)[lanes])
                held = native.load(
                    at, np.ones(at.shape, np.bool_), np.zeros(at.shape, word), word
                )
                races = self._races.store(
                    piece, len(self._order) - 1, offsets, stored.view(word), held,
                    _line(),
                )  # fmt: skip
                self._raced(STORE, piece, races)
        return native.store(ptrs, values, mask if bad is None else live & ~bad)

    def atomic_rmw(
        self, native: Any, op: Any, ptrs: Array, value: Array, mask: Any, sem: Any
    ) -> Any:
        """Carry out an atomic; stray lanes are dropped and get poison."""
        live = shaped(mask, ptrs.shape)
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
            wanted, new = (shaped(x, ptrs.shape)[good] for x in (cmp, value))
            result[good] = native.atomic_cas(ptrs[good], wanted, new, sem)
        return result

    def _atomic(self, ptrs: Array, live: Flags, size: int) -> Flags | None:
        pieces, bad = self._pieces(ptrs, live, size, ATOMIC)
        for piece, _, offsets in pieces:
            if piece.writes is not None:
                piece.writes.mark(offsets, size)
            self._met(piece, offsets, size)
        return bad

    def _pieces(
        self, ptrs: Array, live: Flags, size: int, access: str
    ) -> tuple[list[tuple[Region, Flags, NDArray[np.int64]]], Flags | None]:
        """Sort the live lanes by region and record the stray ones.

        Returns:
            Per region that is legally touched the lanes and their byte offsets;
            and the stray lanes, None if there are none.
        """
        numbers = np.full(ptrs.shape, -2, np.int64)
        home = self.regions.home(self.origin)
        numbers[live] = self.regions.numbers(ptrs[live], size, home)
        bad = self._strays(ptrs, numbers == -1, access)
        groups = [
            (self.regions.all[n], numbers == n) for n in np.unique(numbers) if n >= 0
        ]
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
        home = self.regions.home(self.origin)
        owners: list[tuple[Region | None, Flags]]
        owners = [(home, np.ones(addresses.shape, np.bool_))]
        if home is None:
            owners = self.regions.nearest(addresses)
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

    def _loaded(self, region: Region, ptrs: Array, mask: Any, size: int) -> None:
        """Log a load for its races."""
        if self._races.possible:
            races = self._races.load(
                region, len(self._order) - 1, ptrs, mask, size, _line(),
                ordering=self.atomic or self.volatile,
            )  # fmt: skip
            self._raced(LOAD, region, races)

    def _before(self, region: Region, ptrs: Array, live: Flags, result: Array) -> Array:
        """Return the result of a load as it may be before the stores it races with.

        What is polled is seen in the end.
        """
        again = ptrs.size == 1 and self._polled and self._polled[0] == int(ptrs.item())
        if not self._races.possible or self.atomic or self.volatile or again:
            return result
        offsets = (ptrs[live] - np.uint64(region.low)).view(np.int64)
        held = _bytes(result[live], result.dtype.itemsize)
        made = np.array(result)
        before = self._races.before(region, len(self._order) - 1, offsets, held)
        made[live] = before.reshape(-1).view(result.dtype)
        return made

    def _met(self, region: Region, offsets: Indices, size: int) -> None:
        """Log an atomic for its races."""
        if self._races.possible:
            races = self._races.atomic(
                region, len(self._order) - 1, offsets, size, _line(),
                acquires=_is_used(),
            )  # fmt: skip
            self._raced(ATOMIC, region, races)

    def _raced(self, access: str, region: Region, races: Iterable[Race]) -> None:
        for race in races:
            self._record(access, region, "race", race.offsets, race)

    def _record(
        self,
        access: str,
        region: Region | None,
        where: str,
        offsets: NDArray[np.int64],
        race: Race | None = None,
    ) -> None:
        """Record what one operation of the running kernel does to one region.

        Args:
            access: "load", "store" or "atomic".
            region: memory concerned; None where there is none.
            where: as `Access.where` says.
            offsets: byte offsets from the region's first byte, one per lane.
            race: with whom, if it is one.
        """
        count = int(np.unique(offsets).size)
        argument, memory, offset, distance = "", "memory it was not given", 0, 0
        if region is not None:
            argument, memory = region.argument, region.memory
            distances = _distances(region, where, offsets)
            nearest = int(distances.argmin())
            distance = int(distances[nearest])
            offset = int(offsets[nearest]) // region.itemsize
            turn = _TURN * region.itemsize * (1 if where == "before" else -1)
            turned = offsets + turn
            if ((turned >= 0) & (turned < region.high - region.low)).any():
                memory += ", where an offset of 32 bits overflows"
        program, other, by, at = self._order[-1] if self._order else None, None, "", ""
        if race is not None:
            program, other = self._order[race.program], self._order[race.other]
            by, at = race.access, race.line
        line = _line()
        key = line, access, memory, where, f"{by} {at}"
        known = self._entries.setdefault(
            key,
            Access(
                access, argument, memory, where, distance, offset, 0, program, other,
                line, by, at,
            ),
        )  # fmt: skip
        if distance < known.distance:
            known = replace(known, distance=distance, offset=offset)
        self._entries[key] = replace(known, count=known.count + count)

    def _poison(self, dtype: np.dtype[Any]) -> Any:
        """Return the poison of a NumPy dtype as one of its elements."""
        held = getattr(torch, dtype.name, torch.uint8)
        word, value = poison_word(held, self._reach.poison)
        signed = word is not torch.uint8
        one = value.to_bytes(word.itemsize, sys.byteorder, signed=signed)
        data = (one * dtype.itemsize)[: dtype.itemsize]
        return np.frombuffer(data, dtype)[0]


def _bytes(values: Array, size: int) -> NDArray[np.uint8]:
    """Return the bytes of each element, [elements, size]."""
    flat = np.ascontiguousarray(values).reshape(-1)
    return flat.view(np.uint8).reshape(-1, size)


# Where Triton's interpreter hands its memory operations to the address check.

Current = Callable[[], AddressCheck | None]

ORIGIN: Final = "kfuzz.origin"  # the argument that a pointer was computed from

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
_SECTOR: Final = 16
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
    reread = module._ir.CACHE_MODIFIER.CV
    for names, atomic in ((_ATOMICS, True), (_PLAIN, False)):
        wrap(builder, names, partial(_operation, handle, current, atomic, reread))
    # Until Triton 3.9 operations got the modifier itself.
    wrap(
        builder, ("get_cache_policy",),
        lambda original: lambda self, modifier, eviction: (
            reread if str(modifier).lower().endswith("cv") else None
        ),
    )  # fmt: skip
    wrap(builder, ("create_assume",), partial(_assumed, current))
    wrap(
        getattr(module, "TensorDescHandle", None), ("validate",),
        partial(_validated, current),
    )  # fmt: skip
    wrap(
        builder, ("create_descriptor_store",),
        lambda original: _in_sectors(original, handle),
    )  # fmt: skip
    for name in _BLOCKS:
        wrap(
            getattr(module, name, None), ("materialize_pointers",),
            partial(_materialized, lambda mask: handle(mask, module.tl.int1)),
        )  # fmt: skip
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
            found = operand.attr.get(ORIGIN)
            if found is not None:
                return found
    return None


def _carrier(original: Any, handle: Any) -> Any:
    """Hand the origin of a pointer on to what is computed from it."""

    def operation(builder: Any, *operands: Any, **named: Any) -> Any:
        made = original(builder, *operands, **named)
        if (found := _origin(operands, handle)) is not None:
            made.attr[ORIGIN] = found
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


def _operation(
    handle: Any, current: Current, atomic: bool, reread: Any, original: Any
) -> Any:
    """Tell the check what kind of operation runs, and on whose memory."""

    def operation(builder: Any, *operands: Any, **named: Any) -> Any:
        check = current()
        if check is None:
            return original(builder, *operands, **named)
        outer = check.atomic, check.volatile, check.origin
        check.atomic, check.origin = outer[0] or atomic, _origin(operands, handle)
        check.volatile |= named.get("is_volatile", operands[-1]) is True
        # No cache may serve it.
        check.volatile |= any(x is reread for x in (*operands, *named.values()))
        try:
            return original(builder, *operands, **named)
        finally:
            check.atomic, check.volatile, check.origin = outer

    return operation


def untrue(name: str, values: Any, numbers: Sequence[int], step: int) -> Indices:
    """Return the values of which a hint to the compiler is not true.

    Args:
        name: "multiple_of", "max_contiguous" or "max_constancy".
        values: of a block, or of each program's.
        numbers: what is promised along each dimension.
        step: from one value of a run to the next.
    """
    every: Array = values.data if isinstance(values, Programs) else values
    x = every.astype(np.int64)
    wrong = np.full(x.shape, name == "multiple_of")
    for axis, number in enumerate(numbers, x.ndim - len(numbers)):
        later = (*(slice(None),) * axis, slice(1, None))
        steps = np.diff(x, axis=axis)
        goes_on = steps == (0 if name == "max_constancy" else step)
        if name == "multiple_of":  # of the first of each run
            wrong[later] &= ~goes_on
        elif x.shape[axis] > 1:
            # Offsets % N begin anew: kernels throw away what is loaded from there on.
            goes_on |= (steps < 0) & (name == "max_contiguous")
            inside = np.arange(1, x.shape[axis]) % number != 0
            others = (1,) * (x.ndim - axis - 1)
            wrong[later] |= ~goes_on & inside.reshape(-1, *others)
    if name == "multiple_of":
        wrong &= np.logical_or.reduce([x % number != 0 for number in numbers])
    found: Indices = x[wrong]
    return found


def _assumed(current: Current, original: Any) -> Any:
    """Record a false assumption where hints are checked."""

    def create_assume(builder: Any, condition: Any) -> Any:
        check = current()
        if check is None or not check.hints:
            return original(builder, condition)
        if not condition:
            check.promised("tl.assume", np.zeros(1, np.int64))
        return None

    return create_assume


def _validated(current: Current, original: Any) -> Any:
    """Record a descriptor that no GPU takes where hints are checked."""

    def validate(descriptor: Any) -> Any:
        try:
            return original(descriptor)
        except AssertionError as error:
            check = current()
            if check is not None and check.hints:
                text = f"tl.make_tensor_descriptor, whose {error},"
                check.promised(text, np.zeros(1, np.int64))
            raise

    return validate


def _materialized(flags: Callable[[Any], Any], original: Any) -> Any:
    """Hand the origin of a block pointer or descriptor on to its pointers.

    Their mask is an array up to Triton 3.8.
    """

    def materialize_pointers(block: Any, *operands: Any) -> Any:
        pointers, mask = original(block, *operands)
        found = block.base.attr.get(ORIGIN)
        if found is not None:
            pointers.attr[ORIGIN] = found
        return pointers, flags(mask) if hasattr(mask, "astype") else mask

    return materialize_pointers


def _in_sectors(original: Any, handle: Any) -> Any:
    """Store through a descriptor as a GPU does: whole sectors, not elements.

    On an H100 a block that passes the end of a row writes up to the next 16-byte
    boundary (Triton's issue 11583); base and strides are multiples of that.
    """

    def create_descriptor_store(builder: Any, block: Any, *operands: Any) -> Any:
        size = block.base.dtype.element_ty.primitive_bitwidth // 8
        columns, wide = block.shape[-1], copy(block)
        whole = -(-columns.data * size // _SECTOR) * _SECTOR // size
        wide.shape = [*block.shape[:-1], handle(whole, columns.dtype)]
        return original(builder, wide, *operands)

    return create_descriptor_store


def _converted(original: Any, handle: Any) -> Any:
    """Note of each tensor that a kernel is given that its pointer comes from it."""

    def converted(argument: Any) -> Any:
        made = original(argument)
        if hasattr(argument, "data_ptr"):
            held = getattr(made, "handle", None)
            if isinstance(held, handle):
                held.attr[ORIGIN] = int(held.data[0])
        return made

    return converted
