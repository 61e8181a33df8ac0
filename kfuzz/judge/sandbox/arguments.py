"""The arguments of a call on their way to a child and back."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from kfuzz.core.errors import HarnessError
from kfuzz.execution.memory.placement import region_of
from kfuzz.judge.sandbox.carried import Carrier, Geometry, page_up, whole


class ArgumentRooms:
    """The memory that the arguments of a call lie in, each part of it once.

    Args:
        tensors: the arguments.
        most: bytes that one of them may span.

    Raises:
        HarnessError: one spans more.

    Attributes:
        told: per part its address, its size and where it is carried.
        tensors: per argument its geometry, its part, and where its storage begins and
            ends there.
        nbytes: what the parts take in shared memory.
    """

    def __init__(self, tensors: Sequence[Tensor], most: int) -> None:
        self.told: list[list[int]] = []
        self.tensors: list[list[Any]] = []
        self.nbytes = 0
        self._parts: list[Tensor] = []
        known: dict[tuple[int, int], int] = {}
        for tensor in tensors:
            region = region_of(tensor)
            if region is None:
                part = whole(tensor)
                base, stop = 0, part.numel()
            else:
                part, base, stop = region.memory, region.base, region.stop
            if part.numel() > most:
                raise HarnessError(
                    f"an argument's memory spans {part.numel()} bytes, more than the "
                    f"{most} that are carried to a child"
                )
            key = part.data_ptr(), part.numel()
            if key not in known:
                known[key] = len(self._parts)
                self._parts.append(part)
                self.told.append([*key, self.nbytes])
                self.nbytes += page_up(part.numel())
            self.tensors.append([Geometry.of(tensor).told(), known[key], base, stop])

    def write(self, carrier: Carrier) -> None:
        """Copy all parts to shared memory."""
        for part, (_, _, offset) in zip(self._parts, self.told, strict=True):
            carrier.write(offset, part)

    def read(self, carrier: Carrier) -> None:
        """Copy all parts back."""
        for part, (_, nbytes, offset) in zip(self._parts, self.told, strict=True):
            part.copy_(carrier.read(offset, nbytes))
