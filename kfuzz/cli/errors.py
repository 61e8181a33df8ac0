"""From exceptions to one paragraph on standard error and an exit code."""

import sys
import traceback
from typing import Any

from kfuzz.cli.exit_codes import ExitCode, exit_code_of
from kfuzz.core.errors import KfuzzError
from kfuzz.report.drawing import plain


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
    if isinstance(error, KfuzzError):
        return exit_code_of(error)
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
