"""The memory of a placement: which arguments lie in it, and what has changed."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from kfuzz.core.recipe import TensorSpec
from kfuzz.execution.memory.poison import Poison, fill_poison
from kfuzz.execution.memory.touches import Indices, find_touches
from kfuzz.execution.memory.windows import Windows
from kfuzz.execution.memory.zones import ROUND_BYTES, Slot, rounded
from kfuzz.numerics.run import Touch


@dataclass(frozen=True)
class Placed:
    """One argument and where it lies.

    Attributes:
        memory: the uint8 memory that the slot's offsets count in.
    """

    name: str
    spec: TensorSpec
    dtype: torch.dtype
    memory: Tensor
    slot: Slot

    def changes(self, touched: Indices, start: int = 0) -> list[Touch]:
        """Return the touches of bytes that changed.

        Args:
            touched: their offsets in `memory` from `start` on, ascending.
            start: see there.
        """
        size = self.dtype.itemsize
        origin = self.slot.base + self.spec.offset * size
        return find_touches(self.name, self.spec, size, touched + (start - origin))


class Dense:
    """Memory that is compared as a whole, and the arguments in it, in order.

    Args:
        live: uint8; where the arguments lie, it is filled with poison.
        snapshot: as large, to keep the state in.
        placed: the arguments, by ascending offset.
        poison: which poison.
    """

    def __init__(
        self, live: Tensor, snapshot: Tensor, placed: list[Placed], poison: Poison
    ) -> None:
        self.placed = placed
        for p in placed:
            fill_poison(live[p.slot.start : p.slot.end], p.dtype, poison)
        self._first = placed[0].slot.start // ROUND_BYTES * ROUND_BYTES
        last = rounded(placed[-1].slot.end)
        self._live = live[self._first : last].view(torch.int64)
        self._snapshot = snapshot[self._first : last].view(torch.int64)

    def snap(self) -> None:
        """Keep the present state to compare with."""
        self._snapshot.copy_(self._live)

    def touches(self, inplace: Collection[str]) -> list[Touch]:
        """Return what changed; elements of `inplace` may be among it."""
        if torch.equal(self._live, self._snapshot):
            return []
        if inplace and torch.equal(self._with_old_elements(inplace), self._snapshot):
            return []
        now = self._live.view(torch.uint8).cpu().numpy()
        was = self._snapshot.view(torch.uint8).cpu().numpy()
        found: list[Touch] = []
        starts = [p.slot.start - self._first for p in self.placed]
        ends = [*starts[1:], now.size]
        for placed, start, end in zip(self.placed, starts, ends, strict=True):
            changed = np.flatnonzero(now[start:end] != was[start:end])
            found += placed.changes(changed, start + self._first)
        return found

    def _with_old_elements(self, names: Collection[str]) -> Tensor:
        copy = self._live.clone()
        for placed in self.placed:
            if placed.name in names:
                old = single(self._view(self._snapshot, placed), placed.spec)
                single(self._view(copy, placed), placed.spec).copy_(old)
        return copy

    def _view(self, words: Tensor, placed: Placed) -> Tensor:
        """Return an argument's view over a copy of the memory."""
        first, slot, spec = self._first, placed.slot, placed.spec
        typed = words.view(torch.uint8)[slot.base - first : slot.stop - first]
        typed = typed.view(placed.dtype)
        start = typed.storage_offset() + spec.offset
        return typed.as_strided(spec.shape, spec.element_strides, start)


class Sparse:
    """One argument in memory that is compared in windows."""

    def __init__(self, windows: Windows, placed: Placed) -> None:
        self.placed = [placed]
        self._windows = windows

    def snap(self) -> None:
        """Keep the present state to compare with."""
        self._windows.snap()

    def touches(self, inplace: Collection[str]) -> list[Touch]:
        """Return what changed; elements of `inplace` may be among it."""
        return self.placed[0].changes(self._windows.changed())


def single(tensor: Tensor, spec: TensorSpec) -> Tensor:
    """Cut every stride-0 axis of a view down to one element."""
    if spec.strides is None or 0 not in spec.strides:
        return tensor
    for axis, step in enumerate(spec.strides):
        if step == 0 and spec.shape[axis] > 1:
            tensor = tensor.narrow(axis, 0, 1)
    return tensor
