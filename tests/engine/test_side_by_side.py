"""Campaigns of several kernels at once: the same cases, told in one stream."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from kfuzz.app import main
from kfuzz.core.codec import encode
from kfuzz.core.event import (
    Event,
    KernelFinished,
    Notice,
    RunFinished,
)
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CaseReport, Verdict
from kfuzz.engine.search import campaign
from kfuzz.engine.search.round import Round
from tests.helpers.searches import searched

KERNELS = """\
import torch
from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops


@kernel(ops.relu)
def right(x):
    return torch.relu(x)


@kernel(ops.relu)
def wrong(x):
    return torch.relu(x) + (x.numel() % 5 == 1)


@kernel(ops.copy)
def other(x):
    return x.clone()
"""


FATAL = """

@kernel(ops.sum)
def fatal(x, dim):
    if x.numel() % 3 == 1:
        import os

        os.abort()
    return torch.sum(x, dim)
"""


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    path = tmp_path / "kernels.py"
    path.write_text(KERNELS)
    return path


def events(kernels: Path, jobs: int | None, *, seed: int = 5) -> list[Event]:
    corpus = kernels.parent / f"corpus {jobs}"
    return searched(kernels, max_cases=30, seed=seed, corpus=corpus, jobs=jobs)


Judged = dict[str, list[str]]


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> Judged:
    """Return what is judged from now on: cases, verdicts and errors, by kernel."""
    judged: Judged = defaultdict(list)
    learn = Round.learn

    def told(self: Round, case: Case, report: CaseReport) -> None:
        line = json.dumps([encode(case), encode(report.verdicts), repr(report.ratio)])
        judged[self._kernel.name].append(line)
        learn(self, case, report)

    monkeypatch.setattr(Round, "learn", told)
    return judged


@pytest.mark.slow
def test_the_cases_and_verdicts_of_a_kernel_do_not_depend_on_the_jobs(
    kernels: Path, judged: Judged
) -> None:
    kernels.write_text(KERNELS + FATAL)
    runs = []
    for jobs in (1, 2, 3):
        judged.clear()
        told = events(kernels, jobs)
        found = {
            e.kernel: [f.id for f in e.findings]
            for e in told
            if isinstance(e, KernelFinished)
        }
        runs.append(({name: "\n".join(lines) for name, lines in judged.items()}, found))
    assert runs[0] == runs[1] == runs[2]
    texts, found = runs[0]
    assert set(texts) == {"right", "wrong", "fatal", "other"}
    assert all(text.count("\n") >= 29 for text in texts.values())
    assert len(found["kernels.py::wrong"]) >= 1
    assert len(found["kernels.py::fatal"]) >= 1


def test_what_a_run_draws_depends_on_its_seed(kernels: Path, judged: Judged) -> None:
    text = "@kernel(ops.exp)\ndef rounding(x):\n    return torch.exp(x)\n"
    kernels.write_text(KERNELS.partition("@kernel")[0] + text)

    def drawn(seed: int) -> str:
        judged.clear()
        events(kernels, 1, seed=seed)
        return "\n".join(judged["rounding"])

    first = drawn(5)
    assert first != drawn(6)
    assert first == drawn(5)


@pytest.mark.slow
def test_what_breaks_in_one_kernels_turn_is_an_error_of_that_kernel(
    kernels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws = campaign.Campaign.draws

    def broken(self: Any, kernel: Any, *given: Any) -> Any:
        if kernel.name == "right" and kernel.rounds:
            raise ZeroDivisionError("a mistake of kfuzz's")
        return draws(self, kernel, *given)

    monkeypatch.setattr(campaign.Campaign, "draws", broken)
    told = events(kernels, 3)
    finished = {e.kernel: e for e in told if isinstance(e, KernelFinished)}
    assert finished["kernels.py::right"].cases == 25
    verdicts = {
        name: {t.verdict for t in e.contracts.values()} for name, e in finished.items()
    }
    assert Verdict.ERROR in verdicts["kernels.py::right"]
    assert Verdict.ERROR not in verdicts["kernels.py::other"]
    assert finished["kernels.py::other"].cases == 30
    [notice] = [e for e in told if isinstance(e, Notice) and "given up" in e.message]
    assert "ZeroDivisionError: a mistake of kfuzz's" in notice.message
    assert f"in {broken.__name__}" in notice.trace
    assert notice.trace.endswith("ZeroDivisionError: a mistake of kfuzz's\n")
    assert isinstance(told[-1], RunFinished)


@pytest.mark.slow
def test_what_the_disk_refuses_is_told_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "mine.py").write_text(
        KERNELS.partition("@kernel")[0]
        + "@kernel(ops.relu)\ndef wrong(x):\n    return torch.relu(x) + 1\n"
    )

    # Where the kernel's folder should be: no entry can be made below it.
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "wrong").write_text("")
    words = ["run", "mine.py", "--device", "cpu", "--max-cases", "9", "--seed", "1"]
    assert main([*words, "--format", "json", "--report", "markdown=r.md"]) == 3
    told = capsys.readouterr()
    assert "cannot be written" in told.err
    assert "found, and NOT SAVED: " in told.err
    document = json.loads(told.out)
    [entry] = [k for k in document["kernels"] if k["kernel"] == "mine.py::wrong"]
    assert len(entry["findings"]) == 1
    assert any("NOT SAVED" in notice["message"] for notice in document["notices"])
    report = (tmp_path / "r.md").read_text()
    assert "no violation confirmed, 1 not confirmed" in report
    assert "cannot be written" in report
