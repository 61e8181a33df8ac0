"""Following a plan: workers are given units, and what they tell is passed on.

What carries the calls is a `Fleet`: Ray's actors, or what a simulation makes up.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from kfuzz.core.errors import (
    BackendError,
    BindingError,
    DecodeError,
    NothingToRunError,
    UsageError,
)
from kfuzz.fleet import plan as planning
from kfuzz.fleet.plan import Action, Happening, Plan, Task
from kfuzz.fleet.versions import differences
from kfuzz.fleet.work import About, Done, Failed, Gone, Item, Report, Tried, Unit, Work

LOOK_SECONDS: Final = 0.2
JOIN_SECONDS: Final = 180.0
"""A run without any worker for so long ends: nodes come up in minutes, or never."""
REFUSED_SECONDS: Final = 20.0
"""The same where a worker was refused: others are mostly like it."""
LEAVE_SECONDS: Final = 30.0
"""For units to tell what came of them, once the run is to end."""
# What is wrong with what was asked, wherever it is done.
_FINAL: Final = (UsageError, BindingError, NothingToRunError, DecodeError)


class Fleet(Protocol):
    """Workers, wherever they are."""

    @property
    def title(self) -> str:
        """What messages call it."""

    def now(self) -> float:
        """Return the time in seconds, from any origin."""

    def receive(self, seconds: float) -> Sequence[Report]:
        """Return what workers told, waiting for so long where they tell nothing.

        Of each worker in its order, each once; the first is what it is, the last that
        it is gone, where it goes by itself.
        """

    def assign(self, worker: str, unit: Unit) -> None:
        """Have a worker begin a unit."""

    def recall(self, worker: str) -> None:
        """Have a worker end its unit soon."""

    def dismiss(self, worker: str) -> None:
        """End a worker, with all that it began."""

    def close(self) -> None:
        """End all workers."""


@dataclass(frozen=True)
class Heard:
    """A unit told something."""

    task: Task
    value: Any


@dataclass(frozen=True)
class Over:
    """A task came to its end, or is done no more: then `failed` says why."""

    task: Task
    failed: str = ""


@dataclass(frozen=True)
class Said:
    """People should know."""

    message: str
    subject: str = ""


@dataclass(frozen=True)
class Doubt:
    """What a unit told of a finding before its device failed its canaries.

    Attributes:
        task: the unit's.
        value: what it told.
        key: what the task that is to confirm it names as `doubted`.
    """

    task: Task
    value: Any
    key: str


class Dispatch:
    """Workers and their plan.

    Args:
        fleet: the workers.
        stop: set from outside to end soon.
    """

    def __init__(self, fleet: Fleet, stop: threading.Event) -> None:
        self.fleet = fleet
        self.plan = Plan()
        self.stop = stop
        self.refused: dict[str, None] = {}
        self._doubts = 0
        self._lonely = fleet.now()
        self._halted: float | None = None

    def run(
        self, work_of: Callable[[Task], Work], exhausted: Callable[[Task], bool]
    ) -> Iterator[Heard | Over | Said | Doubt]:
        """Follow the plan to its end.

        Args:
            work_of: returns what a task is.
            exhausted: whether the subject of a task that has ended needs no other.

        Raises:
            KfuzzError: what is wrong with what was asked.
            BackendError: if there are no workers.
        """
        yield from self._obey(self.plan.tick(self.fleet.now()), work_of)
        while not self.plan.is_over(now := self.fleet.now()):
            if self.stop.is_set():
                yield from self.end(work_of)
            if self._halted is not None and now - self._halted > LEAVE_SECONDS:
                return
            self._require_workers(now)
            if stuck := self.plan.deadlocked():
                self.plan.abandon(stuck)
                for task in stuck:
                    yield Over(task, "there is no other device")
                continue
            for report in self.fleet.receive(LOOK_SECONDS):
                yield from self._reported(report, work_of, exhausted)

    def end(self, work_of: Callable[[Task], Work]) -> Iterator[Over | Said]:
        """Begin nothing more, and have what runs end soon."""
        if self._halted is None:
            self._halted = self.fleet.now()
            yield from self._take(planning.Halted(), work_of)

    def _reported(
        self,
        report: Report,
        work_of: Callable[[Task], Work],
        exhausted: Callable[[Task], bool],
    ) -> Iterator[Heard | Over | Said | Doubt]:
        worker, told = report.worker, report.told
        task = self.plan.task_of(worker)
        match told:
            case About():
                why = ""
                if differing := differences(dict(told.versions)):
                    why = f"{worker} on {told.node} is rejected: {differing}"
                    self.refused[differing] = None
                joined = planning.Joined(worker, told.device, why)
                yield from self._take(joined, work_of)
            case Item() if task is not None and told.number == task.number:
                if told.suspect:
                    self._doubts += 1
                    key = str(self._doubts)
                    yield Doubt(task, told.value, key)
                    doubted = planning.Doubted(worker, task.subject, key)
                    yield from self._take(doubted, work_of)
                else:
                    yield Heard(task, told.value)
            case Done() if task is not None and told.number == task.number:
                yield Over(task)
                ended = planning.Ended(worker, exhausted(task))
                yield from self._take(ended, work_of)
            case Failed() if task is not None and told.number == task.number:
                if isinstance(told.error, _FINAL):
                    raise told.error
                why = f"{worker}: {str(told.error).partition(chr(10))[0]}"
                yield from self._take(planning.Dropped(worker, why), work_of)
            case Tried(ailment):
                yield from self._take(planning.Canary(worker, ailment), work_of)
            case Gone(why):
                yield from self._take(planning.Lost(worker, why), work_of)
            case _:  # of a unit that another worker has now
                pass

    def _take(
        self, happening: Happening, work_of: Callable[[Task], Work]
    ) -> Iterator[Over | Said]:
        yield from self._obey(self.plan.take(happening, self.fleet.now()), work_of)

    def _obey(
        self, actions: Sequence[Action], work_of: Callable[[Task], Work]
    ) -> Iterator[Over | Said]:
        for action in actions:
            match action:
                case planning.Assign(worker, task):
                    self.fleet.assign(worker, Unit(task.number, work_of(task)))
                case planning.Recall(worker):
                    self.fleet.recall(worker)
                case planning.Dismiss(worker):
                    self.fleet.dismiss(worker)
                case planning.Tell(message, subject):
                    yield Said(message, subject)
                case planning.GiveUp(task, why):
                    yield Over(task, why)

    def _require_workers(self, now: float) -> None:
        if self.plan.workers():
            self._lonely = now
            return
        patience = REFUSED_SECONDS if self.refused else JOIN_SECONDS
        if now - self._lonely > patience:
            raise self._no_workers()

    def _no_workers(self) -> Exception:
        if self.refused:
            return UsageError(
                f"every worker is rejected: {'; '.join(self.refused)}",
                where=self.fleet.title,
                fix="install the same versions on all machines",
            )
        return BackendError(
            f"no worker came up in {JOIN_SECONDS:.0f} s",
            where=self.fleet.title,
            fix="`ray status` prints what the cluster has, and what is asked of it",
        )
