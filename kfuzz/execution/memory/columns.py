"""One allocation of a kernel for all members of a burst."""

from collections.abc import Collection
from functools import cache

import torch
from torch import Tensor

from kfuzz.execution.memory.allocations import CPU_ALIGNMENT, DEVICE_ALIGNMENT
from kfuzz.execution.memory.batch_rows import alone, fresh_poison
from kfuzz.execution.memory.poison import poison_word
from kfuzz.execution.memory.zones import guard_bytes, next_slot


class Column:
    """One allocation of all members: a row each, poisoned, with zones at both ends.

    Attributes:
        memory: all rows, uint8.
        pitch: bytes from one row to the next.
        low: address of the first byte.
        high: address past the last byte.
        tensors: one per member, as the one that was asked for.
    """

    def __init__(
        self,
        rows: Tensor,
        pitch: int,
        first: int,
        made: Tensor,
        apart: Collection[int] = (),
    ) -> None:
        """Poison some memory.

        Args:
            rows: contiguous uint8; an even number of rows, one at least per member.
            pitch: bytes of a row.
            first: number of the first member; the poison follows from it.
            made: what torch gave the first member; its form counts.
            apart: rows whose tensors have a storage of their own.
        """
        self.memory, self.pitch = rows, pitch
        self.low = rows.data_ptr()
        self.high = self.low + rows.numel()
        size, nbytes = made.dtype.itemsize, made.untyped_storage().nbytes()
        word = poison_word(made.dtype, fresh_poison(first))[0]
        slot = next_slot(
            self.low, 0, nbytes, guard_bytes(nbytes),
            alignment=alignment_on(rows.device), exact=False,
        )  # fmt: skip
        step = word.itemsize
        self._slot = slot
        self._own = slice(slot.base // step, slot.stop // step)
        # Rows in pairs: the poison alternates.
        self._words = rows.view(word).view(-1, 2, pitch // step)
        self._poison = _pair(made.dtype, first % 2, rows.device)
        self._words.copy_(self._poison)
        every = rows.view(made.dtype).as_strided(
            (rows.numel() // pitch, *made.shape),
            (pitch // size, *made.stride()),
            slot.base // size,
        )
        tensors = list(every.unbind(0))
        for row in apart:
            start, stop = row * pitch + slot.base, row * pitch + slot.stop
            form = made.dtype, made.shape, made.stride()
            tensors[row] = alone(rows, start, stop, *form)
        self.tensors: tuple[Tensor, ...] = tuple(tensors)

    def holds(self, start: int, stop: int) -> bool:
        """Whether the bytes between two addresses are of one member's tensor."""
        first = (start - self.low) % self.pitch
        return self._slot.base <= first and first + stop - start <= self._slot.stop

    def touched(self) -> Tensor:
        """Return per row whether a byte beside the tensor has changed."""
        changed = self._words != self._poison
        changed[:, :, self._own] = False
        return changed.any(-1).view(-1)


def alignment_on(device: torch.device) -> int:
    """Return the bytes to which torch's allocator aligns."""
    return CPU_ALIGNMENT if device.type == "cpu" else DEVICE_ALIGNMENT


# As many as there are dtypes; never written to.
@cache
def _pair(dtype: torch.dtype, first: int, device: torch.device) -> Tensor:
    """Return the poisons of two members in a row, words of shape [1, 2, 1]."""
    found = [poison_word(dtype, fresh_poison(first + i)) for i in range(2)]
    made = torch.tensor([value for _, value in found], dtype=found[0][0])
    return made.view(1, 2, 1).to(device)
