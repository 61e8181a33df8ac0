"""Which elements of an allocation something has written since it was made."""

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
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
        if size == self._itemsize and not (offsets % size).any():
            return first, 1
        last = (offsets + size - 1) // self._itemsize
        return first, int((last - first).max(initial=0)) + 1
