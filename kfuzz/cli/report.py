"""kfuzz report: make reports afterwards, of what runs told and what a corpus holds."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from kfuzz.cli.exit_codes import ExitCode
from kfuzz.cli.project import Project, open_project
from kfuzz.cli.settings import CorpusOption, option
from kfuzz.cli.values import reports
from kfuzz.core.errors import NothingToRunError, UsageError
from kfuzz.core.event import Event, Exited, FindingSaved, Notice
from kfuzz.report.event_lines import read_events
from kfuzz.report.kinds import NAMES
from kfuzz.store.corpus import Problem


def report(
    wanted: Annotated[
        list[str],
        typer.Argument(
            metavar="KIND=FILE",
            help=f"KIND is one of {', '.join(NAMES)}; several by spaces or commas.",
        ),
    ],
    events: Annotated[
        list[str] | None,
        option(
            "--events",
            "What `kfuzz run --report jsonl=FILE` wrote; repeatable. The corpus "
            "is then read only if --corpus names it.",
            metavar="FILE",
        ),
    ] = None,
    corpus: CorpusOption = None,
) -> int:
    """Make reports of stored findings, of events that a run kept, or of both.

    What the corpus says of a finding is taken for newer than what the events say.
    """
    from kfuzz.report.files import ReportFiles

    chosen = reports(wanted, "kfuzz report")
    project = open_project(corpus, existing=True)
    _require_files(events or [], [str(r.path) for r in chosen])
    if not events and not project.corpus.is_dir():
        raise NothingToRunError(
            "no finding is stored here",
            where=str(project.corpus),
            fix="--corpus names another folder, --events what a run kept",
        )
    told = [event for name in events or [] for event in _kept(name)]
    if corpus is not None or not events:
        told += _stored(project)
    files = ReportFiles(chosen, root=project.root, options=project.options)
    exited = Exited()
    for event in told:
        if isinstance(event, Exited):
            exited = event
        else:
            files.feed(event)
    files.finish(exited)
    files.require_written()
    return ExitCode.OK


def _kept(name: str) -> list[Event]:
    """Return what a run kept, malformed text included as such.

    Raises:
        DecodeError: if it is malformed.
        NothingToRunError: if it kept nothing.
    """
    with open(name, encoding="utf-8", errors="surrogateescape") as lines:
        told = list(read_events(lines, where=name))
    if not told:  # a page without findings would pass for a run without
        raise NothingToRunError("no event is kept here", where=f"--events {name}")
    return told


def _stored(project: Project) -> Iterator[Event]:
    """Yield what a corpus holds as the events that would tell of it."""
    for entry in project.store().entries():
        if isinstance(entry, Problem):
            yield Notice("", f"skipped: {entry.what}")
        else:
            node, path = entry.finding.target.node_id, str(entry.path)
            yield FindingSaved(node, entry.finding, path, False, "done")


def _require_files(events: list[str], written: list[str]) -> None:
    """Check that what is read is there, and is not what will be written.

    Raises:
        UsageError: if not.
    """
    places = {os.path.realpath(path) for path in written}
    for name in events:
        if not Path(name).is_file():
            raise UsageError("no such file", where=f"--events {name}")
        if os.path.realpath(name) in places:
            raise UsageError(
                "is read and would be overwritten",
                where=f"--events {name}",
                fix="name another file for the report",
            )
