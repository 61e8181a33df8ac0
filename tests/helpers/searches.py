"""Whole searches, with what most tests of them have in common."""

import threading
from pathlib import Path
from typing import Any

from kfuzz.core.budget import Budget
from kfuzz.core.event import Event
from kfuzz.engine.config import RunConfig
from kfuzz.engine.search.campaign import run

LIMITS = ("max_time", "max_cases", "max_findings")


def config_of(target: Path | str, **asked: Any) -> RunConfig:
    """Return a search of a file, or a kernel in it, on the CPU, beside its corpus.

    Args:
        target: a path, with or without `::name`.
        asked: limits of the budget, none by default; other fields of the result.
    """
    folder = Path(str(target).partition("::")[0]).parent
    limits = {name: asked.pop(name, None) for name in LIMITS}
    given = {
        "targets": (str(target),), "root": folder, "corpus": folder / "corpus",
        "seed": 1, "device": "cpu", "budget": Budget(**limits),
    }  # fmt: skip
    return RunConfig(**{**given, **asked})


def searched(target: Path | str, **asked: Any) -> list[Event]:
    """Return what a search reports; see `config_of`."""
    return list(run(config_of(target, **asked), stop=threading.Event()))
