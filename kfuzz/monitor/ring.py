"""A ring of bytes: buffers for snapshots, taken in order and given back in any."""

import threading
from collections import deque
from typing import Final

import torch
from torch import Tensor

ALIGNMENT: Final = 64
"""Bytes to which every slot is aligned: enough to view it as any dtype."""


class Slot:
    """Some room in a ring.

    Attributes:
        start: byte offset in the ring's memory, a multiple of `ALIGNMENT`.
        size: bytes, rounded up to a multiple of it.
    """

    __slots__ = ("is_free", "size", "start")

    def __init__(self, start: int, size: int) -> None:
        self.start, self.size = start, size
        self.is_free = False


class ByteRing:
    """Hands out contiguous room in a memory of fixed size, made when it is written to.

    Room behind the newest slot is taken first, then room from the start of the
    memory on, up to the oldest slot. A slot given back before older ones stays
    occupied until these are given back too. Its lock is held for microseconds.

    Attributes:
        capacity: bytes in all.
        pinned: whether the memory is pinned, for copies from a GPU.
    """

    def __init__(self, capacity: int, *, pinned: bool = False) -> None:
        self.capacity = capacity // ALIGNMENT * ALIGNMENT
        self.pinned = pinned
        self._memory: Tensor | None = None
        self._slots: deque[Slot] = deque()
        self._head = 0
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> Slot | None:
        """Return room for some bytes, or None where there is none; never waits long."""
        size = rounded(nbytes)
        with self._lock:
            start = self._room(size)
            if start is None:
                return None
            slot = Slot(start, size)
            self._slots.append(slot)
            self._head = start + size
            return slot

    def give(self, slot: Slot) -> None:
        """Give a slot back; giving it twice changes nothing."""
        with self._lock:
            slot.is_free = True
            while self._slots and self._slots[0].is_free:
                self._slots.popleft()

    def bytes_of(self, slot: Slot) -> Tensor:
        """Return the bytes of a slot, uint8 [size]."""
        if self._memory is None:  # untouched pages cost nothing; two threads: one wins
            self._memory = torch.empty(
                self.capacity,
                dtype=torch.uint8,
                device="cpu",
                pin_memory=self.pinned,
            )
        return self._memory[slot.start : slot.start + slot.size]

    @property
    def used(self) -> int:
        """Bytes from the oldest slot to the newest, what was skipped between too."""
        with self._lock:
            if not self._slots:
                return 0
            span = self._head - self._slots[0].start
            return span if span > 0 else span + self.capacity

    def _room(self, size: int) -> int | None:
        if not self._slots:
            return 0 if size <= self.capacity else None
        tail = self._slots[0].start
        if self._head > tail:
            if size <= self.capacity - self._head:
                return self._head
            return 0 if size <= tail else None
        return self._head if size <= tail - self._head else None


def rounded(nbytes: int) -> int:
    """Return a number of bytes as a multiple of `ALIGNMENT`, at least one."""
    return max(-(-nbytes // ALIGNMENT), 1) * ALIGNMENT
