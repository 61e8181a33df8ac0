"""The process that a user's shell starts: it watches the one that does the work.

An import runs a stranger's code: it may end its process, or not end at all. Something
must then be there to say so, and to end it.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

from kfuzz.cli.streams import ExitCode, open_descriptors, report_error
from kfuzz.core.errors import HarnessError
from kfuzz.core.finding import relative
from kfuzz.execution import parent
from kfuzz.execution.processes import wire
from kfuzz.execution.processes.child import signal_name
from kfuzz.targets import load

# How long an import may go on once the user has asked for an end.
STOP_SECONDS: Final = 3.0
# How long the process itself has to end an import that took its time.
GRACE_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 0.2
# After which an import is said to be one.
_SILENT_SECONDS: Final = 2.0
# Passed on: those of a terminal come here alone.
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def watched(work: Callable[[], int]) -> int:
    """Do a command's work in a process of its own; return the exit code."""
    here = os.getpid()
    open_descriptors()  # or what is opened next takes their place
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # or its end goes unnoticed
    # What is ignored stays so, as under nohup.
    taken = [
        number
        for number in (*_SIGNALS, signal.SIGTSTP, signal.SIGCHLD)
        if signal.getsignal(number) is not signal.SIG_IGN
    ]
    targets, tells = os.pipe()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, taken)
    pid = os.fork()
    if pid == 0:
        os.close(targets)
        _do(work, tells, here, mask)
    os.close(tells)
    os.set_blocking(targets, False)
    target, asked, overdue = _wait(pid, targets, taken)
    # Not reaped yet, so that no other group can bear its number.
    wire.kill_group(pid)
    wire.kill(pid)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    if code >= 0 and not target:
        return code
    if overdue is None and (-code == signal.SIGINT or (asked and not target)):
        overdue = KeyboardInterrupt()
    if isinstance(overdue, KeyboardInterrupt):
        sys.stderr.write("kfuzz: aborted\n")
        return ExitCode.INTERRUPTED
    how = f"exit code {code}" if code >= 0 else signal_name(code)
    fix = "What was found is in the corpus, `kfuzz corpus list` shows it"
    if target:
        return report_error(overdue or load.ended(target, how), verbose=False)
    error = HarnessError(f"its own process was ended by {how}", fix=fix)
    return report_error(error, verbose=False)


def _do(work: Callable[[], int], tells: int, guard: int, mask: set[int]) -> NoReturn:
    """Be the process that does the work."""
    os.setsid()  # the terminal's Ctrl-C is the guard's to pass on, once
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    parent.end_with(guard)

    def tell(target: str) -> None:
        named = target.encode(errors="replace").replace(b"\n", b" ")
        with suppress(OSError):
            os.write(tells, b"%.3f %s\n" % (load.limit(), named))

    load.tell(tell)
    sys.exit(work())


def _wait(
    pid: int, targets: int, taken: list[signal.Signals]
) -> tuple[str, list[float], BaseException | None]:
    """Return what was being imported at the end, who asked for it, and why it came."""
    target, since, limit, heard = "", time.monotonic(), load.limit(), b""
    asked: list[float] = []
    over, said = False, ""
    while True:
        number = signal.sigtimedwait(taken, 0 if over else _LOOK_SECONDS)
        now = time.monotonic()
        match number.si_signo if number else 0:
            case signal.SIGTSTP:  # Ctrl-Z: both stop, and go on together
                os.kill(pid, signal.SIGSTOP)
                os.kill(os.getpid(), signal.SIGSTOP)
                os.kill(pid, signal.SIGCONT)
            case passed if passed in _SIGNALS:
                asked.append(now)
                os.kill(pid, passed)
        with suppress(BlockingIOError):
            while piece := os.read(targets, 65536):
                heard += piece
        *lines, heard = heard.split(b"\n")
        if lines:
            seconds, _, name = lines[-1].partition(b" ")
            limit, target, since = float(seconds), name.decode(errors="replace"), now
        if target not in ("", said) and now - since > _SILENT_SECONDS:
            said = target
            sys.stderr.write(f"kfuzz: importing {relative(target, Path.cwd())}\n")
        if over:
            return target, asked, None
        over = wire.has_ended(pid)
        if target and (len(asked) > 1 or (asked and now - asked[0] > STOP_SECONDS)):
            return target, asked, KeyboardInterrupt()
        if target and now - since > limit + GRACE_SECONDS:
            return target, asked, load.overdue(target, limit)
