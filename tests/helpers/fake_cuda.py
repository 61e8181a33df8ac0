"""A compiler of CUDA C++ and a device that stand in for those of a GPU."""

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kfuzz.core.errors import HarnessError
from kfuzz.cuda import compilers
from kfuzz.cuda.compilers import Binary, Unit
from kfuzz.execution.device.backends import DeviceBackend

Launched = Callable[[Sequence[int], Sequence[int], Sequence[Any]], None]


class FakeCompiler:
    """Takes every source but one with `oops` in it; its code is the text."""

    name = "fakecc"

    def __init__(self) -> None:
        self.built: list[Unit] = []

    def version(self) -> str:
        return "fakecc 1.0"

    def build(self, unit: Unit, architecture: str) -> Binary:
        self.built.append(unit)
        for number, line in enumerate(unit.text.splitlines(), 1):
            if "oops" in line:
                log = f"warning: old\n{unit.file}({number}): error: oops is undefined\n"
                raise compilers.failure(self.name, log, unit)
        return Binary(unit.text.encode(), {e: f"_Z{e}" for e in unit.expressions})


class FakeDevice:
    """Has functions of Python's under the names of kernels.

    Attributes:
        launches: name, grid, block, arguments and shared bytes of each launch.
    """

    def __init__(self, functions: dict[str, Launched]) -> None:
        self.functions = functions
        self.launches: list[tuple[str, Any, Any, list[Any], int]] = []

    def architecture(self) -> str:
        return "sm_90"

    def load(self, data: bytes) -> bytes:
        return data

    def function(self, module: bytes, name: str) -> Any:
        if name not in self.functions:
            raise HarnessError("the CUDA driver says CUDA_ERROR_NOT_FOUND")

        def launch(
            grid: Any, block: Any, args: Any, shared: int = 0, stream: Any = None
        ) -> None:
            self.launches.append((name, grid, block, list(args), shared))
            if 0 in grid:
                raise HarnessError("the CUDA driver says CUDA_ERROR_INVALID_VALUE")
            self.functions[name](grid, block, args)

        return launch


def install(
    monkeypatch: pytest.MonkeyPatch, folder: Path, functions: dict[str, Launched]
) -> tuple[FakeCompiler, FakeDevice]:
    """Have sources be built and launched here, and builds be kept in a folder."""
    compiler, device = FakeCompiler(), FakeDevice(functions)
    monkeypatch.setenv("KFUZZ_CACHE", str(folder))
    monkeypatch.setattr(compilers, "chosen", lambda name: [compiler])
    monkeypatch.setattr(DeviceBackend, "loader", lambda self, place: device)
    return compiler, device


def floats(address: ctypes.c_void_p, count: int) -> Any:
    """Return the memory at an address as an array of floats."""
    return (ctypes.c_float * count).from_address(address.value or 0)
