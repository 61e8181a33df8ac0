"""Machine code on a device: loaded, and its functions launched, on CUDA and on HIP."""

import contextlib
import ctypes
from collections.abc import Sequence
from ctypes import POINTER, c_char_p, c_int, c_uint, c_void_p
from functools import cache
from typing import Any, Final, Protocol

import torch

from kfuzz.core.errors import HarnessError
from kfuzz.execution.device import nvrtc
from kfuzz.execution.device.backends import backend_of

Sizes = int | Sequence[int]


class Function(Protocol):
    """A kernel on one device."""

    def __call__(
        self,
        grid: Sizes,
        block: Sizes,
        args: Sequence[Any],
        shared: int = 0,
        stream: Any = None,
    ) -> None:
        """Launch it; raises `HarnessError` with the driver's word where it refuses.

        Args:
            grid: blocks, in one to three dimensions.
            block: threads of a block, likewise.
            args: ctypes values.
            shared: bytes of dynamic shared memory.
            stream: torch's current stream by default.
        """


class Device(Protocol):
    """What loads code for one device."""

    hip: bool

    def architecture(self) -> str:
        """Return what compilers call its processor."""

    def load(self, code: bytes) -> Any:
        """Return code on the device; raises `HarnessError`."""

    def function(self, module: Any, name: str) -> Function:
        """Return one of its functions; raises `HarnessError` if there is none."""


def device_for(device: torch.device) -> Device:
    """Return what loads code for a device.

    Raises:
        BuildError: if CUDA C++ does not run there: no kernel is to blame.
    """
    return backend_of(device).loader(device)


class CudaDevice:
    """An NVIDIA GPU."""

    hip = False

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def architecture(self) -> str:
        """Return for example "sm_90"."""
        major, minor = torch.cuda.get_device_capability(self._device)
        return f"sm_{major}{minor}"

    def load(self, code: bytes) -> Any:
        """Return code on the device."""
        return nvrtc.loaded(code, self._device)

    def function(self, module: Any, name: str) -> Function:
        """Return one of its functions."""
        return nvrtc.function(module, name, self._device)


# Name -> its arguments: hip_runtime_api.h.
_CALLS: Final[dict[str, tuple[Any, ...]]] = {
    "hipModuleLoadData": (POINTER(c_void_p), c_void_p),
    "hipModuleGetFunction": (POINTER(c_void_p), c_void_p, c_char_p),
    "hipModuleLaunchKernel": (
        c_void_p, *[c_uint] * 6, c_uint, c_void_p, POINTER(c_void_p), c_void_p,
    ),
}  # fmt: skip


class HipDevice:
    """An AMD GPU, through HIP's runtime. It has been run on none.

    Args:
        device: as torch counts.
        library: HIP's runtime; the one that torch has loaded by default.
    """

    hip = True

    def __init__(self, device: torch.device, library: Any = None) -> None:
        self.device = device
        self._library = _hip() if library is None else library
        for name, kinds in _CALLS.items():
            call = getattr(self._library, name)
            call.argtypes, call.restype = kinds, c_int
        self._library.hipGetErrorName.argtypes = (c_int,)
        self._library.hipGetErrorName.restype = c_char_p

    def architecture(self) -> str:
        """Return for example "gfx90a"."""
        told = torch.cuda.get_device_properties(self.device)
        return str(told.gcnArchName).partition(":")[0]

    def load(self, code: bytes) -> Any:
        """Return code on the device."""
        module = c_void_p()
        with self._current():
            self.call("hipModuleLoadData", ctypes.byref(module), code)
        return module

    def function(self, module: Any, name: str) -> Function:
        """Return one of its functions."""
        made = c_void_p()
        with self._current():
            self.call("hipModuleGetFunction", ctypes.byref(made), module, name.encode())
        return HipFunction(self, made)

    def call(self, name: str, *arguments: Any) -> None:
        """Call the runtime.

        Raises:
            HarnessError: with the name of the error that it returns.
        """
        error = getattr(self._library, name)(*arguments)
        if error:
            text = self._library.hipGetErrorName(error)
            said = text.decode() if text else str(error)
            raise HarnessError(f"{name} says {said}")

    def launch(self, function: c_void_p, sizes: Sequence[int], shared: int,
               stream: int, values: Sequence[Any]) -> None:  # fmt: skip
        """Launch a function whose arguments are ctypes values."""
        addresses = (c_void_p * max(len(values), 1))(*map(ctypes.addressof, values))
        with self._current():
            self.call(
                "hipModuleLaunchKernel", function, *sizes, shared, c_void_p(stream),
                addresses, None,
            )  # fmt: skip

    def _current(self) -> Any:
        if backend_of(self.device).has.on_host:
            return contextlib.nullcontext()
        return torch.cuda.device(self.device)


class HipFunction:
    """One function on an AMD GPU."""

    def __init__(self, device: HipDevice, function: c_void_p) -> None:
        self._device, self._function = device, function

    def __call__(
        self,
        grid: Sizes,
        block: Sizes,
        args: Sequence[Any],
        shared: int = 0,
        stream: Any = None,
    ) -> None:
        """Launch it."""
        on = (
            torch.cuda.current_stream(self._device.device) if stream is None else stream
        )
        sizes = (*nvrtc.three(grid), *nvrtc.three(block))
        self._device.launch(self._function, sizes, shared, on.cuda_stream, args)


@cache
def _hip() -> Any:
    from kfuzz.execution.device.hip import loaded

    return loaded()
