"""From ID, FILE or DIR on the command line to entries of a corpus."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import typer

from kfuzz.cli.project import Project
from kfuzz.core.errors import DecodeError, NothingToRunError
from kfuzz.report.corpus_lists import problem_line
from kfuzz.store.corpus import Corpus, Problem, ProblemKind, Stored
from kfuzz.store.entry import FINDING


def chosen(names: Sequence[str], project: Project) -> list[Stored | Problem]:
    """Return the entries that the names select, each once, in order.

    Args:
        names: ids, finding.json files, folders of one or of many findings;
            none selects the whole corpus.
        project: its corpus holds the ids.

    Entries of a format that this version does not know are skipped, which is said,
    unless they are named one by one.

    Raises:
        UsageError: if a name selects nothing.
        NothingToRunError: if the corpus is empty.
    """
    found: dict[Path, Stored | Problem] = {}
    if not names:
        found = {entry.path: entry for entry in project.store().entries()}
    for name in names:
        for entry in _named(name, project):
            found.setdefault(Path(os.path.abspath(entry.path)), entry)
    for path, entry in list(found.items()):
        if isinstance(entry, Problem) and entry.kind is ProblemKind.FORMAT:
            typer.echo(f"kfuzz: skipped: {problem_line(entry)}", err=True)
            del found[path]
    if not found:
        raise NothingToRunError(
            "no finding to replay",
            where=str(project.corpus),
            fix="`kfuzz run` stores what it finds there",
        )
    return list(found.values())


def _named(name: str, project: Project) -> Iterator[Stored | Problem]:
    if os.path.isdir(name) and not os.path.isfile(Path(name) / FINDING):
        inside = list(_inside(Path(name)))
        yield from inside
        if inside:
            return  # else an id may be meant that a folder happens to share
    try:
        yield project.store().find(name)
    except DecodeError as error:
        yield Problem(_place(name, project), str(error), ProblemKind.DAMAGED)


def _inside(folder: Path) -> Iterator[Stored | Problem]:
    """Yield the entries of a corpus, or of one kernel's folder in it."""
    if any(folder.glob(f"*/{FINDING}")):
        own = folder.resolve()
        for entry in Corpus(own.parent).entries():
            if entry.path.parent == own:
                yield entry
    else:
        yield from Corpus(folder).entries()


def _place(name: str, project: Project) -> Path:
    path = Path(name)
    if path.name == FINDING:
        return path.parent
    if path.is_dir():
        return path
    for entry in project.store().entries():
        relative = "-".join(entry.path.relative_to(project.corpus).parts)
        if relative.startswith(name):
            return entry.path
    return project.corpus
