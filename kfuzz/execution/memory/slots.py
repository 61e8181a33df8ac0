"""Rows of guarded slots: one row for each item of a batch, one for a case alone.

The layout of all memory that a kernel is given or allocates under guard: a slot between
zones, at the same place in every row.
"""

import mmap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, UntypedStorage

from kfuzz.core.recipe import Destination, Edge, TensorSpec
from kfuzz.execution.device.backends import backend_of
from kfuzz.execution.memory.fences import Fenced
from kfuzz.execution.memory.poison import Poison, poison_bytes, poison_word
from kfuzz.numerics.run import Side, Touch

# Guarded slots in one block of memory: how they are laid out.

GUARD_BYTES: Final = 4096
"""Smallest guard zone: a 1024-wide float32 tile stored without a mask stays in it."""

GUARD_LIMIT_BYTES: Final = 64 * 1024
"""Largest guard zone: beyond it, filling and comparing would outweigh the kernel."""

EXACT_BELOW: Final = 64
"""Alignments under this many bytes are given exactly, never by luck a larger one;
from there on torch's own allocators align alike."""

ROUND_BYTES: Final = 64
"""Slots are rounded to this, so that they can be compared in 8-byte words."""


@dataclass(frozen=True)
class Slot:
    """Byte offsets of one guarded region within its block.

    Attributes:
        start: first byte of the guard zone in front.
        base: first byte of the storage.
        stop: one past the last byte of the storage.
        end: one past the last byte of the guard zone behind.
    """

    start: int
    base: int
    stop: int
    end: int


def guard_bytes(reach: int) -> int:
    """Return the width of a guard zone.

    Args:
        reach: bytes that a kernel with wrong index arithmetic could plausibly
            overshoot by: one row, or all elements of an expanded tensor.
    """
    return min(max(rounded(reach), GUARD_BYTES), GUARD_LIMIT_BYTES)


def alignment_on(device: torch.device) -> int:
    """Return the bytes to which torch's allocator aligns."""
    return backend_of(device).limits.alignment


def next_slot(
    address: int, used: int, nbytes: int, guard: int, *, alignment: int, exact: bool
) -> Slot:
    """Lay out the next slot of a block.

    Args:
        address: address of the block's first byte.
        used: bytes of the block already taken, a multiple of `ROUND_BYTES`.
        nbytes: size of the storage.
        guard: width of each guard zone, a multiple of `ROUND_BYTES`.
        alignment: power of two that the storage's address is a multiple of.
        exact: whether the address must not be a multiple of 2 * `alignment`.
    """
    base = up(address + used + guard, 2 * alignment if exact else alignment)
    if exact:
        base += alignment
    base -= address
    stop = base + nbytes
    return Slot(base - guard, base, stop, stop + guard)


def edge_slot(
    edge: Edge, fenced: "Fenced", nbytes: int, guard: int, *, alignment: int
) -> Slot:
    """Lay a slot out against one end of fenced memory, a guard zone on the other.

    Args:
        edge: which end, and how much padding at least lies between.
        fenced: the memory; fences that can be read belong to the slot's zone.
        nbytes: size of the storage.
        guard: width of the guard zone on the other side, a multiple of `ROUND_BYTES`.
        alignment: power of two, of which the storage's address is a multiple.
    """
    if edge.side == "start":
        base = fenced.start + up(edge.slack, alignment)
        return Slot(0, base, base + nbytes, rounded(base + nbytes + guard))
    base = (fenced.stop - edge.slack - nbytes) // alignment * alignment
    first = (base - guard) // ROUND_BYTES * ROUND_BYTES
    return Slot(first, base, base + nbytes, fenced.memory.numel())


def slot_room(nbytes: int, guard: int, alignment: int) -> int:
    """Return an upper bound of the bytes that `next_slot` takes, rounding included."""
    return rounded(nbytes + 2 * guard + 3 * alignment)


def raw_memory(nbytes: int, device: torch.device) -> Tensor:
    """Return uninitialised uint8 memory, its size rounded up to `ROUND_BYTES`."""
    return torch.empty(rounded(nbytes), dtype=torch.uint8, device=device)


def rounded(nbytes: int) -> int:
    """Return a size rounded up to `ROUND_BYTES`."""
    return up(nbytes, ROUND_BYTES)


def up(number: int, step: int) -> int:
    """Return a number rounded up to a multiple of a step."""
    return -(-number // step) * step


# What a launch changed around its arguments: which elements, slack or zones.

Indices = NDArray[np.int64]


def single_shape(spec: TensorSpec) -> tuple[int, ...]:
    """Return the shape with every stride-0 axis cut down to one element."""
    pairs = zip(spec.shape, spec.element_strides, strict=True)
    return tuple(n if s else min(n, 1) for n, s in pairs)


def element_offsets(spec: TensorSpec) -> Indices:
    """Return the element offset of each logical element, stride-0 axes once."""
    offsets = np.zeros((), dtype=np.int64)
    for n, step in zip(single_shape(spec), spec.element_strides, strict=True):
        offsets = offsets[..., None] + np.arange(n, dtype=np.int64) * step
    return offsets.reshape(-1)


def find_touches(
    name: str, spec: TensorSpec, itemsize: int, changed: Indices
) -> list[Touch]:
    """Sort the changed bytes around one argument by where they lie.

    Args:
        name: the argument.
        spec: its recipe.
        itemsize: bytes per element.
        changed: offsets of the changed bytes from the view's first element,
            ascending.
    """
    span = spec.span
    found = np.unique(changed // itemsize)
    before, after = found[found < 0], found[found >= span]
    inside = found[(found >= 0) & (found < span)]
    touches = []
    if inside.size:
        touches += _inner_touches(name, spec, itemsize, inside)
    if before.size:
        distance = -int(before[-1])
        touches.append(Touch(name, "before", before.size, distance, itemsize))
    if after.size:
        distance = int(after[0]) - span + 1
        touches.append(Touch(name, "after", after.size, distance, itemsize))
    return touches


def _inner_touches(
    name: str, spec: TensorSpec, size: int, inside: Indices
) -> list[Touch]:
    """Tell changed elements from changed slack, given offsets within the span."""
    offsets = element_offsets(spec)
    order = np.argsort(offsets)
    lies = offsets[order]
    right = np.searchsorted(lies, inside)
    hit = lies[right] == inside
    touches = []
    if hit.any():
        first = np.unravel_index(order[right[hit]].min(), single_shape(spec))
        index = tuple(int(i) for i in first)
        touches.append(Touch(name, "element", int(hit.sum()), 0, size, index))
    if not hit.all():
        # The span starts and ends with an element, so slack has one on both sides.
        slack, right = inside[~hit], right[~hit]
        gaps = np.minimum(slack - lies[right - 1], lies[right] - slack)
        touches.append(Touch(name, "slack", slack.size, int(gaps.min()), size))
    return touches


# Which elements of an allocation something has written since it was made.

Flags = NDArray[np.bool_]


class WriteMap:
    """The written elements of one allocation; a partial write counts as one.

    Attributes:
        complete: whether nothing remains unwritten, as far as is known.
    """

    def __init__(self, nbytes: int, itemsize: int, poison: bytes) -> None:
        """Start with nothing written.

        Args:
            nbytes: size of the allocation.
            itemsize: bytes per element.
            poison: what unwritten memory repeats, starting at its first byte.
        """
        self.complete = False
        self._itemsize = itemsize
        self._poison = np.frombuffer(poison, np.uint8)
        self._elements = -(-nbytes // itemsize)
        self._written: Flags | None = None

    def mark_all(self) -> None:
        """Take every element for written."""
        self.complete, self._written = True, None

    def state(self) -> tuple[bool, Flags | None]:
        """Return what is written now, for `restore`."""
        return self.complete, None if self._written is None else self._written.copy()

    def restore(self, state: tuple[bool, Flags | None]) -> None:
        """Forget what was written since `state`."""
        self.complete, self._written = state

    def mark(self, offsets: Indices, size: int) -> None:
        """Record a write.

        Args:
            offsets: byte offsets within the allocation.
            size: bytes written at each.
        """
        if self.complete:
            return
        if self._written is None:
            self._written = np.zeros(self._elements, np.bool_)
        first, steps = self._span(offsets, size)
        for step in range(steps):
            self._written[np.minimum(first + step, self._elements - 1)] = True

    def missing(self, offsets: Indices, size: int, found: NDArray[np.uint8]) -> Flags:
        """Return which loads read an element that nothing wrote.

        What holds other bytes than poison was written by somebody unseen.

        Args:
            offsets: byte offsets within the allocation, all valid.
            size: bytes loaded at each.
            found: the loaded bytes, [loads, size].
        """
        none = np.zeros(offsets.shape, np.bool_)
        if self.complete:
            return none
        if self._written is None:
            unwritten = ~none
        elif self._written.all():
            self.mark_all()
            return none
        else:
            first, steps = self._span(offsets, size)
            unwritten = none
            for step in range(steps):
                at = np.minimum(first + step, (offsets + size - 1) // self._itemsize)
                unwritten |= ~self._written[at]
        places = (offsets[:, None] + np.arange(size)) % self._poison.size
        unwritten &= (found == self._poison[places]).all(1)
        return unwritten

    def _span(self, offsets: Indices, size: int) -> tuple[Indices, int]:
        """Return the first element touched at each offset and the most touched."""
        first = offsets // self._itemsize
        if size == self._itemsize and np.array_equal(first * size, offsets):
            return first, 1
        last = (offsets + size - 1) // self._itemsize
        return first, int((last - first).max(initial=0)) + 1


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
        self, memory: Tensor, count: int = 1, pitch: int | None = None
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
