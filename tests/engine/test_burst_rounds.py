"""A round of bursts: what is submitted, what is judged, and when it ends."""

import math
import threading
import time
from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any

import torch

from kfuzz.contracts import operators as ops
from kfuzz.contracts.binding import kernel as bound
from kfuzz.core.budget import Burst, Depth, Screened, Suspect
from kfuzz.core.finding import Target
from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.core.verdict import CaseReport, Failure, Kind, Verdict
from kfuzz.engine.search.record import Record
from kfuzz.engine.search.round import (
    LEAST_SECONDS,
    BatchRound,
    KernelSearch,
    Round,
)
from kfuzz.targets.load import LoadedKernel, Source

NAMES = (f"relu_in_rounds{i}" for i in count())
CLEAN = CaseReport({"K-VAL-01": Verdict.CONFORMS})
WRONG = Failure("K-VAL-01", Kind.VALUE, "wrong", "out")
FAILS = CaseReport({"K-VAL-01": Verdict.VIOLATES}, failure=WRONG)
PASSED = Screened(passed=8, conforms={"K-VAL-01": 8}, ratio=0.5)


class FakeRunner:
    """Answers bursts and cases in turn; the last answers stay."""

    children = SimpleNamespace(unfenced="")
    reached = SimpleNamespace(run=frozenset())
    compiled = 0.0
    slow = False

    def __init__(self, screened: list[Any], judged: list[CaseReport]) -> None:
        self.answers, self.judged = list(screened), list(judged)
        self.submitted: list[Burst] = []
        self.cases: list[Case] = []
        self.depths: list[str] = []
        self.pending = 0

    def submit(self, burst: Burst) -> None:
        assert not self.pending, "the one before is not back yet"
        self.pending += 1
        self.submitted.append(burst)

    def prefiltered(self, *, patience: float = 0.0) -> Screened:
        self.pending -= 1
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def judge(self, case: Case, depth: str, patience: float = 0) -> CaseReport:
        assert not self.pending, "the child is busy"
        self.cases.append(case)
        self.depths.append(depth)
        return self.judged.pop(0) if len(self.judged) > 1 else self.judged[0]

    def diagnose(
        self, case: Case, seconds: float, *, fresh: bool, sizes: bool = True
    ) -> CaseReport | None:
        report = self.judge(case, Depth.FULL)
        return None if self.slow else report

    def prepare(self, count: int) -> None:
        """Take notice that fresh children will be asked for."""

    def pin(self, case: Case) -> Case:
        return replace(case, poison="finite")


def relu(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x)


def round_of(
    screened: list[Any], judged: list[CaseReport] | None = None, **limits: float
) -> tuple[BatchRound, FakeRunner, Round, Record]:
    runner = FakeRunner(screened, judged or [CLEAN])
    kernel = bound(ops.relu, name=next(NAMES))(relu)
    loaded = LoadedKernel(kernel, Target("a.py", "relu"), Source())
    record = Record(frozenset({"K-VAL-01"}), ("float32",))
    turns = KernelSearch(loaded, runner, None, record)  # type: ignore[arg-type]
    turn = Round(turns, stop=threading.Event(), deadline=float("inf"))
    return BatchRound(turns, turn, **{"most": 10_000, **limits}), runner, turn, record


def burst(seed: int, members: int = 8) -> Burst:
    spec = TensorSpec((4, 4), ("d0", "d1"), "float32", fill=Fill("randn", seed))
    return Burst(Case({"x": spec}), members)


def test_a_suspect_is_judged_as_a_case_and_ends_the_round_if_it_fails() -> None:
    told = Screened(passed=7, suspects=(Suspect(3, "out is wrong"),))
    made, runner, turn, record = round_of([told], [FAILS])
    made.take(burst(2))
    made.take(burst(4))
    assert turn.found is not None
    assert len(runner.submitted) == 1
    spec = runner.cases[0].tensors["x"]
    assert spec.fill is not None
    assert spec.fill.seed != 2  # the third member's own
    assert runner.cases[0].poison == "nan"
    assert record.cases == 8


def test_a_suspect_that_passes_alone_is_judged_in_full_and_told() -> None:
    told = Screened(passed=7, suspects=(Suspect(3, "out is wrong"),))
    made, runner, turn, record = round_of([told, PASSED])
    made.take(burst(2))
    made.collect()
    assert turn.found is None
    assert [c.poison for c in runner.cases] == ["nan", "finite"]
    [note] = record.notes()
    assert note.note == "in a batch, not alone: out is wrong"


def test_a_batch_is_cut_short_where_time_is_limited_alone() -> None:
    made, runner, _, record = round_of([Screened(passed=5, dropped=3)])
    made.take(burst(2))
    made.collect()
    assert runner.submitted[0].seconds == math.inf
    [note] = record.notes()
    assert (record.cases, note.cases) == (5, 3)
    made, runner, _, _ = round_of([PASSED], end=time.monotonic())
    made.take(burst(2))
    assert runner.submitted[0].seconds == LEAST_SECONDS


def known(turn: Round) -> None:
    """Have what `FAILS` shows be a finding already."""
    turn._kernel.seen.add(WRONG.signature(turn._kernel.name))


def test_a_frequent_known_failure_does_not_hide_a_rare_one() -> None:
    often = tuple(Suspect(i, "y is wrong") for i in range(3))
    rare = Suspect(7, "memory changed that is not its own")
    usual = Screened(passed=5, suspects=often)
    told = [*[usual] * 20, Screened(passed=4, suspects=(*often, rare))]
    made, runner, turn, _ = round_of(told, [FAILS])
    known(turn)
    for seed in range(20):
        made.take(burst(2 * seed))
    assert turn.found is None
    touches = replace(WRONG, contract="K-MEM-01", kind=Kind.WRITE_OUTSIDE)
    stray = CaseReport({"K-MEM-01": Verdict.VIOLATES}, failure=touches)
    runner.judged = [FAILS, stray]
    made.take(burst(2000))
    made.collect()
    assert turn.found is not None
    assert turn.found[1].failure == touches


def test_what_ends_a_child_in_a_burst_alone_is_told() -> None:
    lost = Screened(lost="the child died of SIGSEGV", spent=True)
    made, runner, _, record = round_of([lost], [CLEAN])
    made.take(burst(2))
    made.collect()
    assert len(runner.cases) == 8
    [note] = record.notes()
    assert note.note == "in a batch, not alone: the child died of SIGSEGV"
