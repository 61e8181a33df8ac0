"""What a launch is compiled to for a GPU that is not here, and whether that fits it."""

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kfuzz.core.errors import UsageError, suggestion
from kfuzz.execution.launches.capture import (
    ConstArgument,
    IntArgument,
    Launch,
    TensorArgument,
)
from kfuzz.execution.processes.child import OwnProcess, end, served

# GPUs that kernels are compiled for without running there, and what these allow.

KIB: Final = 1024
THREADS: Final = 1024
"""Most threads of a block, on all of them."""
SIMDS: Final = 4
"""Of a compute unit, or of a pair of RDNA's: a block's waves are spread among them."""


@dataclass(frozen=True)
class GpuTarget:
    """One architecture.

    Attributes:
        name: "gfx942" or "sm_90".
        backend: Triton's name of it, "hip" or "cuda".
        wave: threads of a wave or warp.
        shared: bytes of shared memory (LDS) that one block may have.
        registers: vector registers of one SIMD, by lane; 0 where the assembler holds a
            kernel to what it may have.
        addressable: those of them that one wave can name.
    """

    name: str
    backend: str
    wave: int
    shared: int
    registers: int = 0
    addressable: int = 0

    @property
    def arch(self) -> str | int:
        """What Triton calls it."""
        number = self.name.removeprefix("sm_")
        return int(number) if self.backend == "cuda" else self.name

    def registers_of(self, waves: int) -> int:
        """Return how many registers a lane may have in a block of so many waves."""
        return min(self.registers // -(-waves // SIMDS), self.addressable)


def _cdna(name: str, shared: int) -> GpuTarget:
    return GpuTarget(name, "hip", 64, shared * KIB, 512, 512)


def _rdna(name: str) -> GpuTarget:
    return GpuTarget(name, "hip", 32, 64 * KIB, 1536, 256)


def _nvidia(name: str, shared: int) -> GpuTarget:
    return GpuTarget(name, "cuda", 32, shared * KIB)


# NVIDIA: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability",
# maximum shared memory per thread block. AMD: LDS and vector registers of the table
# "Accelerator and GPU hardware specifications" of ROCm's documentation; LDS of one
# workgroup of RDNA is 64 KiB of the 128 KiB of a WGP. A SIMD of CDNA has 512 vector
# registers by lane, accumulation registers among them; one of RDNA 3 and 4 has 1,536
# for waves of 32 lanes, and a wave names 256 of them.
GPU_TARGETS: Final = {
    target.name: target
    for target in (
        _nvidia("sm_80", 163), _nvidia("sm_86", 99), _nvidia("sm_89", 99),
        _nvidia("sm_90", 227), _nvidia("sm_100", 227), _nvidia("sm_120", 99),
        _cdna("gfx90a", 64), _cdna("gfx942", 64), _cdna("gfx950", 160),
        _rdna("gfx1100"), _rdna("gfx1201"),
    )
}  # fmt: skip


def gpu_targets(names: Iterable[str], where: str) -> tuple[str, ...]:
    """Return names of targets in their order, each once.

    Raises:
        UsageError: on a name that is not known.
    """
    found = tuple(dict.fromkeys(name.strip() for name in names if name.strip()))
    for name in found:
        if name not in GPU_TARGETS:
            raise UsageError(
                f"unknown GPU target {name!r}",
                where=where,
                fix=suggestion(name, GPU_TARGETS),
            )
    return found


# What Triton's runtime specialises an integer or a pointer by.
_ALIGNED: Final = 16
_VECTOR_REGISTERS: Final = re.compile(r"^\s*\.vgpr_count:\s*(\d+)", re.MULTILINE)


class NotCompiledError(Exception):
    """Triton does not compile a kernel; the message is its last line."""


class UnknownTargetError(Exception):
    """This Triton has no backend for a GPU."""


def source_of(
    function: Any, launch: Launch, *, integers: str = "", specialised: bool = False
) -> ASTSource:
    """Return a launch's kernel as Triton's compiler takes it.

    Args:
        function: `triton.runtime.jit.JITFunction`.
        launch: how it is launched.
        integers: type of the integers that have none declared: "i32", "i64"; by
            default as each is launched.
        specialised: whether integers are specialised as Triton's launches do.

    Raises:
        NotCompiledError: on an argument that only its launch can describe.
    """
    signature: dict[str, str] = {}
    constants: dict[tuple[int, ...], Any] = {}
    attributes: dict[tuple[int, ...], list[list[Any]]] = {}
    for place, (name, argument) in enumerate(launch.arguments.items()):
        match argument:
            case ConstArgument():
                signature[name], constants[(place,)] = "constexpr", argument.value
                continue
            case TensorArgument() if argument.block is not None:
                raise NotCompiledError("a tensor descriptor made on the host")
            case IntArgument() if argument.declared or not integers:
                signature[name] = argument.type
            case IntArgument():
                signature[name] = integers
            case _:
                signature[name] = argument.type
        if isinstance(argument, TensorArgument):
            if argument.aligned:
                attributes[(place,)] = [["tt.divisibility", _ALIGNED]]
        elif isinstance(argument, IntArgument) and specialised:
            if argument.value == 1 and not argument.declared:
                signature[name], constants[(place,)] = "constexpr", 1
            elif argument.value % _ALIGNED == 0:
                attributes[(place,)] = [["tt.divisibility", _ALIGNED]]
    return ASTSource(function, signature, constants, attributes)


def misfit(source: ASTSource, options: Mapping[str, Any], target: GpuTarget) -> str:
    """Compile a kernel for a GPU; return what of it does not fit, "" if all does.

    Args:
        source: of a launch, specialised.
        options: of that launch.
        target: the GPU, which need not be here.

    Raises:
        NotCompiledError: if Triton does not compile it.
        UnknownTargetError: if this Triton knows no such GPU.
    """
    import triton

    there = GPUTarget(target.backend, target.arch, target.wave)
    try:
        triton.compiler.make_backend(there)
    except Exception as error:  # none of the backends takes it
        raise UnknownTargetError(said(error)) from error
    try:
        made = triton.compile(source, target=there, options=dict(options))
    except Exception as error:
        if _is_unknown(target, error):
            raise UnknownTargetError(said(error)) from error
        raise NotCompiledError(said(error)) from error
    return _beyond(made.metadata, made.asm, target)


def _beyond(metadata: Any, texts: Mapping[str, Any], target: GpuTarget) -> str:
    """Return the limit that a compiled kernel is beyond, in words, "" if none."""
    if metadata.shared > target.shared:
        return (
            f"{metadata.shared} bytes of shared memory, {target.shared} are the most "
            "that a block may have"
        )
    threads = metadata.num_warps * target.wave
    if threads > THREADS:
        return f"{threads} threads in a block, {THREADS} are the most"
    found = _VECTOR_REGISTERS.search(str(texts.get("amdgcn", "")))
    if found and target.registers:
        count, most = int(found[1]), target.registers_of(metadata.num_warps)
        if count > most:
            return (
                f"{count} vector registers, {most} are the most in a block of "
                f"{metadata.num_warps} waves"
            )
    return ""


def _is_unknown(target: GpuTarget, error: BaseException) -> bool:
    """Whether an error is that the compiler does not know the GPU itself."""
    text = str(error).lower()
    return target.name in text and any(
        word in text for word in ("unsupported gpu", "not a recognized", "not defined")
    )


def said(error: BaseException) -> str:
    """Return what a compiler says last: its message ends in the reason."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


# A process of kfuzz's own, whose Triton compiles, or one whose Triton interprets.

__all__ = ["LOOK", "Process", "end", "served"]

LOOK: Final = 0.05
"""Seconds between two looks at a process that is waited for."""
# Against one search that has no processor to spare it gets a tenth of one.
_NICE: Final = 10


class Process(OwnProcess):
    """A process that works beside a search.

    Args:
        module: that it runs; its `main` takes the messages with `served`.
        interpret: whether its Triton interprets kernels.
        idle: whether it runs on what others leave of the processors.
    """

    def __init__(self, module: str, *, interpret: bool, idle: bool = False) -> None:
        own = {"TRITON_INTERPRET": str(int(interpret)), "OMP_NUM_THREADS": "1"}
        # Ctrl-C is its parent's to obey. A session of its own would get a share of the
        # processors of its own.
        super().__init__(
            module, {**os.environ, **own}, python=("-W", "ignore"), process_group=0
        )
        if idle:
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, self.pid, _NICE)

    def send(self, message: object) -> None:
        """Send a message; nothing where the process has ended."""
        with suppress(OSError):
            super().send(message)

    def ready(self, seconds: float = LOOK) -> bool:
        """Return whether a message is there within some seconds; see `OwnProcess`."""
        return super().ready(seconds)
