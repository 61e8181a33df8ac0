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
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeVar

from kfuzz.core.errors import HarnessError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

T = TypeVar("T")

_STOPPING: Final = b"\nkfuzz: stopping; once more aborts without saving\n"
_OPEN_DESCRIPTORS: Final = 3


class ReaderGoneError(Exception):
    """Nobody reads standard output any more.

    Not an OSError: typer answers a broken pipe with exit code 1, which here means
    a violation.
    """


class OutputError(HarnessError):
    """Standard output cannot be written to, other than for want of a reader."""

    def __init__(self, error: OSError) -> None:
        super().__init__(
            error.strerror or str(error),
            where="standard output",
            fix="Free some space or send it elsewhere; findings are stored before they "
            "are printed, `kfuzz corpus list` lists them",
        )


def open_standard_streams() -> None:
    """Give closed standard streams a home.

    A descriptor left closed (`kfuzz … >&-`) would be given to the next file
    opened, and what is printed would end in it. Characters that an encoding lacks are
    escaped: they must end no verb.
    """
    open_descriptors()
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper) and _descriptor(sys.stdout) == 1:
        sys.stdout = _written_to(1, sys.stdout, closefd=False)


def open_descriptors() -> None:
    """Give the descriptors of closed standard streams a home."""
    for descriptor in range(_OPEN_DESCRIPTORS):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number


@contextmanager
def report_stream() -> Iterator[TextIO]:
    """Yield standard output; what anyone else prints goes to standard error.

    Descriptor 1 is replaced, so this holds for code in any language.

    Raises:
        ReaderGoneError: where the block or its last flush meets a broken pipe.
        OutputError: where it cannot be written to, as on a disk that is full.
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
    out = _written_to(kept, original)
    try:
        yield out
    finally:
        with suppress(OSError, OutputError):
            sys.stdout.flush()
        os.dup2(kept, 1)
        with suppress(OSError, OutputError):  # what could not be written is told
            out.close()


def print_report(
    form: str,
    document: Callable[[], dict[str, Any]],
    lines: Callable[[], Iterable[str]],
) -> None:
    """Print what a verb came to.

    Args:
        form: "json" for one document, anything else for lines.
        document: returns the document.
        lines: returns the lines.
    """
    with report_stream() as out:
        if form != "json":
            for line in lines():
                print(line, file=out)
            return
        from kfuzz.report import json_report

        json_report.write(document(), out)


class _Output(io.FileIO):
    """Standard output, whose errors are told from those of other files."""

    def write(self, data: "ReadableBuffer", /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(error) from None


def _written_to(descriptor: int, like: TextIO, *, closefd: bool = True) -> TextIO:
    """Return a descriptor of standard output as text in another's encoding."""
    return io.TextIOWrapper(
        io.BufferedWriter(_Output(descriptor, "w", closefd=closefd)),
        encoding=like.encoding,
        errors="backslashreplace",
        line_buffering=True,  # also into a pipe: CI logs are read as they grow
    )


def discard_stdout() -> None:
    """Send what is still buffered for what cannot be written to nowhere."""
    if _descriptor(sys.stdout) == 1:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)


# Whether Ctrl-C came while nothing could be stopped, or was to be stopped no longer.
_aborted: Final = Event()


@contextmanager
def noting_interrupts() -> Iterator[Event]:
    """Yield an event that Ctrl-C sets where it aborts: before `stopping`, or twice.

    It raises KeyboardInterrupt as ever, which imports of torch swallow at times.
    """
    _aborted.clear()
    if threading.current_thread() is not threading.main_thread():
        yield _aborted
        return

    def note(number: int, frame: FrameType | None) -> None:
        _aborted.set()
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, note)
    try:
        yield _aborted
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def stopping() -> Iterator[Event]:
    """Yield an event that SIGINT, SIGTERM and SIGHUP set; a second SIGINT aborts.

    The third kills the process, whatever it is doing. Who has SIGHUP ignored, as nohup
    has, keeps it so.

    Raises:
        KeyboardInterrupt: if Ctrl-C came before, and something swallowed it.
    """
    if _aborted.is_set():
        raise KeyboardInterrupt
    stop = Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop  # only the main thread may handle signals
        return

    def obey(number: int, frame: FrameType | None) -> None:
        if stop.is_set() and number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            _aborted.set()
            raise KeyboardInterrupt
        stop.set()
        with suppress(OSError):
            os.write(2, _STOPPING)

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {n: signal.signal(n, obey) for n in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def note(text: str) -> None:
    """Tell the user something that is no result."""
    print(f"kfuzz: {text}", file=sys.stderr)


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


def follow(items: Iterable[Any], stop: Event, *, quiet: bool, **shown: Any) -> None:
    """Consume the events of a search, with progress on standard error.

    Args:
        items: the events.
        stop: ends the search.
        quiet: without progress.
        shown: what `TerminalReport` is told of the printed commands.
    """
    if quiet:
        consume(items, lambda event: None, stop)
        return
    from kfuzz.report.terminal import TerminalReport

    with TerminalReport(sys.stderr, summary=False, **shown) as report:
        consume(items, report.feed, stop)


def _descriptor(stream: TextIO) -> int:
    try:
        return stream.fileno()
    except (OSError, ValueError, AttributeError, io.UnsupportedOperation):
        return -1
