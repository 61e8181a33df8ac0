"""Guarded slots in one block of memory: how they are laid out."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from kfuzz.core.recipe import Edge
from kfuzz.execution.device.backends import backend_of

if TYPE_CHECKING:
    from kfuzz.execution.device.gpu_fences import Fenced

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
