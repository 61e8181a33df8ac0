"""What kfuzz exits with, and what it prints of the error that ends it."""

import sys
import traceback
from enum import IntEnum
from typing import Any, Final

from kfuzz.core.errors import (
    BackendError,
    BindingError,
    DecodeError,
    KfuzzError,
    NothingToRunError,
    UsageError,
)
from kfuzz.core.event import Event, FindingReplayed, KernelFinished, RunFinished
from kfuzz.core.verdict import CHARGED, FAILS_RUN, UNCONFIRMED, ReplayOutcome, Verdict
from kfuzz.report.text import plain


class ExitCode(IntEnum):
    """Exit codes of every verb; scripts and CI jobs rely on them."""

    OK = 0
    VIOLATION = 1
    USAGE = 2
    INTERNAL = 3
    NOTHING_TO_RUN = 4
    NO_BACKEND = 5
    INTERRUPTED = 130


# Malformed stored data is an input that cannot be obeyed, not a fault of kfuzz.
_CODES: Final[dict[type, ExitCode]] = {
    UsageError: ExitCode.USAGE,
    BindingError: ExitCode.USAGE,
    DecodeError: ExitCode.USAGE,
    NothingToRunError: ExitCode.NOTHING_TO_RUN,
    BackendError: ExitCode.NO_BACKEND,
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
    if interrupted:
        return ExitCode.INTERRUPTED
    if violated:
        return ExitCode.VIOLATION
    if failed:
        return ExitCode.INTERNAL
    if lacking:
        return ExitCode.NO_BACKEND
    return ExitCode.OK if ran else ExitCode.NOTHING_TO_RUN


class Outcome:
    """Folds a campaign's events to its exit code.

    Args:
        fail_on_any: whether findings marked known, and those that did not show in
            every fresh process, fail the run, too.
    """

    def __init__(self, *, fail_on_any: bool) -> None:
        self._failing = CHARGED | UNCONFIRMED if fail_on_any else FAILS_RUN
        self._fail_on_any = fail_on_any
        self._violated = self._interrupted = False
        self._error = self._lacking = False
        self._cases = 0
        self._uncompared = False

    def feed(self, event: Event) -> None:
        """Take the next event."""
        match event:
            case KernelFinished():
                states = {finding.state for finding in event.findings}
                self._violated |= bool(states & self._failing)
                self._cases += event.cases
                self._uncompared |= bool(event.uncompared)
                tallies = event.contracts.values()
                failed = any(t.verdict is Verdict.ERROR for t in tallies)
                self._error |= failed and not event.needs_gpu
                self._lacking |= event.needs_gpu
            case FindingReplayed():
                known = self._fail_on_any and event.excused
                self._violated |= event.fails or known
                self._error |= event.outcome is ReplayOutcome.ERROR
                self._cases += event.runs
            case RunFinished():
                self._interrupted = event.interrupted
            case _:
                pass

    def code(self) -> ExitCode:
        """Return the exit code."""
        return code_of_search(
            interrupted=self._interrupted,
            violated=self._violated,
            failed=self._error,
            ran=self._cases > 0 and not self._uncompared,
            lacking=self._lacking,
        )


def report_error(error: BaseException, *, verbose: bool) -> ExitCode:
    """Print an exception as one paragraph and return the exit code.

    Args:
        error: whatever ended the verb.
        verbose: also print the traceback of what kfuzz did not expect.
    """
    if isinstance(error, KfuzzError) or _is_usage(error):
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
    """Return what is said of an exception, in one paragraph."""
    if isinstance(error, KfuzzError):
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
    return f"{place}{message}{stop} `{path} --help` shows what is valid"
