"""A view that spans far more memory than it has elements.

It lies in sparse memory, on a device in memory that is allocated as it is. Poison is
written and compared only in windows: around the elements and at both ends. No work here
is proportional to the span.
"""

from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from torch import Tensor

from kfuzz.core.recipe import TensorSpec
from kfuzz.execution.device.backends import backend_of
from kfuzz.execution.memory.host_fences import NoAddressSpace, sparse_memory
from kfuzz.execution.memory.poison import Poison, fill_poison
from kfuzz.execution.memory.touches import Indices, element_offsets
from kfuzz.execution.memory.zones import ROUND_BYTES, next_slot, raw_memory

if TYPE_CHECKING:
    from kfuzz.execution.memory.argument_blocks import Argument

MARGIN_BYTES: Final = 4096
"""Poison on either side of a run of elements; its page exists anyway."""

WINDOW_BYTES: Final = 4 << 20
"""Poison around all runs together: many runs get narrower margins."""


def is_sparse(spec: TensorSpec, itemsize: int, device: torch.device) -> bool:
    """Whether a view is placed in memory that is filled in windows only."""
    nbytes = (spec.offset + spec.span) * itemsize
    least = backend_of(device).limits.sparse_bytes
    return nbytes > least and nbytes > 4 * spec.numel * itemsize


class Windows:
    """The memory of one sparse argument.

    Attributes:
        memory: uint8, guard zones included.
        slot: where in it the storage lies.
    """

    def __init__(
        self, argument: "Argument", poison: Poison, device: torch.device
    ) -> None:
        a, spec, dtype = argument, argument.spec, argument.dtype
        self.memory = _memory(a.nbytes + 2 * a.guard + 4 * a.align, device)
        self.slot = next_slot(
            self.memory.data_ptr(), 0, a.nbytes, a.guard, alignment=a.align,
            exact=a.exact,
        )  # fmt: skip
        self._words = self.memory[: self.memory.numel() // 8 * 8].view(torch.int64)
        places = torch.from_numpy(self._places(spec, dtype.itemsize))
        self._index = places.to(device)
        pattern = torch.empty(ROUND_BYTES, dtype=torch.uint8, device=device)
        fill_poison(pattern, dtype, poison)
        self._words[self._index] = pattern.view(torch.int64)[0]
        self._snapshot = self._words[self._index]

    def snap(self) -> None:
        """Keep the present state to compare with."""
        self._snapshot = self._words[self._index]

    def changed(self) -> Indices:
        """Return offsets in `memory` of the bytes that changed, ascending."""
        now = self._words[self._index]
        if torch.equal(now, self._snapshot):
            return np.empty(0, dtype=np.int64)
        differ = now != self._snapshot
        starts = self._index[differ].cpu().numpy() * 8
        pairs = (now[differ].cpu().numpy(), self._snapshot[differ].cpu().numpy())
        a, b = (words.view(np.uint8).reshape(-1, 8) for words in pairs)
        found: Indices = (starts[:, None] + np.arange(8))[a != b]
        return found

    def _places(self, spec: TensorSpec, itemsize: int) -> Indices:
        """Return the numbers of the 8-byte words in all windows, ascending."""
        slot, limit = self.slot, self._words.numel()
        origin = slot.base + spec.offset * itemsize
        starts = np.sort(element_offsets(spec)) * itemsize + origin
        first = np.flatnonzero(np.diff(starts, prepend=-1) != itemsize)
        runs = np.stack([starts[first], starts[[*(first[1:] - 1), -1]] + itemsize])
        margin = min(MARGIN_BYTES, WINDOW_BYTES // runs.shape[1])
        margin = max(margin // ROUND_BYTES * ROUND_BYTES, ROUND_BYTES)
        ends = [[slot.start, slot.stop], [slot.base, slot.end]]
        low = np.concatenate([runs[0] - margin, ends[0]]) // 8
        high = -(-np.concatenate([runs[1] + margin, ends[1]]) // 8)
        return _covered(low.clip(0), high.clip(None, limit))


def _covered(low: Indices, high: Indices) -> Indices:
    """Return the integers of all intervals [low, high), ascending and once each."""
    order = np.argsort(low)
    low, high = low[order], np.maximum.accumulate(high[order])
    apart = np.flatnonzero(low[1:] > high[:-1]) + 1
    low, high = low[np.r_[0, apart]], high[np.r_[apart - 1, -1]]
    size = high - low
    before = np.cumsum(size) - size
    return np.repeat(low - before, size) + np.arange(int(size.sum()))


def _memory(nbytes: int, device: torch.device) -> Tensor:
    """Return memory for a view that spans so many bytes.

    On a device all of it exists: loads between the elements are legal, and must not
    fault.

    Raises:
        NoAddressSpace: if there is not as much.
    """
    if backend_of(device).has.on_host:
        return sparse_memory(nbytes)
    try:
        return raw_memory(nbytes, device)
    except torch.OutOfMemoryError:
        raise NoAddressSpace(
            f"the device has no {nbytes / 2**30:.3g} GiB for a view that spans them",
            where="kfuzz.execution.memory.windows",
        ) from None
