"""Guarded slots in one block of memory: how they are laid out."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kfuzz.core.recipe import Edge, TensorSpec
from kfuzz.execution.device.backends import backend_of
from kfuzz.numerics.run import Touch

if TYPE_CHECKING:
    from kfuzz.execution.memory.fences import Fenced


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
