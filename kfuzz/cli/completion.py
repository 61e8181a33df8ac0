"""What the tab key offers: targets, ids of findings, contracts and operators.

Whatever goes wrong offers nothing: a shell that completes is no place for errors.
"""

import os
from pathlib import Path
from typing import Final

import typer

VARIABLE: Final = "_KFUZZ_COMPLETE"
"""Set by the shell's script while it asks for completions."""

# Files below a folder that is completed; more are no help.
_MOST: Final = 200


def targets(incomplete: str) -> list[str]:
    """Return files and folders that begin so."""
    try:
        folder = Path(os.path.dirname(incomplete) or ".")
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)[:_MOST]
        paths = [
            f"{os.path.join(os.path.dirname(incomplete), e.name)}{'/' * e.is_dir()}"
            for e in entries
            if not e.name.startswith((".", "__"))
            and (e.is_dir() or e.name.endswith(".py"))
        ]
    except (OSError, ValueError):
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
