"""What can go wrong in a child, told apart: late, dead, raised; and the zygote."""

import signal
from typing import Final

from kfuzz.core.errors import HarnessError, KfuzzError

# macOS raises the second where Linux raises the first.
FAULT_SIGNALS: Final = (signal.SIGSEGV.name, signal.SIGBUS.name)


class ChildFault(KfuzzError):
    """Something that the code under test did; never a fault of kfuzz."""


class ChildTimeout(ChildFault):
    """No reply in time; the child still runs: wait again, or kill it."""

    def __init__(self, pid: int, seconds: float | None) -> None:
        self.seconds = seconds
        super().__init__(f"no reply within {seconds} s", where=f"child {pid}")


class ChildDied(ChildFault):
    """The child ended instead of replying; it is reaped.

    Attributes:
        exit_code: what it exited with, None if a signal ended it.
        signal_name: the signal that ended it, such as "SIGSEGV", else None.
        output_tail: the last of what it printed, decoded with replacement.
        disconnected: whether it closed its connection and went on, so that it had to
            be ended.
    """

    def __init__(
        self,
        pid: int,
        exit_code: int | None,
        signal_name: str | None,
        output_tail: str,
        *,
        disconnected: bool = False,
    ) -> None:
        self.disconnected = disconnected
        self.exit_code = exit_code
        self.signal_name = signal_name
        self.output_tail = output_tail
        cause = signal_name or f"exit code {exit_code}"
        if disconnected:
            cause = "it closed its connection"
        super().__init__(f"died instead of replying ({cause})", where=f"child {pid}")

    @property
    def faulted(self) -> bool:
        """Whether it touched memory that it may not."""
        return self.signal_name in FAULT_SIGNALS


class ChildRaised(ChildFault):
    """An exception escaped the handler; the child lives and takes requests.

    Attributes:
        type: name of the exception's class, such as "ValueError".
        message: its text, cut to a length fit for a report.
        traceback: as Python prints it, cut likewise.
    """

    def __init__(self, pid: int, type: str, message: str, traceback: str) -> None:
        self.type = type
        self.message = message
        self.traceback = traceback
        super().__init__(f"raised {type}: {message}", where=f"child {pid}")


class ZygoteError(HarnessError):
    """The zygote cannot start, died, or cannot fork."""

    def __init__(self, what: str, *, output_tail: str = "", fix: str = "") -> None:
        self.output_tail = output_tail
        last = output_tail.rstrip().rpartition("\n")[2].strip()
        shown = f"; the last it printed: {last}" if last else ""
        super().__init__(what + shown, where="zygote", fix=fix)
