"""Which of a user's files is being imported, and who is told of it.

An import runs a stranger's code: it may end its process, or not end at all. Who watches
that process is told when one begins and when it is over.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from kfuzz.core.errors import BindingError

SECONDS: Final = 300.0
"""How long an import may take: as long as a child may take to open."""
VARIABLE: Final = "KFUZZ_IMPORT_SECONDS"
"""Environment variable: other seconds, where an import builds for longer."""

# The innermost last.
_under_way: Final[list[str]] = []
# Who is told, and in which process: a fork's imports are another's to watch.
_told: tuple[Callable[[str], None], int] | None = None


def limit() -> float:
    """Return how many seconds an import may take."""
    given = os.environ.get(VARIABLE, "")
    return float(given) if given.isdigit() and int(given) else SECONDS


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


def overdue(target: str) -> BindingError:
    """Return what is said of an import that did not end within its limit."""
    return BindingError(
        f"importing it does not end within {limit():.0f} s",
        where=target,
        fix=f"see what waits there; where it builds for longer, set {VARIABLE}",
    )
