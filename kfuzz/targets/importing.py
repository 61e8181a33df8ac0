"""Which of a user's files is being imported, and who is told of it.

An import runs a stranger's code: it may end its process, or not end at all. Who watches
that process is told when one begins and when it is over.
"""

import math
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from kfuzz.core.errors import BindingError

SECONDS: Final = 300.0
"""How long an import may take: as long as a child may take to open."""
VARIABLE: Final = "KFUZZ_IMPORT_SECONDS"
"""Environment variable: other seconds, where an import builds for longer."""
LEAST_SECONDS: Final = 20.0
"""How long an import may take however little time a run has: large libraries take as
long to import, and so does a context of a GPU."""

# The innermost last.
_under_way: Final[list[str]] = []
# Who is told, and in which process: a fork's imports are another's to watch.
_told: tuple[Callable[[str], None], int] | None = None
# Of the run.
_seconds = math.inf


def limit_to(run_seconds: float | None) -> None:
    """Have the imports of this process end where a run of so many seconds would.

    Args:
        run_seconds: what `--max-time` says; None for no limit.
    """
    global _seconds
    _seconds = math.inf if run_seconds is None else max(run_seconds, LEAST_SECONDS)


def limit() -> float:
    """Return how many seconds an import may take."""
    return min(_own_limit(), _seconds)


def _own_limit() -> float:
    given = os.environ.get(VARIABLE, "")
    return float(given) if given.isdigit() and int(given) else SECONDS


class OverdueError(BaseException):
    """The time is over; no exception that a user's file would handle."""


@contextmanager
def ended_after(seconds: float) -> Iterator[None]:
    """End the block after some seconds, once Python has the thread again.

    In the main thread alone; elsewhere it takes what it takes.

    Raises:
        OverdueError: it was ended.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    is_over = False

    def end(number: int, frame: FrameType | None) -> None:
        if not is_over:
            raise OverdueError

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        is_over = True
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def importing() -> str | None:
    """Return the target that kfuzz is importing at this moment, if any."""
    return _under_way[-1] if _under_way else None


def tell(told: Callable[[str], None]) -> None:
    """Have each import of this process told: the target as it begins, "" at its end."""
    global _told
    _told = (told, os.getpid())


@contextmanager
def imported(target: str) -> Iterator[None]:
    """Say that a target is imported meanwhile."""
    _under_way.append(target)
    _tell()
    try:
        yield
    finally:
        _under_way.pop()
        _tell()


def _tell() -> None:
    if _told is not None and _told[1] == os.getpid():
        _told[0](importing() or "")


def ended(target: str, how: str) -> BindingError:
    """Return what is said where an import ended its process, by a signal or a code."""
    return BindingError(
        f"importing it ends its process: {how}",
        where=target,
        fix="kfuzz imports a target as Python does; make it import cleanly",
    )


def overdue(target: str, seconds: float) -> BindingError:
    """Return what is said of an import that did not end within its limit."""
    return BindingError(
        f"importing it does not end within {seconds:.0f} s",
        where=target,
        fix=f"see what waits there; where it builds for longer, {way_out(seconds)}",
    )


def way_out(seconds: float) -> str:
    """Return what gives an import more time than the limit that it had."""
    if seconds < _own_limit():
        return "give more with --max-time"
    return f"set {VARIABLE}"
