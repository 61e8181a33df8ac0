"""CUDA C++ compiled for the present device by NVRTC, and launched on torch's streams.

Through cuda-bindings, which torch's CUDA builds bring. Nothing is imported before it is
asked for.
"""

import ctypes
import os
import sysconfig
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from kfuzz.core.errors import HarnessError

DEFAULT_SHARED_BYTES: Final = 48 * 1024
"""Dynamic shared memory that a launch may have without asking for more."""

_FIX: Final = "pip install cuda-bindings of the CUDA version that torch was built for"

_MODULES: Final = ("cuda.bindings.driver", "cuda.bindings.nvrtc")

# The common base of c_int and its kin has no public name.
_C_VALUES: Final = (ctypes.c_int.__base__ or object, ctypes.Structure, ctypes.Array)

Grid = int | Sequence[int]


class CompileError(HarnessError):
    """CUDA C++ does not compile.

    Attributes:
        log: what the compiler printed.
    """

    def __init__(self, what: str, *, log: str, where: str = "") -> None:
        self.log = log
        super().__init__(what, where=where, fix=log)


class Kernel:
    """One `extern "C" __global__` function on one device."""

    def __init__(self, function: Any, name: str, device: torch.device) -> None:
        self.name = name
        self.device = device
        self._function = function
        self._granted = DEFAULT_SHARED_BYTES

    def __call__(
        self,
        grid: Grid,
        block: Grid,
        args: Sequence[Any],
        shared: int = 0,
        stream: torch.cuda.Stream | None = None,
    ) -> None:
        """Launch it; what it does on the device shows at the next synchronisation.

        Args:
            grid: blocks, in one to three dimensions.
            block: threads of a block, likewise.
            args: tensors by their address, bool, int (32 bits) and float as C's; any
                other type as a ctypes value.
            shared: bytes of dynamic shared memory.
            stream: torch's current stream by default.

        Raises:
            HarnessError: if the launch is refused.
        """
        driver, _ = _bindings()
        with torch.cuda.device(self.device):
            if shared > self._granted:
                wanted = driver.CUfunction_attribute
                attribute = wanted.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                _done(driver.cuFuncSetAttribute(self._function, attribute, shared))
                self._granted = shared
            values = [packed(a) for a in args]
            addresses = (ctypes.c_void_p * max(len(values), 1))()
            for number, value in enumerate(values):
                addresses[number] = ctypes.addressof(value)
            on = torch.cuda.current_stream(self.device) if stream is None else stream
            _done(
                driver.cuLaunchKernel(
                    self._function,
                    *three(grid),
                    *three(block),
                    shared,
                    driver.CUstream(on.cuda_stream),
                    ctypes.addressof(addresses),
                    0,
                )
            )


def compiled(
    source: str,
    name: str,
    device: torch.device | str,
    options: tuple[str, ...] = (),
) -> Kernel:
    """Return a function of CUDA C++ source, compiled once for a process and device.

    Args:
        source: the text of the file.
        name: the function, declared `extern "C" __global__`.
        device: where it is to run.
        options: for the compiler, e.g. `("--std=c++17", *include_options())`.

    Raises:
        CompileError: with the compiler's log.
        HarnessError: where there is no NVIDIA GPU, or cuda-bindings are missing.
    """
    _bindings()
    on = torch.device(device)
    index = torch.cuda.current_device() if on.index is None else on.index
    return _kernel(os.getpid(), index, source, name, options)


def include_options() -> tuple[str, ...]:
    """Return options for the toolkit's headers, as far as they are found."""
    purelib = Path(sysconfig.get_path("purelib"))
    folders = [*purelib.glob("nvidia/cu*/include"), Path("/usr/local/cuda/include")]
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            folders.insert(0, Path(os.environ[variable]) / "include")
    return tuple(
        f"--include-path={folder}"
        for folder in folders
        if (folder / "cuda_fp16.h").is_file()
    )


def largest_shared(device: torch.device) -> int:
    """Return the most bytes of shared memory that a block can ask for.

    Raises:
        HarnessError: where there is no NVIDIA GPU, or cuda-bindings are missing.
    """
    index = torch.cuda.current_device() if device.index is None else device.index
    return _largest_shared(index)


@cache
def _largest_shared(index: int) -> int:
    driver, _ = _bindings()
    asked = driver.CUdevice_attribute
    attribute = asked.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
    with torch.cuda.device(index):
        torch.cuda.synchronize()  # makes the device's context current, torch's own
        handle = _done(driver.cuCtxGetDevice())
        return int(_done(driver.cuDeviceGetAttribute(attribute, handle)))


def packed(value: Any) -> Any:
    """Return an argument as the ctypes value that a launch points to.

    Raises:
        HarnessError: if an int does not fit 32 bits, or the type has no C form here.
    """
    if isinstance(value, Tensor):
        return ctypes.c_void_p(value.data_ptr())
    if isinstance(value, bool):
        return ctypes.c_bool(value)
    if isinstance(value, int):
        if not -(1 << 31) <= value < 1 << 31:
            fix = "Pass it as ctypes.c_longlong, ctypes.c_uint or what the kernel takes"
            raise HarnessError(f"the argument {value} is no 32-bit int", fix=fix)
        return ctypes.c_int(value)
    if isinstance(value, float):
        return ctypes.c_float(value)
    if isinstance(value, _C_VALUES):
        return value
    raise HarnessError(f"a kernel takes no {type(value).__name__}")


@cache
def _kernel(
    process: int, index: int, source: str, name: str, options: tuple[str, ...]
) -> Kernel:
    device = torch.device("cuda", index)
    major, minor = torch.cuda.get_device_capability(device)
    module = _module(process, index, source, (f"sm_{major}{minor}", *options))
    return function(module, name, device)


@cache
def _module(process: int, index: int, source: str, options: tuple[str, ...]) -> Any:
    """Load what one source compiles to; it stays loaded as long as the process."""
    binary = cubin(source, options[0], options[1:])
    return loaded(binary, torch.device("cuda", index))


def cubin(source: str, architecture: str, options: tuple[str, ...] = ()) -> bytes:
    """Return CUDA C++ source as machine code; it needs the compiler and no GPU.

    Args:
        source: the text.
        architecture: e.g. "sm_90".
        options: for the compiler.

    Raises:
        CompileError: with the compiler's log.
        HarnessError: where the compiler is missing.
    """
    code, _ = built(source, architecture, options)
    return code


def built(
    source: str,
    architecture: str,
    options: Sequence[str] = (),
    *,
    file: str = "kernel.cu",
    expressions: Sequence[str] = (),
) -> tuple[bytes, dict[str, str]]:
    """Return CUDA C++ source as machine code, and what its functions are called there.

    Args:
        source: the text.
        architecture: e.g. "sm_90"; "" where the options name it.
        options: for the compiler.
        file: the name of the source in the compiler's messages.
        expressions: functions whose names in the code are asked for, as C++ names
            them: "softmax<float>"; that instantiates templates.

    Raises:
        CompileError: with the compiler's log.
        HarnessError: where the compiler is missing.
    """
    _, nvrtc = _bindings()
    try:
        program = _done(
            nvrtc.nvrtcCreateProgram(source.encode(), file.encode(), 0, None, None)
        )
    except RuntimeError as error:  # cuda-bindings are there, the library is not
        raise HarnessError(f"NVRTC cannot be loaded: {error}", fix=_FIX) from None
    try:
        flags = [f"--gpu-architecture={architecture}"] if architecture else []
        flags += options
        for expression in expressions:
            _done(nvrtc.nvrtcAddNameExpression(program, expression.encode()))
        given = [flag.encode() for flag in flags]
        [result] = nvrtc.nvrtcCompileProgram(program, len(given), given)
        if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            log = _log(nvrtc, program)
            raise CompileError("CUDA C++ does not compile", log=log)
        names = {
            expression: _done(
                nvrtc.nvrtcGetLoweredName(program, expression.encode())
            ).decode()
            for expression in expressions
        }
        size = _done(nvrtc.nvrtcGetCUBINSize(program))
        code = bytes(size)
        _done(nvrtc.nvrtcGetCUBIN(program, code))
        return code, names
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def version() -> str:
    """Return the compiler's version, for example "nvrtc 13.0".

    Raises:
        HarnessError: where the compiler is missing.
    """
    _, nvrtc = _bindings()
    try:
        result, major, minor = nvrtc.nvrtcVersion()
    except RuntimeError as error:
        raise HarnessError(f"NVRTC cannot be loaded: {error}", fix=_FIX) from None
    _done((result,))
    bindings = getattr(nvrtc, "__version__", "")
    return f"nvrtc {major}.{minor} {bindings}".strip()


def loaded(binary: bytes, device: torch.device | str) -> Any:
    """Return machine code loaded on a device; it stays as long as the process.

    Raises:
        HarnessError: if the driver refuses it.
    """
    driver, _ = _bindings()
    with torch.cuda.device(device):
        torch.cuda.synchronize()  # makes the device's context current, torch's own
        return _done(driver.cuModuleLoadData(binary))


def function(module: Any, name: str, device: torch.device) -> Kernel:
    """Return a function of what was loaded on a device.

    Raises:
        HarnessError: if there is none of the name.
    """
    driver, _ = _bindings()
    with torch.cuda.device(device):
        return Kernel(
            _done(driver.cuModuleGetFunction(module, name.encode())), name, device
        )


def _log(nvrtc: Any, program: Any) -> str:
    size = _done(nvrtc.nvrtcGetProgramLogSize(program))
    if size < 2:  # Python shares bytes of length 1: they must not be written to
        return ""
    text = bytes(size)
    _done(nvrtc.nvrtcGetProgramLog(program, text))
    return text.rstrip(b"\0").decode(errors="replace").strip()


@cache
def _bindings() -> tuple[Any, Any]:
    """Return the modules for the driver and for the compiler."""
    if torch.version.hip is not None:
        raise HarnessError("CUDA C++ runs on NVIDIA GPUs alone, this torch is for AMD")
    try:
        # By name: type checkers run where there is no such package.
        driver, nvrtc = map(import_module, _MODULES)
    except ImportError:
        what = "CUDA C++ cannot be compiled: cuda-bindings are not installed"
        raise HarnessError(what, fix=_FIX) from None
    return driver, nvrtc


def _done(answer: tuple[Any, ...]) -> Any:
    """Return what a call of the bindings gave.

    Raises:
        HarnessError: with the name of the error that it returned instead.
    """
    result, *values = answer
    if int(result):
        raise HarnessError(f"the CUDA driver or compiler says {result.name}")
    return values[0] if values else None


def three(sizes: Grid) -> tuple[int, int, int]:
    """Return sizes in three dimensions."""
    given = (sizes,) if isinstance(sizes, int) else tuple(sizes)
    x, y, z = (*given, 1, 1)[:3]
    return x, y, z
