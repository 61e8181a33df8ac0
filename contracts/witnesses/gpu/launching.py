"""CUDA C++ of witnesses: compiled on first use, launched with or without a check."""

import ctypes
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from kfuzz.core.errors import HarnessError
from kfuzz.execution.device.nvrtc import Kernel, compiled, cubin, packed
from kfuzz.execution.device.runtime import find_runtime

_MAPS: Final = Path("/proc/self/maps")


class Program:
    """CUDA C++ source, functions of which take pointers and 64-bit integers."""

    def __init__(self, source: str) -> None:
        self.source = source

    def launch(
        self,
        name: str,
        grid: Sequence[int],
        block: Sequence[int],
        arguments: Sequence[Tensor | int],
        *,
        checked: bool = True,
    ) -> None:
        """Launch a function on the current stream of its first argument's device.

        Args:
            name: of the function, declared `extern "C" __global__`.
            grid: blocks, in one to three dimensions.
            block: threads of a block, likewise.
            arguments: the first one is a tensor.
            checked: whether a refused launch raises; else it is as after `<<<...>>>`
                whose error nobody asks for.

        Raises:
            HarnessError: if it cannot be compiled, or is refused where that is asked.
        """
        values = [ctypes.c_longlong(a) if isinstance(a, int) else a for a in arguments]
        device = next(a.device for a in arguments if isinstance(a, Tensor))
        # Kept, since looking one up waits for the device, which would hide that a
        # launch does not.
        if checked:
            _checked(os.getpid(), device, self, name)(grid, block, values)
            return
        with torch.cuda.device(device):
            function = _function(os.getpid(), torch.cuda.current_device(), self, name)
            stream = torch.cuda.current_stream(device).cuda_stream
            _launched(function, grid, block, [packed(v) for v in values], stream)


class _Dim3(ctypes.Structure):
    _fields_ = [(axis, ctypes.c_uint) for axis in "xyz"]


def _launched(
    function: ctypes.c_void_p,
    grid: Sequence[int],
    block: Sequence[int],
    values: Sequence[Any],
    stream: int,
) -> None:
    """Launch through the runtime, which keeps the error of a launch that it refuses."""
    addresses = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
    launch = _runtime().cudaLaunchKernel
    launch.argtypes = [
        ctypes.c_void_p, _Dim3, _Dim3, ctypes.c_void_p, ctypes.c_size_t,
        ctypes.c_void_p,
    ]  # fmt: skip
    shapes = [_Dim3(*(*sizes, 1, 1)[:3]) for sizes in (grid, block)]
    launch(function, *shapes, addresses, 0, stream)


@cache
def _checked(process: int, device: torch.device, program: Program, name: str) -> Kernel:
    return compiled(program.source, name, device)


@cache
def _function(process: int, index: int, program: Program, name: str) -> ctypes.c_void_p:
    """Return a function as the runtime's own launches take it.

    Raises:
        HarnessError: if it cannot be compiled or loaded.
    """
    torch.cuda.synchronize(index)  # makes torch's context current
    library = _library(process, index, program)
    function = ctypes.c_void_p()
    code = _runtime().cudaLibraryGetKernel(
        ctypes.byref(function), library, name.encode()
    )
    if code:
        raise HarnessError(f"the CUDA runtime finds no kernel {name}: error {code}")
    return function


@cache
def _library(process: int, index: int, program: Program) -> ctypes.c_void_p:
    major, minor = torch.cuda.get_device_capability(index)
    binary, library = cubin(program.source, f"sm_{major}{minor}"), ctypes.c_void_p()
    code = _runtime().cudaLibraryLoadData(
        ctypes.byref(library), binary, None, None, 0, None, None, 0
    )
    if code:
        raise HarnessError(f"the CUDA runtime loads no kernel: error {code}")
    return library


@cache
def _runtime() -> Any:
    """Return the runtime library that torch itself uses.

    Raises:
        HarnessError: if it is not found, or is older than CUDA 12.8.
    """
    opened: list[ctypes.CDLL] = []

    def load(path: str) -> ctypes.CDLL:
        opened.append(ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY))
        return opened[-1]

    found = find_runtime(_MAPS.read_text(), load)
    if found is None or not hasattr(opened[-1], "cudaLibraryLoadData"):
        what = "the CUDA runtime that torch uses takes no kernels at run time"
        raise HarnessError(what, fix="use a torch built for CUDA 12.8 or later")
    return opened[-1]
