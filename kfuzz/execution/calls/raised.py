"""Exceptions that leave a kernel, and what is kept of them."""

from typing import Final

import torch

from kfuzz.core.errors import BuildError, chain, class_name, message_of, trace_text
from kfuzz.core.untrusted import KernelEnded
from kfuzz.execution.device.backends import backend_of, fault_of
from kfuzz.execution.device.surroundings import surroundings_of
from kfuzz.execution.interpreter.traps import explanation
from kfuzz.execution.interpreter.watch import interpreting, is_interpreter_failure
from kfuzz.execution.processes.interrupts import is_child
from kfuzz.numerics.run import Raised

# Enough to see the kernel's own frames; a recursion error has thousands.
TRACE_LIMIT: Final = 4000


class RaisedElsewhere(Exception):
    """An exception that left a kernel in another process."""

    def __init__(self, raised: Raised) -> None:
        self.raised = raised
        super().__init__(f"{raised.type}: {raised.message}")


def caught(error: BaseException, device: torch.device) -> Raised:
    """Return what is to be kept of an exception that left a call; clear its errors.

    Raises:
        KernelEnded: the kernel ran in a process of its own, which ended.
        KeyboardInterrupt: if it is the user's, not the kernel's.
    """
    if isinstance(error, KernelEnded):
        raise error  # nobody is there to call again
    around = surroundings_of(device)
    if around is not None:
        around.forget_errors()
    if isinstance(error, KeyboardInterrupt) and not is_child():
        raise error
    return raised_by(error, device)


def raised_by(error: BaseException, device: torch.device) -> Raised:
    """Return what is to be kept of an exception that left the kernel."""
    if isinstance(error, RaisedElsewhere):
        return error.raised
    text = message_of(error)
    lines = text.strip().splitlines()
    # The CPU allocator raises a plain RuntimeError.
    out_of_memory = isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        "DefaultCPUAllocator" in text
    )
    trap = explanation(error, interpreted=interpreting())
    message = trap or (lines[0][:300] if lines else "")
    fault = fault_of(device)
    return Raised(
        type=class_name(error),
        message=message,
        traceback=trace_text(error)[-TRACE_LIMIT:],
        backend=bool(trap) or is_interpreter_failure(error),
        memory=out_of_memory,
        fault=fault,
        build=next((str(e) for e in chain(error) if isinstance(e, BuildError)), ""),
        gpu=backend_of(device).lack_of_gpu(error),
    )
