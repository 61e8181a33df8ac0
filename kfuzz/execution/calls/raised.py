"""Exceptions that leave a kernel, and what is kept of them."""

import traceback
from dataclasses import dataclass
from typing import Final

import torch

from kfuzz.core.errors import BuildError
from kfuzz.execution.device.devices import fault_of
from kfuzz.execution.device.gpuless import lack_of_gpu
from kfuzz.execution.interpreter.traps import explanation
from kfuzz.execution.interpreter.watch import interpreting, is_interpreter_failure

# Enough to see the kernel's own frames; a recursion error has thousands.
TRACE_LIMIT: Final = 4000


@dataclass(frozen=True)
class Raised:
    """An exception that left the kernel.

    Attributes:
        type: its class name.
        message: its first line.
        traceback: as Python prints it, cut to `TRACE_LIMIT` characters.
        backend: whether it came from inside Triton's interpreter, or Triton had
            nothing to run on.
        memory: whether it says that memory ran out.
        fault: for what the device can do nothing more in this process, as
            `devices.fault_of` names it; "" if it can.
        build: what could not be built for the call, as the `BuildError` says it;
            "" if that is not why.
        gpu: what says that the call needs a GPU, where it was made without one; "" if
            nothing does.
    """

    type: str
    message: str
    traceback: str
    backend: bool = False
    memory: bool = False
    fault: str = ""
    build: str = ""
    gpu: str = ""

    @property
    def lost(self) -> bool:
        """Whether the device can do nothing more in this process."""
        return bool(self.fault)


class RaisedElsewhere(Exception):
    """An exception that left a kernel in another process.

    Attributes:
        raised: what is known of it.
    """

    def __init__(self, raised: Raised) -> None:
        self.raised = raised
        super().__init__(f"{raised.type}: {raised.message}")


def raised_by(error: BaseException, device: torch.device) -> Raised:
    """Return what is to be kept of an exception that left the kernel."""
    if isinstance(error, RaisedElsewhere):
        return error.raised
    text = "".join(traceback.format_exception(error))
    lines = str(error).strip().splitlines()
    # The CPU allocator raises a plain RuntimeError.
    out_of_memory = isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        "DefaultCPUAllocator" in str(error)
    )
    trap = explanation(error, interpreted=interpreting())
    message = trap or (lines[0][:300] if lines else "")
    fault = fault_of(device)
    return Raised(
        type=type(error).__name__,
        message=message,
        traceback=text[-TRACE_LIMIT:],
        backend=bool(trap) or is_interpreter_failure(error),
        memory=out_of_memory,
        fault=fault,
        build=_unbuilt(error),
        gpu=lack_of_gpu(error, device),
    )


def _unbuilt(error: BaseException) -> str:
    """Return what could not be built, "" if an exception has another cause."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, BuildError):
            return str(seen)
        seen = seen.__cause__
    return ""
