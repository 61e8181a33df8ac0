"""The virtual-memory calls of a GPU's driver, the same for CUDA and HIP."""

from typing import Final, Protocol

from kfuzz.core.errors import HarnessError

_OUT_OF_MEMORY: Final = ("CUDA_ERROR_OUT_OF_MEMORY", "hipErrorOutOfMemory")


class DriverError(HarnessError):
    """A call that the driver refused.

    Attributes:
        call: the driver's function.
        name: what the driver calls the error.
    """

    def __init__(self, call: str, name: str) -> None:
        self.call, self.name = call, name
        super().__init__(f"{call} failed: {name}")

    @property
    def out_of_memory(self) -> bool:
        """Whether there is not enough memory or address space."""
        return self.name in _OUT_OF_MEMORY


class VirtualMemory(Protocol):
    """Address space and physical memory of one device, taken and joined apart.

    Sizes and addresses are in bytes, sizes multiples of the granularity. Every
    method raises `DriverError`.
    """

    def granularity(self) -> int:
        """Return what sizes and mapped addresses have to be multiples of."""

    def reserve(self, nbytes: int) -> int:
        """Return the address of a range in which every access faults as yet."""

    def free(self, address: int, nbytes: int) -> None:
        """Give a whole reserved range back; nothing may be mapped in it."""

    def create(self, nbytes: int) -> int:
        """Return a handle of physical memory on the device."""

    def release(self, handle: int) -> None:
        """Give a handle back; the memory stays as long as it is mapped."""

    def map(self, address: int, nbytes: int, handle: int) -> None:
        """Put physical memory, all of it, under a part of a reserved range."""

    def unmap(self, address: int, nbytes: int) -> None:
        """Take what was mapped by one call from under its range."""

    def set_access(self, address: int, nbytes: int) -> None:
        """Let the device read and write a mapped range."""
