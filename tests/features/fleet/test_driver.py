"""The driver of a fleet: what it tells, and what is in the corpus, whatever happens."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kfuzz.core.budget import Budget
from kfuzz.core.errors import (
    BackendError,
    BindingError,
    HarnessError,
    UsageError,
)
from kfuzz.core.event import (
    Event,
    FindingSaved,
    KernelFinished,
    Notice,
    RunFinished,
    RunStarted,
)
from kfuzz.core.finding import Finding
from kfuzz.core.verdict import State, Verdict
from kfuzz.engine.config import RunConfig
from kfuzz.features.fleet.driver import Driver
from kfuzz.features.fleet.worker import (
    RETRIES,
    Place,
    Rejected,
    Search,
    Surveyed,
)
from kfuzz.store.corpus import Corpus, Stored
from tests.helpers.events import NODE, finished
from tests.helpers.fake_fleet import FakeCluster, Script, survey_or
from tests.helpers.findings import finding

PLACE = Place(NODE, NODE, "softmax")
FOUND = finding()
LOST = HarnessError("the worker was killed")


def early(found: Finding) -> Finding:
    return replace(found, explanation=None, state=State.NEW)


def told(found: Finding, stage: str) -> tuple[FindingSaved, Finding]:
    shown = early(found) if stage == "found" else found
    event = FindingSaved(NODE, shown, "there", is_new=True, stage=stage)
    return event, shown


def whole(*found: Finding) -> Script:
    """Return what a unit tells that finds these."""
    for one in found:
        yield 1.0, told(one, "found")
        yield 1.0, told(one, "done")
    yield 1.0, (finished(*found), None)


class Bench:
    """A driver on a cluster whose units follow scripts, two at once."""

    def __init__(self, folder: Path) -> None:
        self.corpus = Corpus(folder / "corpus")
        self.config = RunConfig(
            ("k.py",), folder, self.corpus.root, seed=7,
            budget=Budget(None, max_cases=100),
        )  # fmt: skip
        self.places: tuple[Place, ...] = (PLACE,)
        self.stop = threading.Event()
        self.cluster: FakeCluster

    def run(
        self,
        of: Callable[[Search, int], Script],
        before: Callable[[Event], None] = lambda event: None,
    ) -> list[Event]:
        script = survey_or(Surveyed("cuda", self.places), of)
        self.cluster = FakeCluster(2, script)
        made = []
        for event in Driver(self.config, self.cluster, self.stop).events():
            made.append(event)
            before(event)
        return made

    @property
    def searches(self) -> list[Search]:
        """The units that were begun, but the survey."""
        every = self.cluster.submitted.values()
        return [work for work in every if isinstance(work, Search)]

    def stored(self) -> list[str]:
        entries = self.corpus.entries()
        return sorted(e.finding.id for e in entries if isinstance(e, Stored))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def saved(events: list[Event], stage: str = "done") -> list[str]:
    return [
        e.finding.id for e in events if isinstance(e, FindingSaved) and e.stage == stage
    ]


def notices(events: list[Event]) -> str:
    return "\n".join(e.message for e in events if isinstance(e, Notice))


def kernel(events: list[Event]) -> KernelFinished:
    (one,) = [e for e in events if isinstance(e, KernelFinished)]
    return one


def test_a_run_tells_what_a_run_on_one_machine_does(bench: Bench) -> None:
    events = bench.run(lambda work, attempt: whole(FOUND))
    assert isinstance(events[0], RunStarted)
    assert events[0].kernels == (NODE,)
    assert saved(events, "found") == [early(FOUND).id]
    assert saved(events) == bench.stored() == [FOUND.id]
    assert kernel(events).contracts == finished(FOUND).contracts
    assert list(kernel(events).paths) == [FOUND.id]
    assert Path(kernel(events).paths[FOUND.id]).is_dir()
    assert isinstance(events[-1], RunFinished)
    assert not events[-1].interrupted


def test_a_unit_is_the_run_itself_for_one_kernel(bench: Bench) -> None:
    asked: list[Search] = []

    def script(work: Search, attempt: int) -> Script:
        asked.append(work)
        return whole()

    bench.run(script)
    (work,) = asked
    assert work.config.seed == bench.config.seed
    assert work.config.budget == bench.config.budget
    assert work.config.targets == (NODE,)
    assert not work.config.seen


def test_what_a_lost_worker_had_is_done_anew_and_told_once(bench: Bench) -> None:
    def script(work: Search, attempt: int) -> Script:
        if not attempt:
            yield 1.0, told(FOUND, "found")
            yield 1.0, told(FOUND, "done")
            yield 1.0, (finished(FOUND), None)
            yield 1.0, LOST
        yield from whole(FOUND)

    events = bench.run(script)
    assert saved(events, "found") == [early(FOUND).id]
    assert saved(events) == bench.stored() == [FOUND.id]
    assert "it is done anew" in notices(events)
    assert kernel(events).cases == finished().cases


def test_announced_before_all_workers_are_lost_is_in_the_corpus(bench: Bench) -> None:
    def script(work: Search, attempt: int) -> Script:
        yield 1.0, told(FOUND, "found")
        yield 1000.0, (finished(), None)

    with pytest.raises(BackendError, match="no worker reported"):
        bench.run(script)
    assert bench.stored() == [early(FOUND).id]


def test_a_kernel_whose_units_end_their_processes_is_not_green(bench: Bench) -> None:
    def script(work: Search, attempt: int) -> Script:
        yield 1.0, HarnessError("the process of a unit ended: SIGKILL")

    events = bench.run(script)
    assert "SIGKILL" in kernel(events).uncompared
    assert not kernel(events).cases
    assert "given up" in notices(events)
    assert bench.cluster._attempts[2] == 1 + RETRIES


def test_what_is_wrong_with_a_target_ends_the_run(bench: Bench) -> None:
    def script(work: Search, attempt: int) -> Script:
        yield 1.0, BindingError("no shape fits")

    with pytest.raises(BindingError, match="no shape fits"):
        bench.run(script)


def test_a_rejected_worker_keeps_its_place_and_another_does_its_unit(
    bench: Bench,
) -> None:
    why = "a worker on node 2: torch 2.11.0 (here 2.12.0)"

    def script(work: Search, attempt: int) -> Script:
        if len(bench.searches) == 1:
            yield 1.0, Rejected(why)
        yield from whole(FOUND)

    events = bench.run(script)
    assert f"{why}: it does no more of this run" in notices(events)
    first, second, *_ = bench.searches
    assert first.config.seed == second.config.seed == bench.config.seed
    assert saved(events) == [FOUND.id]


def test_without_a_worker_that_is_accepted_the_run_ends(bench: Bench) -> None:
    def script(work: Search, attempt: int) -> Script:
        yield 1.0, Rejected("torch 2.11.0 (here 2.12.0)")

    with pytest.raises(UsageError, match="every worker is rejected: torch"):
        bench.run(script)


def test_each_kernel_has_a_unit_although_starting_takes_the_time(bench: Bench) -> None:
    names = ["a", "b", "c"]
    bench.places = tuple(Place(f"k.py::{n}", f"k.py::{n}", n) for n in names)
    bench.config = replace(bench.config, budget=Budget(15.0))
    asked: list[Search] = []

    def script(work: Search, attempt: int) -> Script:
        asked.append(work)
        yield 18.0, (finished(), None)

    bench.run(script)
    searched = [work.config.chosen[0] for work in asked if work.config.chosen]
    assert searched == names
    assert asked[-1].config.budget.max_time == 10.0


def test_units_of_a_night_tell_one_fault_once(bench: Bench) -> None:
    bench.config = replace(bench.config, budget=Budget(60.0))
    seen: list[bool] = []
    seeds: set[int] = set()

    def script(work: Search, attempt: int) -> Script:
        seen.append(bool(work.config.seen))
        seeds.add(work.config.seed)
        made = replace(
            FOUND, first=replace(FOUND.first, scalars={"dim": work.config.seed})
        )
        yield from list(whole(made))[:2]
        yield work.config.budget.max_time or 0.0, (finished(made), None)

    events = bench.run(script)
    assert saved(events) == bench.stored() == [FOUND.id]
    assert seen[:2] == [False, False]  # at once: neither can know of the other's
    assert len(seeds) == len(seen) >= 2
    assert kernel(events).cases == len(seen) * finished().cases
    assert kernel(events).contracts["C-PRC-01"].verdict is Verdict.VIOLATES


def test_enough_findings_end_the_run(bench: Bench) -> None:
    names = [f"k{n}" for n in range(6)]
    bench.places = tuple(Place(f"k.py::{n}", f"k.py::{n}", n) for n in names)
    budget = replace(bench.config.budget, max_findings=1)
    bench.config = replace(bench.config, budget=budget)
    events = bench.run(lambda work, attempt: whole(FOUND))
    assert saved(events) == [FOUND.id]
    assert len(bench.searches) < len(names)
    assert isinstance(events[-1], RunFinished)
    assert not events[-1].interrupted


def test_ctrl_c_tells_what_came_of_it(bench: Bench) -> None:
    def stop(event: Event) -> None:
        if isinstance(event, FindingSaved):
            bench.stop.set()

    def script(work: Search, attempt: int) -> Script:
        yield from list(whole(FOUND))[:2]
        yield 1000.0, (finished(FOUND), None)

    events = bench.run(script, before=stop)
    assert bench.cluster.ended
    assert isinstance(events[-1], RunFinished)
    assert events[-1].interrupted
    assert len(bench.stored()) == 1
