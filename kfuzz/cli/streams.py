"""Standard output for the report alone; signals that end a verb cleanly."""

import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from threading import Event
from types import FrameType
from typing import Final, TextIO, TypeVar

T = TypeVar("T")

_STOPPING: Final = b"\nkfuzz: stopping; once more aborts without saving\n"
_OPEN_DESCRIPTORS: Final = 3


class ReaderGoneError(Exception):
    """Nobody reads standard output any more.

    Not an OSError: typer answers a broken pipe with exit code 1, which here means
    a violation.
    """


def open_standard_streams() -> None:
    """Give closed standard streams a home.

    A descriptor left closed (`kfuzz … >&-`) would be given to the next file
    opened, and what is printed would end in it.
    """
    for descriptor in range(_OPEN_DESCRIPTORS):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115


@contextmanager
def report_stream() -> Iterator[TextIO]:
    """Yield standard output; what anyone else prints goes to standard error.

    Descriptor 1 is replaced, so this holds for code in any language.

    Raises:
        ReaderGoneError: where the block or its last flush meets a broken pipe.
    """
    try:
        with _reserved() as out:
            yield out
            out.flush()
    except BrokenPipeError:
        discard_stdout()
        raise ReaderGoneError from None


@contextmanager
def _reserved() -> Iterator[TextIO]:
    original = sys.stdout
    if _descriptor(original) != 1:
        # Someone captures in Python: there is no descriptor to guard.
        sys.stdout = sys.stderr
        try:
            yield original
        finally:
            sys.stdout = original
        return
    original.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    # Characters that a terminal's encoding lacks must not end a run.
    out = open(  # noqa: SIM115
        kept,
        "w",
        encoding=original.encoding,
        errors="backslashreplace",
        buffering=1,  # lines, also into a pipe: CI logs are read as they grow
    )
    try:
        yield out
    finally:
        with suppress(OSError):
            sys.stdout.flush()
        os.dup2(kept, 1)
        with suppress(OSError):  # the buffer of a broken pipe
            out.close()


def discard_stdout() -> None:
    """Send what is still buffered for a closed pipe to nowhere."""
    if _descriptor(sys.stdout) == 1:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)


@contextmanager
def stopping() -> Iterator[Event]:
    """Yield an event that SIGINT and SIGTERM set; a second SIGINT aborts.

    The third kills the process, whatever it is doing.
    """
    stop = Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop  # only the main thread may handle signals
        return

    def obey(number: int, frame: FrameType | None) -> None:
        if stop.is_set() and number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            raise KeyboardInterrupt
        stop.set()
        with suppress(OSError):
            os.write(2, _STOPPING)

    before = {n: signal.signal(n, obey) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def consume(items: Iterable[T], feed: Callable[[T], None], stop: Event) -> None:
    """Feed every item to a report; where that fails, end the work cleanly.

    What produces the items saves its work before it ends: a report that cannot
    be written (its reader is gone, its disk is full) must not cost findings.

    Raises:
        Exception: what `feed` or the items raised.
    """
    produced = iter(items)
    for item in produced:
        try:
            feed(item)
        except Exception:
            stop.set()
            for _ in produced:
                pass
            raise


def _descriptor(stream: TextIO) -> int:
    try:
        return stream.fileno()
    except (OSError, ValueError, AttributeError, io.UnsupportedOperation):
        return -1
