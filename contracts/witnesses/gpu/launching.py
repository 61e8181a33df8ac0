"""CUDA C++ of witnesses: compiled on first use, launched with or without a check."""

import ctypes
import os
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from kfuzz.core.errors import HarnessError
from kfuzz.cuda.code import Device, compiled, packed, prototype, three
from kfuzz.cuda.compilers import Nvrtc, Unit
from kfuzz.cuda.driver import torch_runtime


class Program:
    """CUDA C++ source, functions of which take tensors and integers."""

    def __init__(self, source: str) -> None:
        self.source = source

    def launch(
        self, name: str, grid: Sequence[int], block: Sequence[int], arguments:
        Sequence[Tensor | int], *, checked: bool = True, shared: int = 0,
    ) -> None:  # fmt: skip
        """Launch a function on the current stream of its first argument's device.

        Args:
            name: of the function, declared `extern "C" __global__`.
            grid: blocks, in one to three dimensions.
            block: threads of a block, likewise.
            arguments: the first one is a tensor.
            checked: whether a refused launch raises; else it is as after `<<<...>>>`
                whose error nobody asks for.
            shared: bytes of dynamic shared memory.

        Raises:
            HarnessError: if it cannot be compiled, or is refused where that is asked.
        """
        device = next(a.device for a in arguments if isinstance(a, Tensor))
        if checked:
            compiled(self.source, name, device)(grid, block, arguments, shared)
            return
        values = packed(prototype(self.source, name), arguments, name)
        with torch.cuda.device(device):
            function = _function(os.getpid(), torch.cuda.current_device(), self, name)
            stream = torch.cuda.current_stream(device).cuda_stream
            _launched(_runtime(), function, grid, block, values, shared, stream)


class _Dim3(ctypes.Structure):
    _fields_ = [(axis, ctypes.c_uint) for axis in "xyz"]


def _launched(
    runtime: Any, function: ctypes.c_void_p, grid: Sequence[int], block: Sequence[int],
    values: Sequence[Any], shared: int, stream: int,
) -> None:  # fmt: skip
    """Launch through the runtime, which keeps the error of a launch that it refuses."""
    addresses = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
    launch = runtime.cudaLaunchKernel
    launch.argtypes = [
        ctypes.c_void_p, _Dim3, _Dim3, ctypes.c_void_p, ctypes.c_size_t,
        ctypes.c_void_p,
    ]  # fmt: skip
    shapes = [_Dim3(*three(sizes)) for sizes in (grid, block)]
    launch(function, *shapes, addresses, shared, stream)


# Kept, since looking one up waits for the device, which would hide that a launch does
# not.
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
    architecture = Device(torch.device("cuda", index)).architecture()
    binary = Nvrtc().build(Unit(program.source, "kernel.cu"), architecture).code
    library = ctypes.c_void_p()
    code = _runtime().cudaLibraryLoadData(
        ctypes.byref(library), binary, None, None, 0, None, None, 0
    )
    if code:
        raise HarnessError(f"the CUDA runtime loads no kernel: error {code}")
    return library


def _runtime() -> Any:
    """Return the runtime library that torch itself uses.

    Raises:
        HarnessError: if it is not found, or is older than CUDA 12.8.
    """
    found = torch_runtime()
    if found is None or not hasattr(found.library, "cudaLibraryLoadData"):
        what = "the CUDA runtime that torch uses takes no kernels at run time"
        raise HarnessError(what, fix="use a torch built for CUDA 12.8 or later")
    return found.library
