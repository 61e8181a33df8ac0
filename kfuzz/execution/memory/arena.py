"""Memory that the cases of one kernel use in turn, grown as needed."""

import mmap

import torch
from torch import Tensor

from kfuzz.execution.device.backends import backend_of
from kfuzz.execution.device.gpu_fences import Fenced
from kfuzz.execution.memory.zones import raw_memory


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
        settled: whether the first call of a batch has been seen to allocate what the
            others do; None before that is known.
    """

    def __init__(self, device: torch.device | str) -> None:
        self.device = torch.device(device)
        self.generation = 0
        self._backend = backend_of(self.device)
        self.pool = self._backend.pool(self.device)
        self.settled: bool | None = None
        self.live = raw_memory(0, self.device)
        self.snapshot = raw_memory(0, self.device)
        self._fenced: dict[int, tuple[Fenced, Tensor, bool]] = {}
        self._own: list[_Own] = []

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

    def shed(self, limit: int) -> None:
        """Give back what is kept for a kernel's allocations if it is more than that."""
        if sum(own.memory.numel() for own in self._own) > limit:
            self._own.clear()

    def own(self, number: int, nbytes: int) -> Tensor:
        """Return memory for one of a kernel's own allocations, for a whole batch.

        What a kernel still holds from an earlier batch is not used again: its owner
        may rely on it, as caches do.

        Args:
            number: of the allocation in a call; each has memory of its own.
            nbytes: least size.
        """
        while len(self._own) <= number:
            self._own.append(_Own(raw_memory(0, self.device)))
        own = self._own[number]
        if nbytes > own.memory.numel() or not own.alone:
            del own  # given back before more is taken
            self._own[number] = _Own(raw_memory(0, self.device))
            size = 1 << (nbytes - 1).bit_length()
            self._own[number] = own = _Own(raw_memory(size, self.device))
        return own.memory


class _Own:
    """Memory for one allocation of a kernel, and who held it when it was made."""

    def __init__(self, memory: Tensor) -> None:
        self.memory = memory
        self._holders = _holders(memory)

    @property
    def alone(self) -> bool:
        """Whether nobody else holds it; not, if this torch does not tell."""
        return self._holders is not None and _holders(self.memory) == self._holders


def _holders(memory: Tensor) -> int | None:
    """Return how many objects hold a storage; None if this torch does not tell."""
    count = getattr(torch._C, "_storage_Use_Count", None)
    return None if count is None else int(count(memory.untyped_storage()._cdata))
