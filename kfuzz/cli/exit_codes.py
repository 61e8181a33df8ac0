"""What kfuzz exits with, and which error leads to which code."""

from enum import IntEnum
from typing import Final

from kfuzz.core.errors import (
    BackendError,
    BindingError,
    DecodeError,
    KfuzzError,
    NothingToRunError,
    UsageError,
)


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
_CODES: Final[dict[type[KfuzzError], ExitCode]] = {
    UsageError: ExitCode.USAGE,
    BindingError: ExitCode.USAGE,
    DecodeError: ExitCode.USAGE,
    NothingToRunError: ExitCode.NOTHING_TO_RUN,
    BackendError: ExitCode.NO_BACKEND,
}


def code_of_search(
    *,
    interrupted: bool,
    violated: bool,
    failed: bool,
    ran: bool,
    lacking: bool = False,
) -> ExitCode:
    """Return what a search ends with.

    Args:
        interrupted: whether a signal ended it: what else came of it is then not all.
        violated: whether something is charged.
        failed: whether kfuzz could not judge something.
        ran: whether anything was judged: if nothing was, that is no success.
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


def exit_code_of(error: KfuzzError) -> ExitCode:
    """Return the code that an error ends kfuzz with; INTERNAL where none is named."""
    for kind in type(error).__mro__:
        if kind in _CODES:
            return _CODES[kind]
    return ExitCode.INTERNAL
