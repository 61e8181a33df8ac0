"""Standard output for the report alone; signals that end a verb cleanly."""

import io
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from enum import IntEnum
from threading import Event
from types import FrameType
from typing import Any, Final, TextIO, TypeVar

from kfuzz.core import errors
from kfuzz.core.event import Event as event_Event
from kfuzz.core.event import FindingReplayed, KernelFinished, RunFinished
from kfuzz.core.verdict import (
    ATTRIBUTED,
    FAILS_RUN,
    UNCONFIRMED,
    ReplayOutcome,
    Verdict,
)
from kfuzz.report.text import plain

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
        with suppress(OSError):
            sys.stdout.flush()
        os.dup2(kept, 1)
        with suppress(OSError):  # what could not be written is reported
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


def _written_to(descriptor: int, like: TextIO, *, closefd: bool = True) -> TextIO:
    """Return a descriptor of standard output as text in another's encoding."""
    return open(
        descriptor,
        "w",
        closefd=closefd,
        encoding=like.encoding,
        errors="backslashreplace",
        buffering=1,  # also into a pipe: CI logs are read as they grow
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

    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with _handled([signal.SIGINT] if usual else [], note):
        yield _aborted


@contextmanager
def _handled(
    numbers: list[signal.Signals], handler: Callable[[int, FrameType | None], None]
) -> Iterator[None]:
    before = {n: signal.signal(n, handler) for n in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


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
    with _handled(numbers, obey):
        yield stop


def note(text: str) -> None:
    """Print something for the user that is no result."""
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


def print_each(
    produce: Callable[[Event], Iterator[T]],
    expected: int,
    form: str,
    *,
    lines: Callable[[T], Iterable[str]],
    document: Callable[..., dict[str, Any]],
    total: Callable[[list[T]], list[str]] = lambda results: [],
) -> tuple[list[T], bool]:
    """Print each result as it comes, or all as one document.

    Args:
        produce: yields the results, given what ends it.
        expected: how many results there are if nothing ends it.
        form: "json" for one document, anything else for lines.
        lines: returns those of a result.
        document: returns the document of all results.
        total: returns the last lines.

    Returns:
        The results, and whether a signal left fewer than are expected.
    """
    results: list[T] = []
    as_json = form == "json"
    with report_stream() as out, stopping() as stop:

        def feed(result: T) -> None:
            results.append(result)
            for line in () if as_json else lines(result):
                print(line, file=out)

        consume(produce(stop), feed, stop)
        interrupted = stop.is_set() and len(results) < expected
        if as_json:
            from kfuzz.report import json_report

            json_report.write(document(results, interrupted=interrupted), out)
        for line in () if as_json else total(results):
            print(line, file=out)
    return results, interrupted


def follow(items: Iterable[Any], stop: Event, *, quiet: bool, **shown: Any) -> None:
    """Consume the events of a search, with progress on standard error.

    Args:
        items: the events.
        stop: ends the search.
        quiet: without progress.
        shown: what `TerminalReport` needs for the printed commands.
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


# What kfuzz exits with, and what it prints of the error that ends it.


class ExitCode(IntEnum):
    """Exit codes of every verb; scripts and CI jobs rely on them."""

    OK = 0
    VIOLATION = 1
    USAGE = 2
    INTERNAL = 3
    NOTHING_TO_RUN = 4
    NO_BACKEND = 5
    UNJUDGED = 125
    INTERRUPTED = 130


# Malformed stored data is an input that cannot be obeyed, not a fault of kfuzz.
_CODES: Final[dict[type, ExitCode]] = {
    errors.UsageError: ExitCode.USAGE,
    errors.BindingError: ExitCode.USAGE,
    errors.DecodeError: ExitCode.USAGE,
    errors.NothingToRunError: ExitCode.NOTHING_TO_RUN,
    errors.BackendError: ExitCode.NO_BACKEND,
}


def code_of_search(
    *, interrupted: bool, violated: bool, failed: bool, ran: bool, lacking: bool = False
) -> ExitCode:
    """Return what a search ends with.

    Args:
        interrupted: whether a signal ended it: what else came of it is then not all.
        violated: whether something is reported.
        failed: whether kfuzz could not judge something.
        ran: whether values were compared of all that was to be judged: else that is
            no success.
        lacking: whether something could not be judged for want of a GPU.
    """
    codes = {
        ExitCode.INTERRUPTED: interrupted,
        ExitCode.VIOLATION: violated,
        ExitCode.INTERNAL: failed,
        ExitCode.NO_BACKEND: lacking,
        ExitCode.NOTHING_TO_RUN: not ran,
    }
    return next((code for code, so in codes.items() if so), ExitCode.OK)


class Outcome:
    """Folds a campaign's events to its exit code.

    Args:
        fail_on_any: whether findings marked known, and those that did not show in
            every fresh process, fail the run, too.
    """

    def __init__(self, *, fail_on_any: bool) -> None:
        self._failing = ATTRIBUTED | UNCONFIRMED if fail_on_any else FAILS_RUN
        self._fail_on_any = fail_on_any
        self._seen: set[str] = set()

    def feed(self, event: event_Event) -> None:
        """Take the next event."""
        is_so: dict[str, bool] = {}
        match event:
            case KernelFinished():
                states = {finding.state for finding in event.findings}
                verdicts = {tally.verdict for tally in event.contracts.values()}
                is_so = {
                    "violated": bool(states & self._failing),
                    "failed": Verdict.ERROR in verdicts and not event.needs_gpu,
                    "lacking": event.needs_gpu,
                    "ran": event.cases > 0,
                    "uncompared": bool(event.uncompared),
                }
            case FindingReplayed():
                known = self._fail_on_any and event.excused
                failed = event.outcome is ReplayOutcome.ERROR
                is_so = {"violated": event.fails or known, "failed": failed}
                is_so["ran"] = event.runs > 0
            case RunFinished():
                is_so = {"interrupted": event.interrupted}
        self._seen |= {name for name, so in is_so.items() if so}

    def code(self) -> ExitCode:
        """Return the exit code."""
        names = ("interrupted", "violated", "failed", "lacking")
        ran = "ran" in self._seen and "uncompared" not in self._seen
        return code_of_search(ran=ran, **{name: name in self._seen for name in names})


def print_examined(
    produce: Callable[[Event], Iterator[event_Event]],
    form: str,
    *,
    quiet: bool,
    fail_on: str,
    corpus: str,
    lines: Callable[[KernelFinished], Iterable[str]],
    document: Callable[[KernelFinished], dict[str, Any]],
    more: Callable[[], dict[str, Any]] = dict,
) -> ExitCode:
    """Print what comes of kernels that are looked at one after the other.

    Args:
        produce: yields what happens, given what ends it.
        form: "json" for one document, anything else for lines.
        quiet: without progress.
        fail_on: "any" where known findings fail it, too.
        corpus: the folder if it is not the default, for the printed commands.
        lines: returns those of a kernel, which are printed as it is done.
        document: returns that of a kernel, without its findings.
        more: returns what else the whole document has.
    """
    from kfuzz.report import json_report
    from kfuzz.report.terminal import TerminalReport

    outcome, made = Outcome(fail_on_any=fail_on == "any"), list[dict[str, Any]]()
    as_json = form == "json"
    with report_stream() as out, stopping() as stop:
        shown = sys.stderr if as_json else out
        terminal = TerminalReport(shown, quiet=quiet, corpus=corpus, summary=False)

        def feed(event: event_Event) -> None:
            outcome.feed(event)
            terminal.feed(event)
            if not isinstance(event, KernelFinished):
                return
            for line in () if as_json else lines(event):
                print(line, file=out, flush=True)
            if as_json:
                findings = [
                    json_report.finding_summary(f, event.paths.get(f.id, ""))
                    for f in event.findings
                ]
                made.append({**document(event), "findings": findings})

        with terminal:
            consume(produce(stop), feed, stop)
        if as_json:
            whole = {**more(), "interrupted": stop.is_set(), "kernels": made}
            json_report.write(whole, out)
    return outcome.code()


def report_error(error: BaseException, *, verbose: bool) -> ExitCode:
    """Print an exception as one paragraph and return the exit code.

    Args:
        error: whatever ended the verb.
        verbose: also print the traceback of what kfuzz did not expect.
    """
    if isinstance(error, errors.KfuzzError) or _is_usage(error):
        _say(line_of(error))
        return code_of(error)
    if verbose:
        traceback.print_exception(error, file=sys.stderr)
    fix = "" if verbose else "; `kfuzz -v …` prints the traceback"
    _say(f"{line_of(error)}{fix}")
    return code_of(error)


def code_of(error: BaseException) -> ExitCode:
    """Return what kfuzz exits with where an exception ends the verb."""
    for kind in type(error).__mro__:
        if kind in _CODES:
            return _CODES[kind]
    if isinstance(error, KeyboardInterrupt | BrokenPipeError | SystemExit):
        return ExitCode.INTERRUPTED
    return ExitCode.USAGE if _is_usage(error) else ExitCode.INTERNAL


def line_of(error: BaseException) -> str:
    """Return an exception in words, as one paragraph."""
    if isinstance(error, errors.KfuzzError):
        return str(error)
    if _is_usage(error):
        return _usage_text(error)
    if isinstance(error, KeyboardInterrupt):
        return "aborted"
    if isinstance(error, BrokenPipeError):
        return "nobody reads standard output any more"
    text = str(error).strip().partition("\n")[0]
    shown = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return f"internal error: {shown}"


def _say(text: str) -> None:
    paragraph = " ".join(plain(text).split())
    print(f"kfuzz: error: {paragraph}", file=sys.stderr)


def _is_usage(error: BaseException) -> bool:
    # Typer brings its own copy of click since 0.26: the class has no one home.
    return callable(getattr(error, "format_message", None))


def _usage_text(error: Any) -> str:
    message = error.format_message().strip().rstrip(".")
    message = message[:1].lower() + message[1:]
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "kfuzz"
    verb = path.removeprefix("kfuzz").strip()
    place = f"{verb}: " if verb else ""
    stop = "" if message.endswith(("?", ")")) else "."
    if context is not None:
        usage = " ".join((path, *context.command.collect_usage_pieces(context)))
        stop += f" usage: {usage};"
    return f"{place}{message}{stop} `{path} --help` shows what is valid"
