"""Rows of guarded slots: one row for each item of a batch, one for a case alone.

The layout of all memory that a kernel is given or allocates under guard: a slot between
zones, at the same place in every row.
"""

import mmap
from collections.abc import Collection, Mapping, Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor, UntypedStorage

from kfuzz.core.recipe import Destination
from kfuzz.execution.device.backends import backend_of
from kfuzz.execution.memory.changes import Slot, WriteMap, element_offsets, raw_memory
from kfuzz.execution.memory.fences import Fenced
from kfuzz.execution.memory.poison import Poison, poison_bytes, poison_word
from kfuzz.numerics.run import Side

Form = tuple[torch.dtype, Sequence[int], Sequence[int], int]
"""The dtype, shape and strides of elements, and how many lie in front of the first."""


class Rows:
    """Memory in which rows that are laid out alike follow one another.

    Attributes:
        memory: uint8, flat; the rows begin with it.
        count: how many rows.
        pitch: bytes from one to the next.
        low: address of the first byte.
        high: address past the last byte of the last row.
    """

    def __init__(
        self,
        memory: Tensor,
        count: int = 1,
        pitch: int | None = None,
    ) -> None:
        """Describe some memory; without a pitch a single row is all of it."""
        self.memory, self.count = memory, count
        self.pitch = memory.numel() if pitch is None else pitch
        self.low = memory.data_ptr()
        self.high = self.low + count * self.pitch

    def columns(self, start: int, stop: int, dtype: torch.dtype) -> Tensor:
        """Return the bytes from one place of every row to another, [rows, elements].

        Args:
            start: first byte, counted in the row.
            stop: one past the last.
            dtype: what they are read as.
        """
        typed, size = self.memory.view(dtype), dtype.itemsize
        shape, strides = (self.count, (stop - start) // size), (self.pitch // size, 1)
        return typed.as_strided(shape, strides, typed.storage_offset() + start // size)

    def every(self, slot: Slot, form: Form) -> Tensor:
        """Return the elements in all rows, [rows, *shape].

        Args:
            slot: where they lie in a row.
            form: what they are.
        """
        dtype, shape, strides, offset = form
        typed, size = self.memory.view(dtype), dtype.itemsize
        first = typed.storage_offset() + slot.base // size + offset
        shape = (self.count, *shape)
        return typed.as_strided(shape, (self.pitch // size, *strides), first)

    def isolated(self, row: int, slot: Slot, form: Form) -> Tensor:
        """Return the elements in one row, in a storage that begins and ends there.

        It has a version counter of its own: a kernel's caller sees 0.
        """
        dtype, shape, strides, offset = form
        made = torch.empty(0, dtype=dtype, device=self.memory.device)
        made.set_(self.storage(row, slot), offset, tuple(shape), tuple(strides))
        return made.data

    def tensors(
        self, isolated: Collection[int], slot: Slot, form: Form
    ) -> list[Tensor]:
        """Return the elements of each row, as objects that no kernel has had.

        Args:
            isolated: rows whose tensors have a storage of their own.
            slot: where they lie in a row.
            form: what they are.
        """
        several = self.count > len(isolated)
        shared = self.every(slot, form).unbind(0) if several else ()
        return [
            self.isolated(row, slot, form) if row in isolated else shared[row]
            for row in range(self.count)
        ]

    def storage(self, row: int, slot: Slot) -> UntypedStorage:
        """Return the storage in a slot of a row."""
        first = self.memory.storage_offset() + row * self.pitch
        whole = self.memory.untyped_storage()
        own: UntypedStorage = whole[first + slot.base : first + slot.stop]
        return own


class PoisonedSlot:
    """One slot in each row, whose zones are held against the poison that they got."""

    def __init__(
        self,
        rows: Rows,
        slot: Slot,
        dtype: torch.dtype,
        poisons: Sequence[Poison],
        *,
        zones_only: bool = False,
    ) -> None:
        """Fill the slot, zones included.

        Args:
            rows: the memory.
            slot: where in each row, counted from its first byte.
            dtype: whose poison it gets.
            poisons: those of the first rows; the rows after them repeat these. Their
                number divides that of the rows.
            zones_only: leave the storage between the zones as it is.
        """
        self.rows, self.slot, self.dtype = rows, slot, dtype
        self._poisons = tuple(poisons)
        # [repetitions, poisons, words] each
        self._zones = [self._words(a, b) for a, b in _zones(slot)]
        self._value = _values(dtype, self._poisons, rows.memory.device)
        filled = [self._words(slot.start, slot.end)]
        for part in self._zones if zones_only else filled:
            if isinstance(self._value, int):
                part.fill_(self._value)
            else:
                part.copy_(self._value)

    def touched(self) -> Tensor:
        """Return in which rows a zone has changed: bool [rows], not waited for."""
        before, after = ((zone != self._value).any(-1) for zone in self._zones)
        return (before | after).view(-1)

    def strays(self) -> list[tuple[Side, int, int]]:
        """Return the changes in the first row; waits for the device."""
        found = []
        sides: tuple[Side, Side] = ("before", "after")
        for where, zone in zip(sides, self._zones, strict=True):
            changed = (zone != self._value)[0, 0]
            words = changed.nonzero().flatten().cpu()
            origin = changed.numel() if where == "before" else 0
            moved = (words - origin) * zone.itemsize // self.dtype.itemsize
            moved = torch.unique(moved)
            if moved.numel():
                near = -int(moved[-1]) if where == "before" else int(moved[0]) + 1
                found.append((where, moved.numel(), near))
        return found

    def _words(self, start: int, stop: int) -> Tensor:
        word, _ = poison_word(self.dtype, self._poisons[0])
        part = self.rows.columns(start, stop, word)
        each = len(self._poisons)
        return part.view(len(part) // each, each, part.shape[1])


def _zones(slot: Slot) -> tuple[tuple[int, int], tuple[int, int]]:
    return (slot.start, slot.base), (slot.stop, slot.end)


# As many as there are dtypes and poisons; never written to.
@cache
def _values(
    dtype: torch.dtype, poisons: tuple[Poison, ...], device: torch.device
) -> Tensor | int:
    """Return the words of poisons, [1, poisons, 1]; a number if it is one."""
    words = [poison_word(dtype, poison) for poison in poisons]
    if len(words) == 1:
        return words[0][1]
    made = torch.tensor([value for _, value in words], dtype=words[0][0])
    return made.view(1, -1, 1).to(device)


# Memory that the cases of one kernel use in turn, grown as needed.


class Arena:
    """Memory that placements use in turn.

    One placement lives in it at a time: the next one overwrites the tensors of the
    last. What must outlive the next case has to be cloned.

    Attributes:
        device: where the memory lies.
        generation: how many placements have used it.
        live: uint8, where arguments lie.
        snapshot: uint8, their state before the calls.
        pool: fenced memory for what a kernel allocates, on a device only.
    """

    def __init__(self, device: torch.device | str) -> None:
        self.device = torch.device(device)
        self.generation = 0
        self._backend = backend_of(self.device)
        self.pool = self._backend.pool(self.device)
        self.live = raw_memory(0, self.device)
        self.snapshot = raw_memory(0, self.device)
        self._fenced: dict[int, tuple[Fenced, Tensor, bool]] = {}

    def reserve(self, nbytes: int) -> None:
        """Make room for a placement; invalidates the one before.

        Args:
            nbytes: bytes needed in all, guard zones included.
        """
        self.generation += 1
        if nbytes > self.live.numel():
            size = 1 << (nbytes - 1).bit_length()
            self.live = self.snapshot = raw_memory(0, self.device)
            self.live = raw_memory(size, self.device)
            self.snapshot = raw_memory(size, self.device)

    def fenced(
        self, number: int, nbytes: int, *, readable: bool
    ) -> tuple[Fenced, Tensor]:
        """Return the fenced memory of the argument with this number, and a snapshot.

        It is mapped on first use and again only to grow. The snapshot is as large as
        what can be read of it.

        Args:
            number: position of the argument.
            nbytes: least size.
            readable: whether its fences may be read.

        Raises:
            HarnessError: if this system cannot make it.
        """
        buffer, snapshot, was = self._fenced.get(number, (None, None, False))
        if (
            buffer is None
            or snapshot is None
            or buffer.stop - buffer.start < nbytes
            or was is not readable
        ):
            self._fenced.pop(number, None)  # before two take the place of one
            size = max(1 << (nbytes - 1).bit_length(), 4 * mmap.PAGESIZE)
            buffer = self._backend.fenced_memory(size, self.device, readable=readable)
            snapshot = torch.empty_like(buffer.memory)
            self._fenced[number] = buffer, snapshot, readable
        return buffer, snapshot


# Destinations: memory that a kernel is given for its results.


def write_maps(
    destinations: Mapping[str, Destination], poison: Poison
) -> dict[str, WriteMap]:
    """Return maps in which the elements are unwritten; gaps between them are not.

    A bool has no spare bits for poison: all of it counts as written.
    """
    made = {}
    for name, place in destinations.items():
        dtype, spec = getattr(torch, place.dtype), place.spec()
        size = dtype.itemsize
        writes = WriteMap(spec.span * size, size, poison_bytes(dtype, poison))
        if dtype is torch.bool:
            writes.mark_all()
        elif not spec.is_contiguous:
            gaps = np.ones(spec.span, np.bool_)
            gaps[element_offsets(spec)] = False
            writes.mark(np.flatnonzero(gaps) * size, size)
        made[name] = writes
    return made


def handed_back(returned: object, given: Sequence[Tensor]) -> bool:
    """Whether a kernel returned nothing, or the destinations in their order."""
    if returned is None:
        return True
    items = returned if isinstance(returned, tuple | list) else (returned,)
    if len(items) != len(given):
        return False
    return all(
        isinstance(item, Tensor)
        and item.layout is torch.strided
        and _place(item) == _place(tensor)
        for item, tensor in zip(items, given, strict=True)
    )


def _place(tensor: Tensor) -> tuple[object, ...]:
    place = tensor.data_ptr() if tensor.numel() else 0
    return place, tensor.shape, tensor.stride(), tensor.dtype, tensor.device
