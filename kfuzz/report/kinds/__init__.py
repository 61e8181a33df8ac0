"""The kinds of reports in files: each module here is one, and has its name.

Nothing else names them. A module says in its `KIND` how such a report comes about; it
is imported when one is asked for, so that the command line starts without contracts
and templates.
"""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from kfuzz.core.event import Event

NAMES: Final = tuple(sorted(m.name for m in pkgutil.iter_modules(__path__)))
"""Every kind."""


Document = Callable[..., str]
"""Makes a report: `run` is what is known at its end; `root` the project's folder, below
which the lines of kernels are looked up, and which no report names; `options` what the
commands in it need to find the corpus."""


@dataclass(frozen=True)
class ReportKind:
    """How a report comes about: by one of two.

    Attributes:
        document: makes it at the end, whole or not at all.
        stream: given its file, returns what takes each event as it comes.
        of_one: whether it is of one finding.
    """

    document: Document | None = None
    stream: "Callable[[TextIO], Callable[[Event], None]] | None" = None
    of_one: bool = False


@dataclass(frozen=True)
class ReportFile:
    """One report that is asked for.

    Attributes:
        kind: one of `NAMES`.
        path: where it goes, as given.
        with_folder: whether its folder is made where it is not there: what a file
            configures holds in a fresh checkout too, while on a command line a folder
            that is not there is mostly a slip.
    """

    kind: str
    path: Path
    with_folder: bool = False

    def __str__(self) -> str:
        return f"report {self.kind}={self.path}"

    def load(self) -> ReportKind:
        """Return how it comes about."""
        kind: ReportKind = importlib.import_module(f"{__name__}.{self.kind}").KIND
        return kind
