"""An engine that is asked and does nothing, for the tests of the command line."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from kfuzz.core.event import Event, FindingSaved, RunFinished
from kfuzz.core.finding import Finding
from kfuzz.core.verdict import ReplayOutcome
from kfuzz.engine.config import ReplayConfig, ReplayResult, RunConfig
from kfuzz.store.corpus import Corpus, Problem, Stored
from tests.helpers.events import NODE, campaign
from tests.helpers.findings import finding

ROOT = Path(__file__).parents[2]


@dataclass
class Engine:
    """Stands in for the engine: yields prepared events, keeps what was asked."""

    events: Sequence[Event | BaseException] = field(default_factory=campaign)
    outcomes: Sequence[ReplayOutcome] = ()
    runs: list[RunConfig] = field(default_factory=list)
    replays: list[ReplayConfig] = field(default_factory=list)
    replayed: list[Stored | Problem] = field(default_factory=list)
    before: Callable[[threading.Event], None] = lambda stop: None
    ended: bool = False
    failures: int = 1

    def run(
        self, config: RunConfig, *, stop: threading.Event, guides: object = None
    ) -> Iterator[Event]:
        self.runs.append(config)
        self.before(stop)
        for event in self.events:
            if isinstance(event, BaseException):
                raise event
            if isinstance(event, RunFinished):
                event = replace(event, interrupted=stop.is_set())
            yield event
        self.ended = True

    def replay(
        self,
        stored: Sequence[Stored | Problem],
        config: ReplayConfig,
        *,
        stop: threading.Event,
    ) -> Iterator[ReplayResult]:
        self.replays.append(config)
        self.replayed += stored
        for entry, outcome in zip(stored, self.outcomes, strict=False):
            known = entry.finding if isinstance(entry, Stored) else None
            yield ReplayResult(known, entry.path, outcome, self.failures,
                               config.times, "why",
                               ("torch: 2.11 -> 2.13",))  # fmt: skip

    def shrink(
        self, stored: Stored, config: ReplayConfig, *, stop: threading.Event
    ) -> Iterator[Event]:
        self.replays.append(config)
        yield FindingSaved(NODE, stored.finding, str(stored.path), False, "done")


def stored(project: Path, **changes: Any) -> Finding:
    found = finding(**changes)
    Corpus(project / "corpus").save(found)
    return found


def config_says(project: Path, text: str) -> None:
    (project / "pyproject.toml").write_text(f"[tool.kfuzz]\n{text}\n")


def paragraph(capsys: pytest.CaptureFixture[str]) -> str:
    """Return the one line of standard error that tells an error, and is the last.

    Before it stands at most what is imported; standard output must be empty.
    """
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    *before, last = err.splitlines(keepends=True)
    assert all(line.startswith("kfuzz: importing ") for line in before)
    assert last.startswith("kfuzz: error: ")
    return last


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def python(
    words: list[str], *, stdout: int = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        env=environment(),
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
