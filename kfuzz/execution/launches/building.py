"""What a launch is compiled to for a GPU that is not here, and whether that fits it."""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kfuzz.execution.launches.capture import (
    ConstArgument,
    IntArgument,
    Launch,
    TensorArgument,
)
from kfuzz.execution.launches.gpu_targets import THREADS, GpuTarget
from kfuzz.execution.processes.child import OwnProcess

# GPUs that kernels are compiled for without running there, and what these allow.

"""Most threads of a block, on all of them."""
"""Of a compute unit, or of a pair of RDNA's: a block's waves are spread among them."""


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


def mismatch(source: ASTSource, options: Mapping[str, Any], target: GpuTarget) -> str:
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

# Against one search that has no processor to spare it gets a tenth of one.
_NICE: Final = 10


def beside(entry: str, *, interpret: bool, idle: bool = False) -> OwnProcess:
    """Start a process that works beside a search.

    Args:
        entry: as for `OwnProcess`.
        interpret: whether its Triton interprets kernels.
        idle: whether it runs on what others leave of the processors.
    """
    own = {"TRITON_INTERPRET": str(int(interpret)), "OMP_NUM_THREADS": "1"}
    # Ctrl-C is its parent's to obey. A session of its own would get a share of the
    # processors of its own.
    process = OwnProcess(
        entry, {**os.environ, **own}, python=("-W", "ignore"), process_group=0
    )
    if idle:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, process.pid, _NICE)
    return process
