"""The driver of a fleet: what it tells, and what is in the corpus, whatever happens."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kfuzz.core.budget import Budget
from kfuzz.core.errors import BackendError, BindingError, HarnessError
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
    ATTEMPTS,
    About,
    Place,
    Report,
    Search,
    Surveyed,
    versions,
)
from kfuzz.store.corpus import Corpus, Stored
from tests.helpers.events import NODE, finished
from tests.helpers.fake_fleet import FakeFleet, FakeWorker, Script, survey_or
from tests.helpers.findings import finding

PLACE = Place(NODE, NODE, "softmax")
FOUND = finding()
LOST = Report("", About.GONE, "killed")


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
    """A driver on a fleet of workers that follow scripts.

    The first worker, w1, lists the targets; meanwhile w2 joins, and has the first unit.
    """

    def __init__(self, folder: Path) -> None:
        self.corpus = Corpus(folder / "corpus")
        self.config = RunConfig(
            ("k.py",), folder, self.corpus.root, seed=7,
            budget=Budget(None, max_cases=100),
        )  # fmt: skip
        self.places: tuple[Place, ...] = (PLACE,)
        self.workers = {f"w{n}": FakeWorker(f"gpu {n}", f"node {n}") for n in (1, 2)}
        self.stop = threading.Event()
        self.fleet: FakeFleet

    def run(
        self,
        of: Callable[[Search, str], Script],
        before: Callable[[Event], None] = lambda event: None,
    ) -> list[Event]:
        script = survey_or(Surveyed("cuda", self.places), of)
        self.fleet = FakeFleet(self.workers, script)
        made = []
        for event in Driver(self.config, self.fleet, self.stop).events():
            made.append(event)
            before(event)
        return made

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
    events = bench.run(lambda work, worker: whole(FOUND))
    assert isinstance(events[0], RunStarted)
    assert events[0].kernels == (NODE,)
    assert saved(events, "found") == [early(FOUND).id]
    assert saved(events) == bench.stored() == [FOUND.id]
    assert kernel(events).contracts == finished(FOUND).contracts
    assert list(kernel(events).paths) == [FOUND.id]
    assert Path(kernel(events).paths[FOUND.id]).is_dir()
    assert isinstance(events[-1], RunFinished)
    assert not events[-1].interrupted


def test_what_a_lost_worker_had_is_done_anew_and_told_once(bench: Bench) -> None:
    def script(work: Search, worker: str) -> Script:
        if worker == "w2":
            yield 1.0, told(FOUND, "found")
            yield 1.0, told(FOUND, "done")
            yield 1.0, LOST
        yield from whole(FOUND)

    events = bench.run(script)
    assert saved(events, "found") == [early(FOUND).id]
    assert saved(events) == bench.stored() == [FOUND.id]
    assert "w2 is lost: killed; its unit is done anew" in notices(events)
    assert kernel(events).cases == finished().cases


def test_announced_before_the_last_worker_is_lost_is_in_the_corpus(
    bench: Bench,
) -> None:
    def script(work: Search, worker: str) -> Script:
        yield 1.0, told(FOUND, "found")
        yield 1.0, LOST

    with pytest.raises(BackendError, match="no worker came up"):
        bench.run(script)
    assert bench.stored() == [early(FOUND).id]


def test_a_kernel_whose_units_end_their_processes_is_not_green(bench: Bench) -> None:
    def script(work: Search, worker: str) -> Script:
        error = HarnessError("the process of a unit ended: SIGKILL")
        yield 1.0, Report("", About.FAILED, error)

    events = bench.run(script)
    assert "SIGKILL" in kernel(events).uncompared
    assert not kernel(events).cases
    assert "given up" in notices(events)


def test_what_is_wrong_with_a_target_ends_the_run(bench: Bench) -> None:
    def script(work: Search, worker: str) -> Script:
        yield 1.0, Report("", About.FAILED, BindingError("no shape fits"))

    with pytest.raises(BindingError, match="no shape fits"):
        bench.run(script)


def test_a_worker_with_other_versions_is_refused_by_name(bench: Bench) -> None:
    bench.workers["w2"].versions = {**versions(), "torch": "2.11.0"}
    events = bench.run(lambda work, worker: whole(FOUND))
    assert "w2 on node 2 is rejected: torch 2.11.0 (here " in notices(events)
    assert {worker for worker, _ in bench.fleet.assigned} == {"w1"}
    assert saved(events) == [FOUND.id]


def test_a_wedged_device_counts_for_nothing_and_its_unit_is_done_anew(
    bench: Bench,
) -> None:
    bench.workers["w2"].ailing = True
    bench.workers["w3"] = FakeWorker("gpu 2", "node 2", ailing=True)

    def script(work: Search, worker: str) -> Script:
        return whole() if worker == "w1" else whole(FOUND)

    events = bench.run(script)
    assert "gpu 2 is quarantined: a sum is wrong" in notices(events)
    assert set(bench.fleet.dismissed) == {"w2", "w3"}
    assert not saved(events, "found")
    assert not bench.stored()
    assert kernel(events).cases == finished().cases


def test_a_unit_that_loses_its_workers_is_given_up(bench: Bench) -> None:
    for number in range(3, ATTEMPTS + 3):
        bench.workers[f"w{number}"] = FakeWorker(f"gpu {number}", f"node {number}")

    def script(work: Search, worker: str) -> Script:
        yield 1.0, LOST

    events = bench.run(script)
    assert "given up" in notices(events)
    assert "is lost: killed" in kernel(events).uncompared
    searches = [work for _, work in bench.fleet.assigned if isinstance(work, Search)]
    assert len(searches) == ATTEMPTS


def test_units_of_a_night_tell_one_fault_once(bench: Bench) -> None:
    bench.config = replace(bench.config, budget=Budget(60.0))
    seen: list[bool] = []
    seeds: set[int] = set()

    def script(work: Search, worker: str) -> Script:
        seen.append(bool(work.config.seen))
        seeds.add(work.config.seed)
        made = replace(
            FOUND, first=replace(FOUND.first, scalars={"dim": work.config.seed})
        )
        yield from whole(made)
        yield work.config.budget.max_time or 0.0, (finished(), None)

    events = bench.run(script)
    assert saved(events) == bench.stored() == [FOUND.id]
    assert seen[:2] == [False, False]  # at once: neither can know of the other's
    assert len(seeds) == len(seen) >= 2
    assert kernel(events).cases == 2 * len(seen) * finished().cases
    assert kernel(events).contracts["C-PRC-01"].verdict is Verdict.VIOLATES


def test_enough_findings_end_the_run(bench: Bench) -> None:
    names = [f"k{n}" for n in range(6)]
    bench.places = tuple(Place(f"k.py::{n}", f"k.py::{n}", n) for n in names)
    budget = replace(bench.config.budget, max_findings=1)
    bench.config = replace(bench.config, budget=budget)
    events = bench.run(lambda work, worker: whole(FOUND))
    assert saved(events) == [FOUND.id]
    assert len(bench.fleet.assigned) < len(names)
    assert isinstance(events[-1], RunFinished)
    assert not events[-1].interrupted


def test_ctrl_c_tells_what_came_of_it(bench: Bench) -> None:
    def stop(event: Event) -> None:
        if isinstance(event, FindingSaved):
            bench.stop.set()

    def script(work: Search, worker: str) -> Script:
        yield from list(whole(FOUND))[:2]
        yield 1000.0, (finished(FOUND), None)

    events = bench.run(script, before=stop)
    assert bench.fleet.recalled == ["w2"]
    assert isinstance(events[-1], RunFinished)
    assert events[-1].interrupted
    assert len(bench.stored()) == 1
