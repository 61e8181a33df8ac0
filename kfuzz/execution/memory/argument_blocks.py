"""Memory of arguments: one block that holds one or several between guard zones.

Blocks are filled with poison, keep what they held when placed, and report what has
changed since.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor

from kfuzz.core.errors import HarnessError
from kfuzz.core.recipe import Edge, TensorSpec
from kfuzz.execution.device.backends import backend_of
from kfuzz.execution.memory.arena import Arena
from kfuzz.execution.memory.poison import Poison, bits_of, poison_word
from kfuzz.execution.memory.rows import Rows
from kfuzz.execution.memory.touches import (
    Indices,
    element_offsets,
    find_touches,
    single_shape,
)
from kfuzz.execution.memory.windows import Windows
from kfuzz.execution.memory.zones import (
    EXACT_BELOW,
    ROUND_BYTES,
    Slot,
    edge_slot,
    guard_bytes,
    next_slot,
    rounded,
    slot_room,
)
from kfuzz.numerics.run import Touch

EDGE_BYTES: Final = 256 << 20
"""Largest argument that lies at an edge on a device: its memory and the copy that it is
compared with are kept for the cases that follow."""


@dataclass(frozen=True)
class Argument:
    """What one argument needs of its memory.

    Attributes:
        form: its dtype, shape, strides and storage offset.
        nbytes: of its storage.
        guard: width of each zone.
        align: of its storage.
    """

    name: str
    spec: TensorSpec
    dtype: torch.dtype
    form: tuple[torch.dtype, tuple[int, ...], tuple[int, ...], int]
    nbytes: int
    guard: int
    align: int

    @classmethod
    def of(cls, name: str, spec: TensorSpec, alignment: int) -> "Argument":
        """Return what an argument needs.

        Raises:
            HarnessError: if elements overlap other than by a stride of 0, or the
                alignment is no power of two.
        """
        if alignment < 1 or alignment & (alignment - 1):
            raise HarnessError(f"alignment {alignment} is not a power of two")
        dtype: torch.dtype = getattr(torch, spec.dtype)
        span, reach = extent(name, spec)
        nbytes, guard = (spec.offset + span) * dtype.itemsize, reach * dtype.itemsize
        align = max(alignment, dtype.itemsize)
        form = dtype, spec.shape, spec.element_strides, spec.offset
        return cls(name, spec, dtype, form, nbytes, guard_bytes(guard), align)

    @property
    def exact(self) -> bool:
        """Whether its base is a multiple of the alignment, and not of its double."""
        return self.align < EXACT_BELOW

    @property
    def room(self) -> int:
        """Bytes that it takes at most, guard zones included."""
        return slot_room(self.nbytes, self.guard, self.align)

    def single(self, values: Tensor) -> Tensor:
        """Cut every stride-0 axis of [items, *shape] down to one element."""
        if self.spec.strides is not None and 0 in self.spec.strides:
            for axis, n in enumerate(single_shape(self.spec)):
                if n != self.spec.shape[axis]:
                    values = values.narrow(axis + 1, 0, 1)
        return values

    def changes(self, changed: Indices, slot: Slot) -> list[Touch]:
        """Return the touches of changed bytes, counted as the slot is."""
        size = self.dtype.itemsize
        origin = slot.base + self.spec.offset * size
        return find_touches(self.name, self.spec, size, changed - origin)


class Dense:
    """Rows that are compared as a whole, and the arguments in them, in order."""

    def __init__(
        self,
        memory: Tensor,
        snapshot: Tensor,
        placed: Sequence[tuple[Argument, Slot]],
        around: Poison,
        *,
        items: int,
        pitch: int,
        within: tuple[int, int],
    ) -> None:
        """Fill the rows with poison.

        Args:
            memory: uint8, flat.
            snapshot: as large, to keep the state in.
            placed: the arguments and their slots in a row, by ascending offset.
            around: which poison.
            items: how many rows.
            pitch: bytes from one to the next.
            within: first byte of a row, and one past the last, that are filled and
                compared.
        """
        self.placed = {argument.name: (argument, slot) for argument, slot in placed}
        slots = tuple(slot for _, slot in placed)
        self.rows = Rows(memory, slots, items, pitch)
        self._snapshot = Rows(snapshot, slots, items, pitch)
        self._first, self._last = within
        self._now = self.rows.columns(*within, torch.int64)
        self._was = self._snapshot.columns(*within, torch.int64)
        self._poison(around)

    def elements(self, name: str, *, was: bool = False) -> Tensor:
        """Return elements in all rows, those that share memory once.

        Args:
            name: the argument.
            was: those of the snapshot.
        """
        argument, slot = self.placed[name]
        rows = self._snapshot if was else self.rows
        return argument.single(rows.every(slot, argument.form))

    def snap(self) -> None:
        """Keep the present state to compare with."""
        self._was.copy_(self._now)

    def restore(self, number: int) -> None:
        """Give a row its state when placed."""
        self._now[number].copy_(self._was[number])

    def touched(self, free: Collection[str]) -> Tensor:
        """Return in which rows a byte has changed; see `Placement.touched`."""
        self._accept(free)
        on_host = backend_of(self._now.device).has.on_host
        if on_host and torch.equal(self._now, self._was):
            return torch.zeros(len(self._now), dtype=torch.bool)
        return (self._now != self._was).any(1)

    def touches(self, free: Collection[str]) -> list[Touch]:
        """Return what changed in the first row."""
        self._accept(free)
        if torch.equal(self._now, self._was):
            return []
        first = self._first
        now = self._now[0].view(torch.uint8).cpu().numpy()
        was = self._was[0].view(torch.uint8).cpu().numpy()
        found: list[Touch] = []
        starts = [slot.start - first for _, slot in self.placed.values()]
        starts[0] = 0
        ends = [*starts[1:], now.size]
        for (argument, slot), start, end in zip(
            self.placed.values(), starts, ends, strict=True
        ):
            changed = np.flatnonzero(now[start:end] != was[start:end])
            found += argument.changes(changed + (start + first), slot)
        return found

    def _accept(self, free: Collection[str]) -> None:
        """Have elements count as placed as they are now."""
        for name in free:
            if name in self.placed:
                now, was = self.elements(name), self.elements(name, was=True)
                bits_of(was).copy_(bits_of(now))

    def _poison(self, around: Poison) -> None:
        """Fill all rows; neighbours that take the same word at once."""
        first = self._first
        stretches: list[tuple[int, torch.dtype, int]] = []
        for argument, slot in self.placed.values():
            word, value = poison_word(argument.dtype, around)
            if stretches and stretches[-1][1:] == (word, value):
                stretches.pop()
            stretches.append((rounded(slot.end), word, value))
        stretches[-1] = (self._last, *stretches[-1][1:])
        for stop, word, value in stretches:
            self.rows.columns(first, stop, word).fill_(value)
            first = stop


class Sparse:
    """One argument in memory that is filled and compared in windows; a single row."""

    def __init__(self, argument: Argument, around: Poison, arena: Arena) -> None:
        self._windows = Windows(argument, around, arena.device)
        slot = self._windows.slot
        self.rows = Rows(self._windows.memory, (slot,))
        self.placed = {argument.name: (argument, slot)}

    def elements(self, name: str) -> Tensor:
        """Return elements, those that share memory once."""
        argument, slot = self.placed[name]
        whole = self.rows.isolated(0, slot, argument.form)
        return argument.single(whole.unsqueeze(0))

    def snap(self) -> None:
        """Keep the present state to compare with."""
        self._windows.snap()

    def touches(self, free: Collection[str]) -> list[Touch]:
        """Return what changed."""
        changed = self._windows.changed()
        return [t for a, slot in self.placed.values() for t in a.changes(changed, slot)]


Block = Dense | Sparse


def side_by_side(
    arena: Arena, arguments: Sequence[Argument], items: int, pitch: int, around: Poison
) -> Dense:
    """Lay arguments out in the arena's one block, a row for each item."""
    used, placed = 0, []
    address = arena.live.data_ptr()
    for a in arguments:
        slot = next_slot(
            address, used, a.nbytes, a.guard, alignment=a.align, exact=a.exact
        )
        placed.append((a, slot))
        used = rounded(slot.end)
    # A single row is all of the block; it is filled and compared as far as it goes.
    single = items == 1
    return Dense(
        arena.live, arena.snapshot, placed, around, items=items,
        pitch=arena.live.numel() if single else pitch,
        within=(0, used if single else pitch),
    )  # fmt: skip


def is_at_edge(argument: Argument, edge: Edge, arena: Arena) -> bool:
    """Whether a page that faults is to lie beside an argument."""
    if edge.allocation is not None or edge.argument not in ("", argument.name):
        return False
    on_cpu = backend_of(arena.device).has.on_host
    return bool(argument.spec.numel) and (on_cpu or argument.nbytes <= EDGE_BYTES)


def at_edge(
    arena: Arena, number: int, argument: Argument, edge: Edge, around: Poison
) -> Dense:
    """Lay an argument out against one end of fenced memory."""
    a = argument
    need = rounded(a.nbytes + a.guard + edge.slack + 2 * a.align)
    buffer, snapshot = arena.fenced(number, need, readable=edge.readable)
    slot = edge_slot(edge, buffer, a.nbytes, a.guard, alignment=a.align)
    within = slot.start // ROUND_BYTES * ROUND_BYTES, rounded(slot.end)
    return Dense(
        buffer.memory, snapshot, [(a, slot)], around, items=1,
        pitch=buffer.memory.numel(), within=within,
    )  # fmt: skip


def check_values(argument: Argument, values: Mapping[str, Tensor], items: int) -> None:
    """Check that values fit an argument.

    Args:
        argument: what they are for.
        values: per argument [items, *shape].
        items: how many.

    Raises:
        HarnessError: naming the argument, if there are none, or if shape or dtype
            differ.
    """
    given = values.get(argument.name)
    shape, dtype = (items, *argument.spec.shape), argument.dtype
    if given is None or given.shape != shape or given.dtype is not dtype:
        found = None if given is None else (tuple(given.shape), given.dtype)
        what = f"values {found} do not fit shape {shape} and dtype {dtype}"
        raise HarnessError(what, where=argument.name)


def extent(name: str, spec: TensorSpec) -> tuple[int, int]:
    """Return the span of a view and how far a stray index may reach, in elements.

    Stray indices: one row too many, or all elements where a stride of 0 was ignored.

    Raises:
        HarnessError: if elements overlap other than by a stride of 0.
    """
    numel = math.prod(spec.shape)
    if numel == 0:
        return 0, 0
    span, reach, apart = 1, numel, True
    for step, n in sorted(zip(spec.element_strides, spec.shape, strict=True)):
        if n > 1 and step:
            # Sufficient for disjoint elements; what fails it is counted below.
            apart = apart and step >= span
            span += (n - 1) * step
            reach = max(reach, step)
    if not apart and len(np.unique(element_offsets(spec))) < math.prod(
        single_shape(spec)
    ):
        what = f"elements overlap (shape {spec.shape}, strides {spec.strides})"
        fix = "Only a stride of 0 may make elements share memory"
        raise HarnessError(what, where=name, fix=fix)
    return span, reach
