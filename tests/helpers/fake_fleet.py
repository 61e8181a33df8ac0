"""A fleet that is made up: what workers would report comes at the times they would.

The driver is the real one. Time is simulated, so that a night passes in minutes.
"""

import heapq
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kfuzz.features.fleet.worker import About, Report, Search, Survey, Work, versions

Script = Iterator[tuple[float, Any]]
"""What a unit reports, after how many seconds each; a `Report` is taken as it is."""


@dataclass
class FakeWorker:
    """One worker.

    Attributes:
        device: what it judges on.
        node: the machine.
        versions: what it says of itself.
        ailing: whether its canaries fail from the first finding on.
        unit: number of what it does.
        epoch: changes whenever what it was about to report comes no more.
    """

    device: str
    node: str
    versions: dict[str, str] = field(default_factory=versions)
    ailing: bool = False
    unit: int = 0
    epoch: int = 0


class FakeFleet:
    """Workers that follow scripts.

    Args:
        workers: by name.
        script: returns what a piece of work tells; by work and worker.
        node_losses: nodes lost per node and second.
        returns: seconds after which a lost node is back, with new workers.
        seed: of the losses.
    """

    title = "the fake fleet"

    def __init__(
        self,
        workers: dict[str, FakeWorker],
        script: Callable[[Work, str], Script],
        *,
        node_losses: float = 0.0,
        returns: float = 600.0,
        seed: int = 0,
    ) -> None:
        self._script = script
        self._time = 0.0
        self._order = itertools.count()
        self._events: list[tuple[float, int, str, int, Report | None]] = []
        self._scripts: dict[str, Script] = {}
        self._random = random.Random(seed)
        self._losses, self._returns = node_losses, returns
        self.workers: dict[str, FakeWorker] = {}
        self.assigned: list[tuple[str, Work]] = []
        self.dismissed: list[str] = []
        self.recalled: list[str] = []
        self.lost_nodes = 0
        self.told = 0
        for name, worker in workers.items():
            self._join(name, worker, 0.0)
        if node_losses:
            for node in sorted({w.node for w in workers.values()}):
                self._schedule_loss(node)

    def now(self) -> float:
        return self._time

    def receive(self, seconds: float) -> Sequence[Report]:
        reports: list[Report] = []
        until = self._time + seconds
        while self._events and (self._events[0][0] <= until or not reports):
            when, _, name, epoch, report = heapq.heappop(self._events)
            self._time = max(self._time, when)
            reports += self._happen(name, epoch, report)
            if reports:
                return reports
        self._time = max(self._time, until)
        return reports

    def assign(self, worker: str, number: int, work: Work) -> None:
        self.assigned.append((worker, work))
        self.workers[worker].unit = number
        self._scripts[worker] = self._script(work, worker)
        self._step(worker)

    def recall(self, worker: str) -> None:
        self.recalled.append(worker)
        held = self.workers[worker]
        held.epoch += 1
        self._push(1.0, held.epoch, Report(worker, About.DONE, unit=held.unit))

    def dismiss(self, worker: str) -> None:
        self.dismissed.append(worker)
        self.workers.pop(worker).epoch += 1

    def close(self) -> None:
        self.workers.clear()

    def lose(self, worker: str, why: str = "killed") -> list[Report]:
        """Lose a worker now; return what is told of it."""
        del self.workers[worker]
        return [Report(worker, About.GONE, why)]

    def _happen(self, name: str, epoch: int, report: Report | None) -> list[Report]:
        if report is None:
            return self._lose_node(name)
        held = self.workers.get(name)
        if held is None or held.epoch != epoch:
            return []
        self.told += 1
        if report.about is About.ITEM:
            self._step(name)
        elif report.about is About.GONE:
            del self.workers[name]
        return [report]

    def _step(self, name: str) -> None:
        """Schedule the next thing that a worker's unit reports."""
        held = self.workers[name]
        done = Report(name, About.DONE)
        seconds, value = next(self._scripts[name], (0.0, done))
        if held.ailing and isinstance(value, tuple) and value[1] is not None:
            value = Report(name, About.AILING, "a sum is wrong")
        report = value
        if not isinstance(report, Report):
            report = Report(name, About.ITEM, value)
        made = replace(report, worker=name, unit=held.unit)
        self._push(seconds, held.epoch, made)

    def _push(self, seconds: float, epoch: int, report: Report) -> None:
        self._schedule(seconds, report.worker, epoch, report)

    def _schedule(
        self, seconds: float, name: str, epoch: int, report: Report | None
    ) -> None:
        when = self._time + seconds
        heapq.heappush(self._events, (when, next(self._order), name, epoch, report))

    def _join(self, name: str, worker: FakeWorker, seconds: float) -> None:
        self.workers[name] = worker
        about = worker.node, worker.device, worker.versions
        self._push(seconds, worker.epoch, Report(name, About.READY, about))

    def _schedule_loss(self, node: str) -> None:
        self._schedule(self._random.expovariate(self._losses), node, 0, None)

    def _lose_node(self, node: str) -> list[Report]:
        self.lost_nodes += 1
        names = [n for n, w in self.workers.items() if w.node == node]
        reports: list[Report] = []
        for name in names:
            worker = self.workers[name]
            reports += self.lose(name, "the node is gone")
            again = FakeWorker(worker.device, node)
            self._join(f"{name}'", again, self._returns)
        self._schedule_loss(node)
        return reports


def survey_or(
    surveyed: Any, of: Callable[[Search, str], Script]
) -> Callable[[Work, str], Script]:
    """Return scripts of a run: the survey's, those of searches by `of`."""

    def script(work: Work, worker: str) -> Script:
        match work:
            case Survey():
                return iter([(1.0, surveyed)])
            case Search():
                return of(work, worker)
        raise AssertionError(work)

    return script
