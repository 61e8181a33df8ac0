"""What stands beside the core: its verbs and hooks, found by their entry points.

A feature is a folder of `kfuzz/features/`. pyproject.toml names what it adds to the
command line (`kfuzz.verbs`) and what the core calls if it is there (`kfuzz.hooks`).
The core imports no feature: without the folder it lacks these, and nothing else.
"""

import os
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Final

from kfuzz.core.errors import UsageError

HOME: Final = str(Path(__file__).resolve().parents[2])
"""The folder that holds the package."""
INSTALLED: Final = Path(HOME).name in ("site-packages", "dist-packages")
"""Whether other packages lie there, too."""

_FOLDER: Final = "kfuzz.features"


@cache
def _points(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group, of a checkout as its pyproject.toml says."""
    found = {point.name: point for point in entry_points(group=group)}
    project = Path(HOME, "pyproject.toml")
    if project.is_file():  # a checkout, which need not be installed
        declared = tomllib.loads(project.read_text())["project"]["entry-points"]
        own = declared.get(group, {})
        found |= {name: EntryPoint(name, value, group) for name, value in own.items()}
    return found


def _loaded(point: EntryPoint) -> Any:
    """Return what an entry point names; None where its folder is not there."""
    try:
        return point.load()
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith(_FOLDER):
            raise
        return None


def verbs() -> Iterator[tuple[str, Any]]:
    """Yield each verb of a feature: its name, and its function or typer application."""
    for name, point in sorted(_points("kfuzz.verbs").items()):
        if (verb := _loaded(point)) is not None:
            yield name, verb


def hook(name: str) -> Any:
    """Return what a feature has the core call, as pyproject.toml names it; or None."""
    point = _points("kfuzz.hooks").get(name)
    return point and _loaded(point)


def needed(name: str, where: str) -> Any:
    """Return a hook.

    Raises:
        UsageError: if it is not there.
    """
    if (found := hook(name)) is None:
        raise UsageError(
            f"this needs {name!r} of {_FOLDER}, which is not there",
            where=where,
            fix="install kfuzz whole",
        )
    return found


def with_home(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which Python finds this kfuzz.

    Before any other, unless other packages lie beside it: those that the environment
    names come before these.
    """
    path = [HOME, environment.get("PYTHONPATH")]
    found = filter(None, reversed(path) if INSTALLED else path)
    return {**environment, "PYTHONPATH": os.pathsep.join(found)}
