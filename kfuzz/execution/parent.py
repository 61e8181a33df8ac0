"""A process that ends with the one that started it.

    python -m kfuzz.execution.parent PARENT MODULE:FUNCTION CONNECTION

has a function serve a connection so, from before its first import on: until a process
has asked for it, the end of its parent goes unnoticed, and imports take seconds.
"""

import ctypes
import os
import signal
import sys
from typing import Final

# prctl(2) numbers, from <linux/prctl.h>.
PR_SET_PDEATHSIG: Final = 1
PR_SET_CHILD_SUBREAPER: Final = 36

libc: Final = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int = 0) -> int:
    """Get or set a property of this process, as the C function of this name does.

    Raises:
        OSError: the kernel refused.
    """
    return checked(libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0))


def checked(result: int) -> int:
    """Return what a C function returned; raises `OSError` where that is an error."""
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def end_with(parent: int) -> None:
    """Have this process killed when its parent ends; end it if that has ended.

    Args:
        parent: pid of the process that started this one, as that one knows it: what
            has lost its parent has another.
    """
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before that took effect
        os._exit(1)


if __name__ == "__main__":
    starter, entry, descriptor = sys.argv[1:]
    end_with(int(starter))
    del sys.argv[1:]  # users' files may look

    from kfuzz.execution.processes.child import enter

    enter(entry, int(descriptor))
