"""Footprints: which bytes of memory the elements of a tensor occupy."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Footprint:
    """Where the elements of one tensor lie.

    Attributes:
        address: byte address of the first element.
        shape: sizes.
        strides: steps between elements, in elements, none negative.
        itemsize: bytes per element.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int

    @classmethod
    def of(cls, tensor: Tensor) -> "Footprint":
        """Return the footprint of a strided tensor."""
        return cls(
            tensor.data_ptr(),
            tuple(tensor.shape),
            tensor.stride(),
            tensor.element_size(),
        )

    @property
    def stop(self) -> int:
        """Byte address behind the last element; `address` where there is none."""
        if 0 in self.shape:
            return self.address
        steps = zip(self.shape, self.strides, strict=True)
        return self.address + self.itemsize * (1 + sum((n - 1) * s for n, s in steps))

    def overlaps(self, other: "Footprint") -> bool:
        """Whether an element of each occupies a common byte.

        Elements that lie between each other, as the columns of one buffer do,
        have no byte in common.
        """
        low, high = max(self.address, other.address), min(self.stop, other.stop)
        if low >= high:
            return False
        if self._is_dense and other._is_dense:
            return True
        if self._is_dense:
            return bool(other._within(low, high).size)
        mine = self._within(low, high)
        if other._is_dense:
            return bool(mine.size)
        return bool(np.intersect1d(mine, other._within(low, high)).size)

    @property
    def _is_dense(self) -> bool:
        """Whether every byte between the ends belongs to an element."""
        span = 1
        for step, n in sorted(zip(self.strides, self.shape, strict=True)):
            if n > 1 and step != span:
                return False
            span *= n
        return True

    def _within(self, low: int, high: int) -> NDArray[np.int64]:
        """Return the addresses of all bytes of elements between two addresses."""
        starts = np.array([self.address], dtype=np.int64)
        for n, step in zip(self.shape, self.strides, strict=True):
            if n > 1 and step:
                steps = np.arange(n, dtype=np.int64) * (step * self.itemsize)
                starts = (starts[:, None] + steps).reshape(-1)
        starts = starts[(starts + self.itemsize > low) & (starts < high)]
        found = (starts[:, None] + np.arange(self.itemsize)).reshape(-1)
        return found[(found >= low) & (found < high)]
