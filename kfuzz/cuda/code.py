"""Machine code on a device: loaded, and its functions launched, on CUDA and on HIP."""

import ctypes
import os
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

import torch

from kfuzz.cuda.arguments import packed
from kfuzz.cuda.compilers import Nvrtc, Unit, bindings
from kfuzz.cuda.driver import Driver, load_driver
from kfuzz.cuda.prototypes import prototype

Sizes = int | Sequence[int]
Kernel = Callable[..., None]

DEFAULT_SHARED_BYTES: Final = 48 * 1024
"""Dynamic shared memory that a launch may have without asking for more."""

# CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES of cuda.h.
_MOST_SHARED_BYTES: Final = 8


class Function:
    """A kernel on one device."""

    def __init__(self, driver: Driver, device: torch.device, handle: int) -> None:
        self._driver, self._device, self._handle = driver, device, handle
        self._granted = DEFAULT_SHARED_BYTES

    def __call__(
        self,
        grid: Sizes,
        block: Sizes,
        args: Sequence[Any],
        shared: int = 0,
        stream: torch.cuda.Stream | None = None,
    ) -> None:
        """Launch it; what it does on the device shows at the next synchronisation.

        Args:
            grid: blocks, in one to three dimensions.
            block: threads of a block, likewise.
            args: ctypes values.
            shared: bytes of dynamic shared memory.
            stream: torch's current stream by default.

        Raises:
            DriverError: with the driver's word where it refuses.
        """
        addresses = (ctypes.c_void_p * max(len(args), 1))(*map(ctypes.addressof, args))
        with torch.cuda.device(self._device):
            # HIP grants what a device has without being asked.
            if shared > self._granted and not self._driver.hip:
                wanted = (self._handle, _MOST_SHARED_BYTES, shared)
                self._driver.call("cuFuncSetAttribute", *wanted)
                self._granted = shared
            on = torch.cuda.current_stream(self._device) if stream is None else stream
            sizes = (*three(grid), *three(block), shared)
            launch = (self._handle, *sizes, on.cuda_stream, addresses, None)
            self._driver.call("cuLaunchKernel", *launch)


class Device:
    """A GPU that loads code; what is loaded stays as long as the process.

    Args:
        device: as torch counts, with its index.
        driver: the one under torch's build by default.

    Raises:
        HarnessError: if the driver cannot be loaded.
    """

    def __init__(self, device: torch.device, driver: Driver | None = None) -> None:
        self._device = device
        self._driver = load_driver() if driver is None else driver
        self.hip = self._driver.hip

    def architecture(self) -> str:
        """Return what compilers call its processor: "sm_90", "gfx90a"."""
        if self.hip:
            told = torch.cuda.get_device_properties(self._device)
            return str(told.gcnArchName).partition(":")[0]
        major, minor = torch.cuda.get_device_capability(self._device)
        return f"sm_{major}{minor}"

    def load(self, code: bytes) -> int:
        """Return code on the device; raises `DriverError`."""
        with torch.cuda.device(self._device):
            torch.cuda.synchronize()  # makes the device's context current, torch's own
            return self._driver.made("cuModuleLoadData", code)

    def function(self, module: int, name: str) -> Function:
        """Return one of its functions; raises `DriverError` if there is none."""
        with torch.cuda.device(self._device):
            handle = self._driver.made("cuModuleGetFunction", module, name.encode())
        return Function(self._driver, self._device, handle)


def compiled(source: str, name: str, device: torch.device) -> Kernel:
    """Return a function of CUDA C++ source, compiled once for a process and device.

    It is launched as `Function` is, with tensors and Python's numbers of the types that
    it declares.

    It is kept in memory alone: the cache on disk holds what users' sources compile to.

    Args:
        source: the text.
        name: the function, declared `extern "C" __global__`.
        device: where it is to run.

    Raises:
        BuildError: with the compiler's words.
        HarnessError: where there is no NVIDIA GPU, or NVRTC is missing.
    """
    bindings()
    index = torch.cuda.current_device() if device.index is None else device.index
    return _kernel(os.getpid(), index, source, name)


# Kept, since looking one up waits for the device.
@cache
def _kernel(process: int, index: int, source: str, name: str) -> Kernel:
    place = Device(torch.device("cuda", index))
    made = Nvrtc().build(Unit(source, "kernel.cu"), place.architecture())
    function = place.function(place.load(made.code), name)
    declared = prototype(source, name)

    def launch(grid: Sizes, block: Sizes, values: Sequence[Any], *others: Any) -> None:
        function(grid, block, packed(declared, values, name), *others)

    return launch


def largest_shared(device: torch.device) -> int:
    """Return the most bytes of shared memory that a block of a GPU can ask for."""
    told: Any = torch.cuda.get_device_properties(device)
    return int(getattr(told, "shared_memory_per_block_optin", DEFAULT_SHARED_BYTES))


def three(sizes: Sizes) -> tuple[int, int, int]:
    """Return sizes in three dimensions."""
    given = (sizes,) if isinstance(sizes, int) else tuple(sizes)
    x, y, z = (*given, 1, 1)[:3]
    return x, y, z
