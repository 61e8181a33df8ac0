"""HIP's virtual-memory calls, through ctypes on its runtime.

They are CUDA's by other names. They follow ROCm's headers and are tested against a
library that only pretends: nobody has run them on AMD hardware. There an access to
memory that is not mapped ends the process rather than only its context, which a
child reports as a crash: such a fault is seen, and not traced to a fence.
"""

import contextlib
import ctypes
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_ubyte, c_ulonglong, c_void_p
from pathlib import Path
from typing import Any, Final

from kfuzz.core.errors import HarnessError
from kfuzz.execution.device.driver import DriverError

_LIBRARY: Final = "libamdhip64.so"

# From hip_runtime_api.h.
_ALLOCATION_TYPE_PINNED: Final = 1  # hipMemAllocationTypePinned
_LOCATION_TYPE_DEVICE: Final = 1  # hipMemLocationTypeDevice
_GRANULARITY_MINIMUM: Final = 0  # hipMemAllocationGranularityMinimum
_READ_WRITE: Final = 3  # hipMemAccessFlagsProtReadWrite


class Location(ctypes.Structure):
    """hipMemLocation."""

    _fields_ = (("type", c_int), ("id", c_int))


class AllocationFlags(ctypes.Structure):
    """The unnamed structure `allocFlags` of hipMemAllocationProp."""

    _fields_ = (
        ("compression_type", c_ubyte),
        ("rdma_capable", c_ubyte),
        ("usage", ctypes.c_ushort),
    )


class Properties(ctypes.Structure):
    """hipMemAllocationProp."""

    _fields_ = (
        ("type", c_int),
        ("handle_type", c_int),
        ("location", Location),
        ("metadata", c_void_p),
        ("flags", AllocationFlags),
    )


class Access(ctypes.Structure):
    """hipMemAccessDesc."""

    _fields_ = (("location", Location), ("flags", c_int))


_ARGUMENTS: Final[dict[str, tuple[Any, ...]]] = {
    "hipMemGetAllocationGranularity": (POINTER(c_size_t), POINTER(Properties), c_int),
    "hipMemAddressReserve": (
        POINTER(c_void_p), c_size_t, c_size_t, c_void_p, c_ulonglong,
    ),
    "hipMemAddressFree": (c_void_p, c_size_t),
    "hipMemCreate": (POINTER(c_void_p), c_size_t, POINTER(Properties), c_ulonglong),
    "hipMemRelease": (c_void_p,),
    "hipMemMap": (c_void_p, c_size_t, c_size_t, c_void_p, c_ulonglong),
    "hipMemUnmap": (c_void_p, c_size_t),
    "hipMemSetAccess": (c_void_p, c_size_t, POINTER(Access), c_size_t),
}  # fmt: skip


class HipMemory:
    """Virtual memory of one HIP device.

    Args:
        index: the device, as torch counts.
        library: HIP's runtime; the one that torch has loaded by default.

    Raises:
        HarnessError: if there is no such library.
    """

    def __init__(self, index: int, library: Any = None) -> None:
        self._library = loaded() if library is None else library
        for name, kinds in _ARGUMENTS.items():
            function = getattr(self._library, name, None)
            if function is None:
                raise HarnessError(f"HIP's runtime has no {name}", fix="update ROCm")
            function.argtypes, function.restype = kinds, c_int
        self._library.hipGetErrorName.argtypes = (c_int,)
        self._library.hipGetErrorName.restype = c_char_p
        location = Location(_LOCATION_TYPE_DEVICE, index)
        self._properties = Properties(type=_ALLOCATION_TYPE_PINNED, location=location)

    def granularity(self) -> int:
        """Return what sizes and mapped addresses have to be multiples of."""
        found = c_size_t()
        self._call(
            "hipMemGetAllocationGranularity",
            ctypes.byref(found), ctypes.byref(self._properties), _GRANULARITY_MINIMUM,
        )  # fmt: skip
        return found.value

    def reserve(self, nbytes: int) -> int:
        """Return the address of a range in which every access faults as yet."""
        found = c_void_p()
        self._call("hipMemAddressReserve", ctypes.byref(found), nbytes, 0, None, 0)
        return found.value or 0

    def free(self, address: int, nbytes: int) -> None:
        """Give a whole reserved range back; nothing may be mapped in it."""
        self._call("hipMemAddressFree", address, nbytes)

    def create(self, nbytes: int) -> int:
        """Return a handle of physical memory on the device."""
        made = c_void_p()
        properties = ctypes.byref(self._properties)
        self._call("hipMemCreate", ctypes.byref(made), nbytes, properties, 0)
        return made.value or 0

    def release(self, handle: int) -> None:
        """Give a handle back; the memory stays as long as it is mapped."""
        self._call("hipMemRelease", handle)

    def map(self, address: int, nbytes: int, handle: int) -> None:
        """Put physical memory, all of it, under a part of a reserved range."""
        self._call("hipMemMap", address, nbytes, 0, handle, 0)

    def unmap(self, address: int, nbytes: int) -> None:
        """Take what was mapped by one call from under its range."""
        self._call("hipMemUnmap", address, nbytes)

    def set_access(self, address: int, nbytes: int) -> None:
        """Let the device read and write a mapped range."""
        access = Access(self._properties.location, _READ_WRITE)
        self._call("hipMemSetAccess", address, nbytes, ctypes.byref(access), 1)

    def _call(self, name: str, *arguments: Any) -> None:
        error = getattr(self._library, name)(*arguments)
        if error:
            text = self._library.hipGetErrorName(error)
            raise DriverError(name, text.decode() if text else str(error))


def loaded() -> Any:
    """Return HIP's runtime: torch's wheels bring their own, under its full name."""
    name = _LIBRARY
    with contextlib.suppress(OSError):
        mapped = Path("/proc/self/maps").read_text().split()
        name = next((word for word in mapped if f"/{_LIBRARY}" in word), name)
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        raise HarnessError(
            f"{_LIBRARY} cannot be loaded: {error}", fix="install ROCm's HIP runtime"
        ) from None
