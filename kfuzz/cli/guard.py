"""The process that a user's shell starts: it watches the one that does the work.

Commands import users' files. What such a file does as it is imported may end the
process, or not end: somebody has to be left to say so. Nothing is imported here.
"""

import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, Final, NoReturn, Self

from kfuzz.cli.exit_codes import ExitCode, report_error
from kfuzz.cli.standard_streams import open_descriptors
from kfuzz.core.errors import HarnessError
from kfuzz.execution import parent
from kfuzz.execution.processes.child import signal_name
from kfuzz.targets import importing

STOP_SECONDS: Final = 3.0
"""How long an import may go on once the user has asked for an end."""
GRACE_SECONDS: Final = 1.0
"""How long the process itself has to end an import that took its time."""
_LOOK_SECONDS: Final = 0.2
# Passed on: those of a terminal come here alone.
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def watched(work: Callable[[], int]) -> int:
    """Do a command's work in a process of its own; return the exit code."""
    here = os.getpid()
    open_descriptors()  # or what is opened next takes their place
    told, tells = os.pipe()
    with _Signals() as signals:
        pid = os.fork()
        if pid == 0:
            signals.__exit__()
            os.close(told)
            _do(work, tells, here)
        os.close(tells)
        signals.pass_to(pid)
        return _Watch(pid, told, signals).code()


def _do(work: Callable[[], int], tells: int, guard: int) -> NoReturn:
    """Be the process that does the work."""
    os.setsid()  # the terminal's Ctrl-C is the guard's to pass on, once
    parent.end_with(guard)

    def tell(target: str) -> None:
        named = target.encode(errors="replace").replace(b"\n", b" ")
        with suppress(OSError):
            os.write(tells, b"%.3f %s\n" % (importing.limit(), named))

    importing.tell(tell)
    sys.exit(work())


class _Signals:
    """Takes signals and passes them on; a context manager.

    They are held back until it is known to which process they go: it may write, and be
    answered, before its parent goes on.

    Attributes:
        asked: `time.monotonic()` of each that asked for an end.
        wakes: is readable after each, and after one of a child's end.
    """

    def __init__(self) -> None:
        self.asked: list[float] = []
        self.wakes, self._woken = socket.socketpair()
        self._pid = 0
        self._before: dict[int, Any] = {}
        self._mask: set[int] = set()

    def __enter__(self) -> Self:
        self.wakes.setblocking(False)
        self._woken.setblocking(False)
        signal.set_wakeup_fd(self._woken.fileno(), warn_on_full_buffer=False)
        taken = (*_SIGNALS, signal.SIGTSTP, signal.SIGCHLD)
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, taken)
        for number in taken:
            before = signal.getsignal(number)
            # What is ignored stays so, as under nohup; but ends have to be told.
            if before is not signal.SIG_IGN or number == signal.SIGCHLD:
                self._before[number] = before
                signal.signal(number, self._take)
        return self

    def __exit__(self, *exception: object) -> None:
        signal.set_wakeup_fd(-1)
        while self._before:
            signal.signal(*self._before.popitem())
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def pass_to(self, pid: int) -> None:
        """Pass on to a process what came, and what will come."""
        self._pid = pid
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def _take(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGCHLD:
            return
        if number == signal.SIGTSTP:  # Ctrl-Z: both stop, and go on together
            self._send(signal.SIGSTOP)
            os.kill(os.getpid(), signal.SIGSTOP)
            self._send(signal.SIGCONT)
            return
        self.asked.append(time.monotonic())
        self._send(number)

    def _send(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._pid, number)


class _Watch:
    """Waits for the end of the process that works, and for that of its imports."""

    def __init__(self, pid: int, told: int, signals: _Signals) -> None:
        self._pid, self._told, self._signals = pid, told, signals
        os.set_blocking(told, False)
        # What is being imported, "" for nothing, since when, and for how long at most.
        self._target, self._since = "", time.monotonic()
        self._limit = importing.limit()
        self._heard = b""

    def code(self) -> int:
        """Return what to exit with, once that process has ended."""
        poll = select.poll()
        for descriptor in (self._told, self._signals.wakes.fileno()):
            poll.register(descriptor, select.POLLIN)
        while not self._has_ended():
            for descriptor, event in poll.poll(1000 * _LOOK_SECONDS):
                if descriptor != self._told:
                    self._signals.wakes.recv(4096)
                elif not event & select.POLLIN:  # it closed what it found open
                    poll.unregister(self._told)
            self._hear()
            if self._target and (why := self._overdue()):
                self._bury()
                return _said(why)
        self._hear()
        return self._end_of(self._bury())

    def _has_ended(self) -> bool:
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._pid, options) is not None

    def _hear(self) -> None:
        with suppress(BlockingIOError):
            while piece := os.read(self._told, 65536):
                self._heard += piece
        *lines, self._heard = self._heard.split(b"\n")
        if lines:
            limit, _, target = lines[-1].partition(b" ")
            self._limit, self._target = float(limit), target.decode(errors="replace")
            self._since = time.monotonic()

    def _overdue(self) -> BaseException | None:
        """Return why an import has to end now."""
        asked, now = self._signals.asked, time.monotonic()
        if len(asked) > 1 or (asked and now - asked[0] > STOP_SECONDS):
            return KeyboardInterrupt()
        over = now - self._since > self._limit + GRACE_SECONDS
        return importing.overdue(self._target, self._limit) if over else None

    def _bury(self) -> int:
        """End the process and its group; return its exit code, minus the signal."""
        # Not reaped yet, so that no other group can bear its number.
        with suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])

    def _end_of(self, code: int) -> int:
        if code >= 0 and not self._target:
            return code
        name = f"exit code {code}" if code >= 0 else signal_name(code)
        if -code == signal.SIGINT or (self._signals.asked and not self._target):
            return _said(KeyboardInterrupt())
        if self._target:
            return _said(importing.ended(self._target, name))
        fix = "What was found is in the corpus, `kfuzz corpus list` shows it"
        return _said(HarnessError(f"its own process was ended by {name}", fix=fix))


def _said(error: BaseException) -> int:
    """Say what ended a command; return its exit code."""
    if isinstance(error, KeyboardInterrupt):
        sys.stderr.write("kfuzz: aborted\n")
        return ExitCode.INTERRUPTED
    return report_error(error, verbose=False)
