"""Checks every address that a kernel touches in Triton's interpreter.

Each load, store and atomic of each lane whose mask is set is held against what its
launch may reach. A stray lane is recorded and not carried out: the interpreter
itself would read or overwrite whatever lies there.
"""

import sys
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from kfuzz.core.verdict import Access
from kfuzz.execution.interpreter.access_log import AccessLog, Program
from kfuzz.execution.interpreter.races import Races
from kfuzz.execution.interpreter.reach import Flags, Reach, Region, Regions, tensors_in
from kfuzz.execution.memory.poison import poison_word

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
        self._log = AccessLog()
        self._regions = Regions(())
        self._races = Races(1)
        self._order: list[Program] = []
        self._programs = 1
        self._polled: tuple[int, bytes] | None = None
        self._polls = 0

    def accesses(self) -> tuple[Access, ...]:
        """Return what was recorded, in the order of first occurrence."""
        return self._log.accesses()

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
        good = ~bad
        if good.any():
            wanted = _shaped(cmp, ptrs.shape)[good]
            new = _shaped(value, ptrs.shape)[good]
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
        if ptrs.size == 1:
            low = high = int(ptrs.item())
        elif ptrs.size:
            low, high = int(ptrs.min()), int(ptrs.max())
        else:
            return None
        return self._regions.covering(low, high + size)

    def _pieces(
        self, ptrs: Array, live: Flags, size: int, access: str, region: Region | None
    ) -> tuple[list[tuple[Region, Flags, NDArray[np.int64]]], Flags | None]:
        """Sort the live lanes by region and record the stray ones.

        Returns:
            Per region that is legally touched the lanes and their byte offsets;
            and the stray lanes, None if there are none.
        """
        bad: Flags | None = None
        if region is not None:
            groups = [(region, live)]
        else:
            addresses = ptrs[live]
            if not addresses.size:
                return [], None
            region = self._covering(addresses, size)
            if region is not None:
                groups = [(region, live)]
            else:
                numbers = np.full(ptrs.shape, -2, np.int64)
                numbers[live] = self._regions.numbers(addresses, size)
                groups = [
                    (self._regions.all[n], numbers == n)
                    for n in np.unique(numbers)
                    if n >= 0
                ]
                bad = self._strays(ptrs, numbers == -1, size, access)
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

    def _strays(
        self, ptrs: Array, outside: Flags, size: int, access: str
    ) -> Flags | None:
        """Record lanes that touch no region; return those that count as stray."""
        if not outside.any():
            return None
        if self.casts:
            # A live tensor that only its owner knows may lie there.
            owned = np.zeros(ptrs.shape, np.bool_)
            owned[outside] = self._reach.owned(ptrs[outside])
            outside = owned
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
            offsets = (addresses[mine] - np.uint64(region.low)).view(np.int64)
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
        program = self._order[-1] if self._order else None
        self._log.add(access, region, where, offsets, program=program, other=other)

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
