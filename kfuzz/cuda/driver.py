"""The driver of a GPU, called through ctypes: one table of calls for CUDA and for HIP.

HIP's runtime has CUDA's driver calls under names of its own, with the same arguments
and with structures laid out alike, so that whatever runs on NVIDIA's GPUs tries the
code for AMD's too. On AMD hardware nobody has run it. There an access to memory that
is not mapped ends the process rather than only its context, which a child reports as a
crash: such a fault is seen, and not traced to a fence.
"""

import contextlib
import ctypes
import os
from collections.abc import Callable
from ctypes import (
    POINTER,
    c_char_p,
    c_int,
    c_size_t,
    c_ubyte,
    c_uint,
    c_ulonglong,
    c_void_p,
)
from functools import cache
from pathlib import Path
from typing import Any, Final

import torch

from kfuzz.core.errors import HarnessError
from kfuzz.numerics.run import UncheckedLaunch

_OUT_OF_MEMORY: Final = ("CUDA_ERROR_OUT_OF_MEMORY", "hipErrorOutOfMemory")

# From cuda.h; hip_runtime_api.h has the same numbers.
_ALLOCATION_TYPE_PINNED: Final = 1  # CU_MEM_ALLOCATION_TYPE_PINNED
_LOCATION_TYPE_DEVICE: Final = 1  # CU_MEM_LOCATION_TYPE_DEVICE
_GRANULARITY_MINIMUM: Final = 0  # CU_MEM_ALLOC_GRANULARITY_MINIMUM
_READ_WRITE: Final = 3  # CU_MEM_ACCESS_FLAGS_PROT_READWRITE


class Location(ctypes.Structure):
    """CUmemLocation, hipMemLocation."""

    _fields_ = (("type", c_int), ("id", c_int))


class Properties(ctypes.Structure):
    """CUmemAllocationProp, hipMemAllocationProp: its last member are flags."""

    _fields_ = (
        ("type", c_int),
        ("handle_type", c_int),
        ("location", Location),
        ("metadata", c_void_p),
        ("flags", c_ubyte * 8),
    )


class Access(ctypes.Structure):
    """CUmemAccessDesc, hipMemAccessDesc."""

    _fields_ = (("location", Location), ("flags", c_int))


# CUDA's name of each call -> the types of its arguments. CUDA's device addresses and
# memory handles are 64-bit integers, HIP's are pointers: they are passed alike.
_OUT: Final = POINTER(c_void_p)
_ARGUMENTS: Final[dict[str, tuple[Any, ...]]] = {
    "cuMemGetAllocationGranularity": (POINTER(c_size_t), POINTER(Properties), c_int),
    "cuMemAddressReserve": (_OUT, c_size_t, c_size_t, c_void_p, c_ulonglong),
    "cuMemAddressFree": (c_void_p, c_size_t),
    "cuMemCreate": (_OUT, c_size_t, POINTER(Properties), c_ulonglong),
    "cuMemRelease": (c_void_p,),
    "cuMemMap": (c_void_p, c_size_t, c_size_t, c_void_p, c_ulonglong),
    "cuMemUnmap": (c_void_p, c_size_t),
    "cuMemSetAccess": (c_void_p, c_size_t, POINTER(Access), c_size_t),
    "cuModuleLoadData": (_OUT, c_void_p),
    "cuModuleGetFunction": (_OUT, c_void_p, c_char_p),
    "cuFuncSetAttribute": (c_void_p, c_int, c_int),
    "cuLaunchKernel": (
        c_void_p, *[c_uint] * 6, c_uint, c_void_p, _OUT, c_void_p,
    ),
}  # fmt: skip
_OF_HIP: Final = {"cuLaunchKernel": "hipModuleLaunchKernel"}


class DriverError(HarnessError):
    """A call that the driver refused."""

    def __init__(self, call: str, name: str) -> None:
        self.call, self.name = call, name
        super().__init__(f"{call} failed: {name}")

    @property
    def out_of_memory(self) -> bool:
        """Whether there is not enough memory or address space."""
        return self.name in _OUT_OF_MEMORY


class Driver:
    """CUDA's driver, or HIP's runtime.

    Args:
        library: a ctypes library, or an object like one.
        hip: whether it is HIP's.
    """

    def __init__(self, library: Any, *, hip: bool) -> None:
        self.hip = hip
        self._library = library

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function.

        Args:
            name: CUDA's.
            arguments: as its header says.

        Raises:
            HarnessError: if it has no such function.
            DriverError: with the name of the error that it returns.
        """
        own = _OF_HIP.get(name, f"hip{name[2:]}") if self.hip else name
        function = getattr(self._library, own, None)
        if function is None:
            fix = "update ROCm" if self.hip else "update the driver"
            raise HarnessError(f"the GPU's driver has no {own}", fix=fix)
        function.argtypes, function.restype = _ARGUMENTS[name], c_int
        if error := function(*arguments):
            raise DriverError(own, self._name_of(error))

    def made(self, name: str, *arguments: Any) -> int:
        """Call a function that writes a handle or an address, and return that."""
        found = c_void_p()
        self.call(name, ctypes.byref(found), *arguments)
        return found.value or 0

    def _name_of(self, error: int) -> str:
        if self.hip:
            ask = self._library.hipGetErrorName
            ask.argtypes, ask.restype = (c_int,), c_char_p
            text = ask(error)
        else:
            ask, told = self._library.cuGetErrorName, c_char_p()
            ask.argtypes, ask.restype = (c_int, POINTER(c_char_p)), c_int
            ask(error, ctypes.byref(told))
            text = told.value
        return text.decode() if text else str(error)


class VirtualMemory:
    """Address space and physical memory of one device, taken and joined apart.

    Sizes and addresses are in bytes, sizes multiples of the granularity. Every
    method raises `DriverError`.

    Args:
        index: the device, as torch counts.
        driver: its driver.
    """

    def __init__(self, index: int, driver: Driver) -> None:
        self._driver = driver
        self._location = Location(_LOCATION_TYPE_DEVICE, index)
        self._properties = Properties(
            type=_ALLOCATION_TYPE_PINNED, location=self._location
        )

    def granularity(self) -> int:
        """Return what sizes and mapped addresses have to be multiples of."""
        found = c_size_t()
        self._driver.call(
            "cuMemGetAllocationGranularity",
            ctypes.byref(found), ctypes.byref(self._properties), _GRANULARITY_MINIMUM,
        )  # fmt: skip
        return found.value

    def reserve(self, nbytes: int) -> int:
        """Return the address of a range in which every access faults as yet."""
        return self._driver.made("cuMemAddressReserve", nbytes, 0, None, 0)

    def free(self, address: int, nbytes: int) -> None:
        """Give a whole reserved range back; nothing may be mapped in it."""
        self._driver.call("cuMemAddressFree", address, nbytes)

    def create(self, nbytes: int) -> int:
        """Return a handle of physical memory on the device."""
        properties = ctypes.byref(self._properties)
        return self._driver.made("cuMemCreate", nbytes, properties, 0)

    def release(self, handle: int) -> None:
        """Give a handle back; the memory stays as long as it is mapped."""
        self._driver.call("cuMemRelease", handle)

    def map(self, address: int, nbytes: int, handle: int) -> None:
        """Put physical memory, all of it, under a part of a reserved range."""
        self._driver.call("cuMemMap", address, nbytes, 0, handle, 0)

    def unmap(self, address: int, nbytes: int) -> None:
        """Take what was mapped by one call from under its range."""
        self._driver.call("cuMemUnmap", address, nbytes)

    def set_access(self, address: int, nbytes: int) -> None:
        """Let the device read and write a mapped range."""
        access = ctypes.byref(Access(self._location, _READ_WRITE))
        self._driver.call("cuMemSetAccess", address, nbytes, access, 1)


@cache
def load_driver() -> Driver:
    """Return the driver under torch's build.

    Raises:
        HarnessError: if it cannot be loaded; says what is missing.
    """
    hip = bool(torch.version.hip)
    name = "libamdhip64.so" if hip else "libcuda.so.1"
    found = name
    # torch's wheels for AMD bring the runtime, under its full name.
    with contextlib.suppress(OSError):
        mapped = Path("/proc/self/maps").read_text().split()
        found = next((word for word in mapped if f"/{name}" in word), name)
    try:
        return Driver(ctypes.CDLL(found), hip=hip)
    except OSError as error:
        fix = "install ROCm's HIP runtime" if hip else "install NVIDIA's driver"
        raise HarnessError(f"{name} cannot be loaded: {error}", fix=fix) from None


# The CUDA or HIP runtime that torch itself uses, for what torch does not expose.
#
# Above all launches that failed unseen: a call that returned and left an error behind.
#
# The last error is kept by each copy of the runtime: only the one that torch loaded
# holds what torch's next launch would raise.

# In this order: a symbol asked of torch's own library is looked for in what that
# library depends on, whichever other copies are loaded. Each with the prefix of its
# functions.
_LIBRARIES: Final = (
    ("libtorch_cuda.so", "cuda"),
    ("libtorch_hip.so", "hip"),
    ("libcudart.so", "cuda"),
    ("libamdhip64.so", "hip"),
)
_MAPS: Final = Path("/proc/self/maps")

# Values of cudaError_t (driver_types.h of the CUDA toolkit); hipError_t shares them.
INVALID_VALUE: Final = 1
# What only a launch, or the query for its kernel, leaves: invalid configuration,
# missing configuration, invalid device function, no kernel image or invalid image for
# the device, invalid or unsupported PTX, no compiler for it, out of resources,
# cooperative launch too large.
LAUNCH_ERRORS: Final = frozenset({9, 52, 98, 200, 209, 218, 221, 222, 701, 720})


class Runtime:
    """A few functions of a loaded runtime library.

    Errors are numbers; those that concern launches are the same for CUDA and HIP.
    """

    def __init__(self, library: Any, prefix: str) -> None:
        """Look the functions up.

        Raises:
            AttributeError: if the library has no such functions.
        """
        self.library = library
        self._peek = getattr(library, f"{prefix}PeekAtLastError")
        self._take = getattr(library, f"{prefix}GetLastError")
        self._name = getattr(library, f"{prefix}GetErrorName")
        self._text = getattr(library, f"{prefix}GetErrorString")
        self._fill = getattr(library, f"{prefix}MemsetAsync")
        self._name.restype = self._text.restype = ctypes.c_char_p
        self._fill.argtypes = [
            ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p
        ]  # fmt: skip

    def last_error(self) -> int:
        """Return the error that is pending in this thread, 0 for none; it stays."""
        return int(self._peek())

    def clear_error(self) -> int:
        """Forget the pending error and return it; one that lasts comes back."""
        return int(self._take())

    def name(self, code: int) -> str:
        """Return what the runtime calls an error."""
        return (self._name(code) or b"").decode(errors="replace")

    def text(self, code: int) -> str:
        """Return what an error means, in the runtime's words."""
        return (self._text(code) or b"").decode(errors="replace")

    def fill(self, address: int, value: int, nbytes: int, stream: int) -> None:
        """Have a stream set bytes of device memory.

        Args:
            address: of the first byte.
            value: of each byte, 0 to 255.
            nbytes: how many.
            stream: its handle.

        Raises:
            HarnessError: if the runtime refuses.
        """
        code = int(self._fill(address, value, nbytes, stream))
        if code:
            self.clear_error()
            raise HarnessError(f"memory cannot be filled: {self.name(code)}")


def take_unchecked(runtime: Runtime | None) -> UncheckedLaunch | None:
    """Return the failed launch that the call just made left behind, and clear it.

    Other errors are cleared too: a library that asks whether an event has come leaves
    "not ready", and torch itself clears that.
    """
    if runtime is None or not (code := runtime.last_error()):
        return None
    runtime.clear_error()
    if code != INVALID_VALUE and code not in LAUNCH_ERRORS:
        return None
    return UncheckedLaunch(
        runtime.name(code), runtime.text(code), code != INVALID_VALUE
    )


def forget_errors(runtime: Runtime | None) -> None:
    """Clear what an earlier call left, so that the next one is not reported for it."""
    if runtime is not None and runtime.last_error():
        runtime.clear_error()


@cache
def torch_runtime() -> Runtime | None:
    """Return the runtime behind torch's GPUs, None where it has none or hides it."""
    try:
        return find_runtime(_MAPS.read_text(), _open)
    except OSError:
        return None


def find_runtime(maps: str, load: Callable[[str], Any]) -> Runtime | None:
    """Return the first runtime among a process's mapped files, None without one.

    Args:
        maps: the text of /proc/self/maps.
        load: opens a library that is loaded already.
    """
    paths = dict.fromkeys(
        line[line.index("/") :] for line in maps.splitlines() if "/" in line
    )
    for wanted, prefix in _LIBRARIES:
        for path in paths:
            if os.path.basename(path).startswith(wanted):
                try:
                    return Runtime(load(path), prefix)
                except (OSError, AttributeError):
                    continue
    return None


def _open(path: str) -> ctypes.CDLL:
    return ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
