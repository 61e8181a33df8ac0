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


def exit_code_of(error: KfuzzError) -> ExitCode:
    """Return the code that an error ends kfuzz with; INTERNAL where none is named."""
    for kind in type(error).__mro__:
        if kind in _CODES:
            return _CODES[kind]
    return ExitCode.INTERNAL
