"""What memory a launch in Triton's interpreter may touch."""

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from kfuzz.core.recipe import TensorSpec
from kfuzz.execution.memory.allocations import GuardedAllocations
from kfuzz.execution.memory.poison import Poison
from kfuzz.execution.memory.touches import element_offsets, single_shape
from kfuzz.execution.memory.writes import WriteMap

Indices = NDArray[np.int64]
Flags = NDArray[np.bool_]

_FAR_BYTES: Final = 1 << 20
"""Beyond this a stray address of unknown origin is called nobody's neighbour."""


@dataclass(frozen=True, eq=False)
class Region:
    """One stretch of memory that a launch may touch.

    Attributes:
        low: address of its first byte.
        high: address past its last byte.
        itemsize: bytes per element.
        argument: the operator's parameter that it belongs to, "" if none.
        memory: what it is, in words.
        spec: layout of the elements to which stores are confined; None where
            every byte may be stored to.
        writes: which elements have been written; None where all count as such.
    """

    low: int
    high: int
    itemsize: int
    argument: str
    memory: str
    spec: TensorSpec | None = None
    writes: WriteMap | None = None

    def holds_elements(self, offsets: Indices, size: int) -> Flags:
        """Return which stores of `size` bytes touch nothing but elements.

        Args:
            offsets: byte offsets from `low`, all inside the region.
            size: bytes stored at each.
        """
        if self.spec is None:
            return np.ones(offsets.shape, np.bool_)
        lies = self.elements
        first = offsets // self.itemsize
        last = (offsets + size - 1) // self.itemsize
        good = np.ones(offsets.shape, np.bool_)
        for step in range(int((last - first).max(initial=0)) + 1):
            touched = np.minimum(first + step, last)
            good &= lies[np.searchsorted(lies, touched)] == touched
        return good

    @cached_property
    def elements(self) -> Indices:
        """The sorted offsets of its elements, in elements."""
        assert self.spec is not None
        return np.sort(element_offsets(self.spec))


class Regions:
    """The regions of one launch, and which of them an address lies in."""

    def __init__(self, regions: Iterable[Region]) -> None:
        self.all = sorted(regions, key=lambda r: (r.low, r.high))
        self._lows = [r.low for r in self.all]
        self._starts = np.array(self._lows, dtype=np.uint64)
        self._ends = np.array([r.high for r in self.all], dtype=np.uint64)

    def covering(self, low: int, high: int) -> Region | None:
        """Return the region that holds all bytes from `low` to before `high`."""
        at = bisect_right(self._lows, low) - 1
        if at >= 0 and high <= self.all[at].high:
            return self.all[at]
        return None

    def numbers(self, addresses: NDArray[np.uint64], size: int) -> Indices:
        """Return per address the number of its region, -1 where it has none."""
        if not self.all:
            return np.full(addresses.shape, -1, np.int64)
        at = np.searchsorted(self._starts, addresses, side="right").astype(np.int64) - 1
        known = np.maximum(at, 0)
        # Counted from the end, so that no address near 2^64 overflows.
        room = self._ends[known].astype(np.uint64) - np.uint64(size)
        inside = (at >= 0) & (addresses <= room) & (addresses >= self._starts[known])
        return np.where(inside, at, -1)

    def nearest(
        self, addresses: NDArray[np.uint64]
    ) -> list[tuple[Region | None, Flags]]:
        """Group stray addresses by the region next to them, None if all are far."""
        if not self.all:
            return [(None, np.ones(addresses.shape, np.bool_))]
        right = np.searchsorted(self._starts, addresses, side="right")
        left = np.maximum(right.astype(np.int64) - 1, 0)
        right = np.minimum(right, len(self.all) - 1)
        # Unsigned differences: a negative one is huge, hence not the least.
        up = self._starts[right] - addresses
        down = np.maximum(addresses, self._ends[left]) - self._ends[left]
        down[addresses < self._starts[left]] = _FAR_BYTES + 1
        numbers = np.where(up < down, right, left).astype(np.int64)
        numbers[np.minimum(up, down) > _FAR_BYTES] = -1
        return [
            (None if n < 0 else self.all[n], numbers == n) for n in np.unique(numbers)
        ]


class Reach:
    """What the launches of one call may touch: arguments, allocations, the rest.

    Args:
        specs: recipes of the arguments.
        tensors: the arguments as placed.
        allocations: what the kernel allocates while it runs.
        owned: address ranges in which everything is kfuzz's: an address there is
            known to be no other tensor's.
        poison: what lies around the arguments.
        writes: which elements of those arguments have been written that hold no data
            before the call.
    """

    def __init__(
        self,
        specs: Mapping[str, TensorSpec],
        tensors: Mapping[str, Tensor],
        allocations: GuardedAllocations | None,
        *,
        owned: Sequence[tuple[int, int]] = (),
        poison: Poison = Poison.NAN,
        writes: Mapping[str, WriteMap] | None = None,
    ) -> None:
        self.poison = poison
        self._allocations = allocations
        self._owned = list(owned)
        self._placed: list[Region] = []
        self._storages: list[tuple[int, int]] = []
        for name, tensor in tensors.items():
            if tensor.numel():
                spec, low = specs[name], tensor.data_ptr()
                strict = None if dense(spec) else spec
                high = low + spec.span * tensor.itemsize
                written = None if writes is None else writes.get(name)
                self._placed.append(
                    Region(low, high, tensor.itemsize, name, name, strict, written)
                )
            storage = tensor.untyped_storage()
            self._storages.append((storage.data_ptr(), storage.nbytes()))

    def owned(self, addresses: NDArray[np.uint64]) -> Flags:
        """Return which addresses lie where nobody else's tensors are."""
        ranges = list(self._owned)
        if self._allocations is not None:
            ranges += self._allocations.blocks()
        found = np.zeros(addresses.shape, np.bool_)
        for low, high in ranges:
            found |= (addresses >= np.uint64(low)) & (addresses < np.uint64(high))
        return found

    def regions(self, launched: Iterable[Tensor]) -> Regions:
        """Return what one launch may touch."""
        found = list(self._placed)
        allocated = [] if self._allocations is None else self._allocations.regions()
        for made in allocated:
            memory = f"its own {made.described}"
            high, size = made.address + made.nbytes, made.dtype.itemsize
            found.append(
                Region(made.address, high, size, "", memory, None, made.writes)
            )
        found += self._others(launched, found)
        return Regions(found)

    def _others(self, launched: Iterable[Tensor], known: list[Region]) -> list[Region]:
        """Return the storages that kfuzz did not place, overlapping ones as one."""
        spans = [*self._storages, *((r.low, r.high - r.low) for r in known)]
        others: dict[tuple[int, int], Tensor] = {}
        for tensor in launched:
            storage = tensor.untyped_storage()
            low, nbytes = storage.data_ptr(), storage.nbytes()
            if not nbytes or any(low < a + n and a < low + nbytes for a, n in spans):
                continue
            others.setdefault((low, low + nbytes), tensor)
        merged: list[Region] = []
        for (low, high), tensor in sorted(others.items(), key=lambda item: item[0]):
            if merged and low < merged[-1].high:
                last = merged.pop()
                low, high = last.low, max(high, last.high)
            name = str(tensor.dtype).removeprefix("torch.")
            memory = f"its own {name}{list(tensor.shape)}"
            merged.append(Region(low, high, tensor.itemsize, "", memory))
        return merged


def dense(spec: TensorSpec) -> bool:
    """Whether no slack lies between the elements."""
    return spec.span == math.prod(single_shape(spec))


def tensors_in(value: Any) -> list[Tensor]:
    """Return the tensors that a kernel's argument hands over, nested ones too."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, tuple | list):
        return [t for item in value for t in tensors_in(item)]
    base = getattr(value, "base", None)  # a descriptor, or a reinterpreted tensor
    return [] if base is None or base is value else tensors_in(base)
