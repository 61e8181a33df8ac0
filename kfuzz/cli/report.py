"""kfuzz report: make reports afterwards, of what runs told and what a corpus holds."""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from kfuzz.cli.exit_codes import ExitCode
from kfuzz.cli.project import Project, open_project
from kfuzz.cli.settings import CorpusOption, option
from kfuzz.cli.values import reports
from kfuzz.core.errors import NothingToRunError, UsageError, suggestion
from kfuzz.core.event import Event, Exited, FindingSaved, Notice
from kfuzz.report.event_lines import MAX_LINE_CHARACTERS, read_events
from kfuzz.report.kinds import NAMES
from kfuzz.store.corpus import Problem

if TYPE_CHECKING:
    from kfuzz.report.gathered import Gathered


def report(
    wanted: Annotated[
        list[str],
        typer.Argument(
            metavar="KIND=FILE [ID]",
            help=f"KIND is one of {', '.join(NAMES)}; several by spaces or commas. "
            "Ids of findings after them: of these alone. `issue` is of one finding.",
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

    words, ids = _apart(wanted)
    chosen = reports(words, "kfuzz report")
    project = open_project(corpus, existing=True)
    _require_files(events or [], [str(r.path) for r in chosen])
    if not events and not os.path.isdir(project.corpus):
        raise NothingToRunError(
            "no finding is stored here",
            where=str(project.corpus),
            fix="--corpus names another folder, --events what a run kept",
        )
    told = [event for name in events or [] for event in _kept(name)]
    if corpus is not None or not events:
        told += _stored(project)
    if ids:
        told = _only(told, ids)
    files = ReportFiles(
        chosen, root=project.root, options=project.options, findings=_ids(told)
    )
    exited = Exited()
    for event in told:
        if isinstance(event, Exited):
            exited = event
        else:
            files.feed(event)
    files.finish(exited)
    files.require_written()
    return ExitCode.OK


def _apart(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words that ask for reports, and the ids behind the first of them."""
    asks = [i == 0 or "=" in word or word in NAMES for i, word in enumerate(words)]
    each = list(zip(words, asks, strict=True))
    return [w for w, ask in each if ask], [w for w, ask in each if not ask]


def _gathered(told: Iterable[Event]) -> "Gathered":
    from kfuzz.report.gathered import Gathered

    run = Gathered()
    for event in told:
        run.feed(event)
    return run


def _ids(told: Iterable[Event]) -> list[str]:
    """Return the ids of all findings that events tell of."""
    return [shown.finding.id for shown in _gathered(told).findings]


def _only(told: Iterable[Event], ids: Sequence[str]) -> list[Event]:
    """Return events that tell of some findings alone.

    Args:
        told: all there are.
        ids: each an id, one that a finding had before, or the beginning of just one.

    Raises:
        UsageError: if one is the id of no finding, or the beginning of several.
    """
    every = _gathered(told).findings
    found: dict[str, Event] = {}
    for id in ids:
        fit = [s for s in every if id in (s.finding.id, *s.finding.former)]
        fit = fit or [s for s in every if s.finding.id.startswith(id)]
        if len(fit) != 1:
            what = (
                f"is the beginning of {len(fit)} ids" if fit else "is no finding's id"
            )
            named = [s.finding.id for s in fit or every]
            raise UsageError(
                f"{id!r:.200} {what}", where="kfuzz report", fix=suggestion(id, named)
            )
        one = fit[0]
        found[one.finding.id] = FindingSaved(
            one.kernel, one.finding, one.path, one.is_new, "done"
        )
    return list(found.values())


def _kept(name: str) -> list[Event]:
    """Return what a run kept, malformed text included as such.

    Raises:
        DecodeError: if it is malformed.
        NothingToRunError: if it kept nothing.
    """
    with open(name, encoding="utf-8", errors="surrogateescape") as lines:
        pieces = iter(lambda: lines.readline(MAX_LINE_CHARACTERS + 1), "")
        told = list(read_events(pieces, where=name))
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
        if not os.path.isfile(name):
            raise UsageError("no such file", where=f"--events {name}")
        if os.path.realpath(name) in places:
            raise UsageError(
                "is read and would be overwritten",
                where=f"--events {name}",
                fix="name another file for the report",
            )
