"""--report KIND=FILE: which reports are asked for, and how a run feeds them."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kfuzz.cli.errors import code_of, line_of
from kfuzz.core.errors import UsageError, suggestion
from kfuzz.core.event import Event, Exited
from kfuzz.report.kinds import NAMES, ReportFile

if TYPE_CHECKING:  # it loads the contracts
    from kfuzz.report.files import ReportFiles

KINDS: Final = NAMES
# A file's name may hold commas, as long as no other report seems to begin there.
_NEXT: Final = re.compile(r",(?=[A-Za-z_-]*=)")

ReportOption = Annotated[
    list[str] | None,
    typer.Option(
        "--report",
        metavar="KIND=FILE[,…]",
        help=f"Write a report; KIND is one of {', '.join(KINDS)}. Repeatable.",
        show_default=False,
    ),
]


def wanted(given: Sequence[str], option: str = "--report") -> list[ReportFile]:
    """Return the reports that "html=a.html,junit=b.xml" and the like ask for.

    Args:
        given: the words, each with one or several reports.
        option: what gave them, for error messages.

    Raises:
        UsageError: if one names no kind or no file.
    """
    reports = []
    for word in given:
        for text in _NEXT.split(word):
            kind, _, path = text.partition("=")
            if kind not in KINDS:
                fix = suggestion(kind, KINDS) + f"; write {option} html=report.html"
                raise UsageError(f"{text!r:.60} names no report", where=option, fix=fix)
            if not path:
                raise UsageError(
                    f"{text!r:.60} names no file",
                    where=option,
                    fix=f"write {kind}=FILE",
                )
            reports.append(ReportFile(kind, Path(path)))
    return reports


@contextmanager
def ending(files: "ReportFiles | None", command: str) -> Iterator[list[int]]:
    """Write the reports when the block ends, however it does.

    Args:
        files: the reports; None if none are asked for.
        command: the command line that repeats the run.

    Yields:
        A list to which the block adds its exit code.

    Raises:
        HarnessError: if a report could not be written and nothing else was raised.
    """
    codes: list[int] = []
    if files is None:
        yield codes
        return
    try:
        yield codes
    except BaseException as error:
        files.finish(Exited(code_of(error), line_of(error), command))
        for problem in files.problems:  # the error that is raised says nothing of them
            typer.echo(f"kfuzz: {problem}", err=True)
        raise
    files.finish(Exited(codes[-1] if codes else None, "", command))
    files.require_written()


def told(events: Iterable[Event], files: "ReportFiles | None") -> Iterator[Event]:
    """Yield the events, each told to the reports first.

    So they learn also of those that come while a run is being ended because what
    reads its output has left.
    """
    for event in events:
        if files is not None:
            files.feed(event)
        yield event
