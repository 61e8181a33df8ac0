"""CUDA's virtual-memory calls, through cuda-bindings."""

import importlib
from typing import Any, Final

from kfuzz.core.errors import HarnessError
from kfuzz.execution.device.driver import DriverError

# The second is where cuda-python kept it before version 12.6.1.
_MODULES: Final = ("cuda.bindings.driver", "cuda.cuda")


def bindings() -> Any:
    """Return the module of the driver's calls.

    Raises:
        HarnessError: if cuda-bindings is not installed.
    """
    for name in _MODULES:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise HarnessError(
        "cuda-bindings is not installed, through which memory is mapped",
        fix="pip install cuda-bindings, of the major version of torch.version.cuda",
    )


class CudaMemory:
    """Virtual memory of one CUDA device.

    Args:
        index: the device, as torch counts.
        driver: the module of the calls; cuda-bindings' by default.

    Raises:
        HarnessError: if cuda-bindings is not installed.
    """

    def __init__(self, index: int, driver: Any = None) -> None:
        self._driver = bindings() if driver is None else driver
        made = self._driver.CUmemAllocationProp()
        made.type = self._driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        made.location.type = self._driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        made.location.id = index
        self._properties = made

    def granularity(self) -> int:
        """Return what sizes and mapped addresses have to be multiples of."""
        flags = self._driver.CUmemAllocationGranularity_flags
        least = flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        found = self._call("cuMemGetAllocationGranularity", self._properties, least)
        return int(found)

    def reserve(self, nbytes: int) -> int:
        """Return the address of a range in which every access faults as yet."""
        anywhere = self._driver.CUdeviceptr(0)
        return int(self._call("cuMemAddressReserve", nbytes, 0, anywhere, 0))

    def free(self, address: int, nbytes: int) -> None:
        """Give a whole reserved range back; nothing may be mapped in it."""
        self._call("cuMemAddressFree", self._at(address), nbytes)

    def create(self, nbytes: int) -> int:
        """Return a handle of physical memory on the device."""
        return int(self._call("cuMemCreate", nbytes, self._properties, 0))

    def release(self, handle: int) -> None:
        """Give a handle back; the memory stays as long as it is mapped."""
        self._call("cuMemRelease", self._handle(handle))

    def map(self, address: int, nbytes: int, handle: int) -> None:
        """Put physical memory, all of it, under a part of a reserved range."""
        self._call("cuMemMap", self._at(address), nbytes, 0, self._handle(handle), 0)

    def unmap(self, address: int, nbytes: int) -> None:
        """Take what was mapped by one call from under its range."""
        self._call("cuMemUnmap", self._at(address), nbytes)

    def set_access(self, address: int, nbytes: int) -> None:
        """Let the device read and write a mapped range."""
        access = self._driver.CUmemAccessDesc()
        access.location = self._properties.location
        both = self._driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        access.flags = both
        self._call("cuMemSetAccess", self._at(address), nbytes, [access], 1)

    def _at(self, address: int) -> Any:
        return self._driver.CUdeviceptr(address)

    def _handle(self, handle: int) -> Any:
        return self._driver.CUmemGenericAllocationHandle(handle)

    def _call(self, name: str, *arguments: Any) -> Any:
        """Call the driver and return what it gives beside the error, if anything."""
        try:
            error, *given = getattr(self._driver, name)(*arguments)
        except RuntimeError as failed:  # no libcuda, or one without the function
            raise DriverError(name, str(failed)) from None
        if int(error):
            raise DriverError(name, getattr(error, "name", str(error)))
        return given[0] if given else None
