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
    if isinstance(error, KfuzzError):
        _say(str(error))
        return exit_code_of(error)
    if _is_usage(error):
        _say(_usage_text(error))
        return ExitCode.USAGE
    text = str(error).strip().partition("\n")[0]
    shown = f"{type(error).__name__}: {text}" if text else type(error).__name__
    if verbose:
        traceback.print_exception(error, file=sys.stderr)
    fix = "" if verbose else "; `kfuzz -v …` prints the traceback"
    _say(f"internal error: {shown}{fix}")
    return ExitCode.INTERNAL


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
