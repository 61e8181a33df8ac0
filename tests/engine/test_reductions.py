"""What reducing gets of a run's time, and what had to stop and is taken further."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from kfuzz.core.budget import Budget
from kfuzz.core.event import FindingSaved, KernelFinished
from kfuzz.core.finding import Explanation, Finding, Reduction
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import Kind, Signature, State
from kfuzz.engine.config import RunConfig
from kfuzz.engine.search import campaign
from kfuzz.engine.search import found as reductions
from kfuzz.engine.search.found import (
    KEPT_SECONDS,
    MORE_SECONDS,
    SHARE,
    UNLIMITED_SECONDS,
    Reductions,
)
from kfuzz.engine.search.schedule import RunClock
from kfuzz.store.corpus import Corpus, Stored
from tests.helpers.findings import finding

LONG = 1000.0

WRONG = """\
import torch
from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops


@kernel(ops.relu)
def wrong(x):
    return torch.relu(x) + (x.numel() % 5 == 1)
"""


class Account:
    """Shares out the time of a run that began some seconds ago."""

    def __init__(self, limit: float | None, *, ago: float = 0.0, jobs: int = 1) -> None:
        clock = RunClock(limit, jobs=jobs, started=time.monotonic() - ago)
        clock.begin(clock.started)
        self.made = Reductions(clock, jobs=jobs)

    def seconds(
        self,
        found: Finding,
        kernel: str = "a",
        *,
        share: float = LONG,
        last: bool = False,
    ) -> float:
        of = SimpleNamespace(node_id=kernel)
        return self.made.seconds(of, found, share=share, last=last)  # type: ignore[arg-type]

    def wait(self, found: Finding, kernel: str = "a") -> None:
        of, entry = SimpleNamespace(node_id=kernel), SimpleNamespace(finding=found)
        room = self.made.waiting_room(of, found)  # type: ignore[arg-type]
        if room is not None:
            room(entry)  # type: ignore[arg-type]


def other(output: str) -> Finding:
    return finding(signature=Signature("softmax", "C-PRC-01", Kind.VALUE, output))


def test_without_a_limit_no_clock_has_a_part_in_it() -> None:
    made = Account(None)
    assert {made.seconds(finding()) for _ in range(3)} == {UNLIMITED_SECONDS}
    made.wait(finding(reduction=Reduction(3, "time")))
    assert made.made.take() is None
    assert made.made.kept_back == 0


def test_a_hang_is_reduced_once() -> None:
    hang = finding(signature=Signature("softmax", "K-LIV-01", Kind.HANG))
    made = Account(LONG)
    assert made.seconds(hang) == MORE_SECONDS
    made.wait(finding(signature=hang.signature, reduction=Reduction(3, "time")))
    assert made.made.take() is None
    assert Account(60.0).seconds(hang) == SHARE * 60.0
    assert Account(60.0).seconds(hang, last=True) > SHARE * 60.0
    assert Account(20.0).seconds(hang, last=True) == 0


def test_the_search_keeps_half_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(reductions.time, "monotonic", lambda: now)
    made = Account(100.0)
    spent = 0.0
    for number in range(200):
        with made.made.counted() as confirmed:
            confirmed()
            seconds = made.seconds(other(f"y{number}"))
            now += seconds
        spent += seconds
        made.wait(finding(reduction=Reduction(3, "time")), f"kernel {number}")
    assert spent == pytest.approx(SHARE * 100.0)
    assert made.made.kept_back == pytest.approx(SHARE * 100.0)


@pytest.mark.parametrize(
    ("state", "stopped", "complete", "waits"),
    [
        (State.CONFIRMED, "time", True, True),
        (State.CONFIRMED, "minimal", False, True),
        (State.REGRESSED, "time", True, True),
        (State.CONFIRMED, "minimal", True, False),
        (State.CONFIRMED, "evaluations", True, False),
        (State.KNOWN, "time", True, False),
        (State.FLAKY, "time", True, False),
    ],
)
def test_only_what_a_clock_stopped_waits(
    state: State, stopped: str, complete: bool, waits: bool
) -> None:
    made = Account(LONG)
    explained = Explanation(complete=complete)
    made.wait(finding(
        state=state, reduction=Reduction(3, stopped), explanation=explained,
    ))  # fmt: skip
    assert made.made.kept_back == (KEPT_SECONDS if waits else 0)
    assert (made.made.take() is not None) is waits
    assert made.made.kept_back == 0


@pytest.mark.slow
def test_what_had_to_stop_is_taken_to_the_same_minimum_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kernels.py"
    path.write_text(WRONG)

    def run(
        corpus: str, limit: float | None
    ) -> tuple[list[FindingSaved], Iterator[Finding]]:
        config = RunConfig(
            targets=(str(path),), root=tmp_path, corpus=tmp_path / corpus, seed=5,
            budget=Budget(max_time=limit, max_cases=30), device="cpu",
        )  # fmt: skip
        told = list(campaign.run(config, stop=threading.Event()))
        done = [e for e in told if isinstance(e, FindingSaved) and e.stage == "done"]
        return done, (
            f for e in told if isinstance(e, KernelFinished) for f in e.findings
        )

    def minima(found: Iterator[Finding]) -> list[tuple[str, Case]]:
        return [(f.id, f.case) for f in found]

    wanted = minima(run("unlimited", None)[1])
    monkeypatch.setattr(reductions, "FIRST_SECONDS", 0.0)
    done, found = run("limited", 120.0)
    [first, second] = done
    assert first.finding.reduction is not None
    assert first.finding.reduction.stopped == "time"
    assert (first.replaces, second.replaces) == ("", first.finding.id)
    assert minima(found) == wanted
    [stored] = Corpus(tmp_path / "limited").entries()
    assert isinstance(stored, Stored)
    assert stored.finding.case == second.finding.case
    assert str(stored.path) == second.path
