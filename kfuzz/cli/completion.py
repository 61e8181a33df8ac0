"""What the tab key offers: targets, ids of findings, contracts and operators.

Whatever goes wrong offers nothing: a shell that completes is no place for errors.
"""

import ast
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import typer

VARIABLE: Final = "_KFUZZ_COMPLETE"
"""Set by the shell's script while it asks for completions."""

# Files below a folder that is completed; more are no help.
_MOST: Final = 200


def targets(incomplete: str) -> list[str]:
    """Return files and folders that begin so; after "::" the names in a file."""
    file, separator, name = incomplete.partition("::")
    try:
        if separator:
            found = (f"{file}::{n}" for n in _bound(Path(file)) if n.startswith(name))
            return list(found)
        folder = Path(os.path.dirname(incomplete) or ".")
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)[:_MOST]
        paths = [
            f"{os.path.join(os.path.dirname(incomplete), e.name)}{'/' * e.is_dir()}"
            for e in entries
            if not e.name.startswith((".", "__")) and (e.is_dir() or _is_python(e.name))
        ]
    except (OSError, ValueError, SyntaxError):
        return []
    return [path for path in paths if path.startswith(incomplete)]


def ids(context: typer.Context, incomplete: str) -> list[str]:
    """Return the ids of stored findings that begin so."""
    from kfuzz.cli.project import open_project
    from kfuzz.core.errors import KfuzzError
    from kfuzz.store.corpus import Corpus, Stored

    try:
        project = open_project(context.params.get("corpus"))
        if isinstance(project.place, str):
            from kfuzz.store.mirror import folder_of

            corpus = Corpus(folder_of(project.place))  # as it is: nobody waits for it
        else:
            corpus = project.store()
        told = [e.finding.id for e in corpus.entries() if isinstance(e, Stored)]
    except (KfuzzError, OSError):
        return []
    return [id for id in told if id.startswith(incomplete)]


def _is_python(name: str) -> bool:
    return name.endswith(".py")


def _bound(file: Path) -> Iterator[str]:
    """Yield the names that a file's functions are decorated or bound under."""
    for node in ast.parse(file.read_bytes()).body:
        if isinstance(node, ast.FunctionDef) and node.decorator_list:
            yield node.name
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            yield from (t.id for t in node.targets if isinstance(t, ast.Name))
