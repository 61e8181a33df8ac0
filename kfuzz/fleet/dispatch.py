"""Units of a run on workers, each done at least once, whatever is lost.

A unit is a campaign of one kernel by one block of seeds. That findings are reported
once is the driver's part. What carries the calls is a `Fleet`: Ray's actors, or a
simulation.
"""

import heapq
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from kfuzz.core.errors import (
    BackendError,
    BindingError,
    DecodeError,
    NothingToRunError,
    UsageError,
)
from kfuzz.core.event import Notice
from kfuzz.fleet.versions import differences
from kfuzz.fleet.work import About, Report, Work

ATTEMPTS: Final = 3
"""Workers that may be lost with a task before it is given up."""
UNIT_SECONDS: Final = 300.0
"""Of one task under a time limit: start-up is some 3 % of it, and no more is lost."""
LEAST_SECONDS: Final = 5.0
"""What a task of less would find is not worth its start-up."""
START_SECONDS: Final = 30.0
"""A subject that had none yet begins so long after the end: start-up is not counted."""
LOOK_SECONDS: Final = 0.2
JOIN_SECONDS: Final = 180.0
"""A run without any worker for so long ends: nodes come up in minutes, or never."""
REFUSED_SECONDS: Final = 20.0
"""The same where a worker was rejected: others are mostly like it."""
LEAVE_SECONDS: Final = 30.0
"""For units to report what came of them, once the run is to end."""
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
        """Return what workers report, waiting for so long where there is nothing.

        Of each worker in its order, each once; the first is what it is, the last that
        it is gone, where it goes by itself.
        """

    def assign(self, worker: str, number: int, work: Work) -> None:
        """Have a worker begin a unit."""

    def recall(self, worker: str) -> None:
        """Have a worker end its unit soon."""

    def dismiss(self, worker: str) -> None:
        """End a worker, with all that it began."""

    def close(self) -> None:
        """End all workers."""


@dataclass(frozen=True)
class Task:
    """One unit of work.

    Attributes:
        number: its own; a task that is done anew keeps it.
        subject: node id of a kernel, or whatever else the driver asks about.
        block: which seeds; 0 is the run's own.
        seconds: how long it may search; None where a number of cases ends it.
        attempts: workers that were lost with it.
    """

    number: int
    subject: str
    block: int = 0
    seconds: float | None = None
    attempts: int = 0


@dataclass(frozen=True)
class Over:
    """A task came to its end, or is done no more: then `failed` says why."""

    failed: str = ""


Reported = tuple[Task, Any] | Notice
"""What a task came to, at last `Over`; or what people should know."""


class Dispatch:
    """The tasks of a run, and which worker has which.

    Args:
        fleet: the workers.
        stop: set from outside to end soon.
    """

    def __init__(self, fleet: Fleet, stop: threading.Event) -> None:
        self.fleet = fleet
        self.stop = stop
        self._rejected: dict[str, None] = {}
        self._lonely = fleet.now()
        self._halted: float | None = None
        self._devices: dict[str, str] = {}
        self._running: dict[str, Task] = {}
        self._queue: deque[Task] = deque()
        self._quarantined: set[str] = set()
        self._numbers = 0
        self._end = self._limit = 0.0
        self._fresh = 0
        # Seconds given, place in the order, subject, its next block.
        self._shares: list[tuple[float, int, str, int]] = []
        self._open: set[str] = set()

    @property
    def workers(self) -> int:
        """How many workers there are."""
        return len(self._devices)

    def ask(self, subjects: Sequence[str], *, seconds: float | None = None) -> None:
        """Add subjects, each of which gets a task at least, in this order.

        Args:
            subjects: the subjects.
            seconds: the limit of the run from now on; None where each subject is one
                task, so that it does what it would do without a fleet.
        """
        if seconds is None:
            self._queue += (Task(self._number(), each) for each in subjects)
            return
        self._end, self._limit = self.fleet.now() + seconds, seconds
        self._open |= set(subjects)
        self._fresh += len(subjects)
        self._shares = [(0.0, place, each, 0) for place, each in enumerate(subjects)]

    def run(
        self, work_of: Callable[[Task], Work], exhausted: Callable[[Task], bool]
    ) -> Iterator[Reported]:
        """Have all tasks done.

        Args:
            work_of: returns what a task is.
            exhausted: whether the subject of a task that has ended needs no other.

        Raises:
            KfuzzError: what is wrong with what was asked.
            BackendError: if there are no workers.
        """
        while True:
            self._assign(work_of)
            now = self.fleet.now()
            if not self._running and not self._is_open(now):
                return
            if self.stop.is_set():
                self.end()
            if self._halted is not None and now - self._halted > LEAVE_SECONDS:
                return
            self._require_workers(now)
            for report in self.fleet.receive(LOOK_SECONDS):
                yield from self._reported(report, exhausted)
                self._assign(work_of)

    def end(self) -> None:
        """Begin nothing more, and have what runs end soon."""
        if self._halted is None:
            self._halted = self.fleet.now()
            for worker in self._running:
                self.fleet.recall(worker)

    def _reported(
        self, report: Report, exhausted: Callable[[Task], bool]
    ) -> Iterator[Reported]:
        worker, value = report.worker, report.value
        if report.about is About.READY:
            yield from self._joined(worker, *value)
            return
        if report.about is About.AILING:
            yield from self._quarantine(worker, value)
            return
        if report.about is About.GONE:
            self._devices.pop(worker, None)
            if task := self._running.pop(worker, None):
                yield from self._anew(task, f"{worker} is lost: {value}")
            elif self._halted is None:
                yield Notice("", f"{worker} is lost: {value}")
            return
        running = self._running.get(worker)
        if running is None or running.number != report.unit:
            return  # another worker has that unit now
        if report.about is About.ITEM:
            yield running, value
            return
        del self._running[worker]
        self._devices[worker] = self._devices.pop(worker)  # those idle longest first
        if report.about is About.DONE:
            yield running, Over()
            if exhausted(running):
                self._open.discard(running.subject)
        elif isinstance(value, _FINAL):
            raise value
        else:
            why = str(value).partition("\n")[0]
            yield from self._anew(running, f"{worker}: {why}")

    def _joined(
        self, worker: str, node: str, device: str, versions: dict[str, str]
    ) -> Iterator[Notice]:
        if differing := differences(versions):
            self._rejected[differing] = None
            why = f"{worker} on {node} is rejected: {differing}"
        elif device in self._quarantined:
            why = f"{worker}: {device} is quarantined"
        else:
            self._devices[worker] = device
            return
        self.fleet.dismiss(worker)
        yield Notice("", why)

    def _quarantine(self, worker: str, why: str) -> Iterator[Notice]:
        """Have a device judge nothing more: its tasks are done anew elsewhere."""
        device = self._devices.get(worker)
        if device is None:
            return
        self._quarantined.add(device)
        yield Notice("", f"{device} is quarantined: {why}")
        for each in [w for w, d in self._devices.items() if d == device]:
            del self._devices[each]
            self.fleet.dismiss(each)
            if task := self._running.pop(each, None):
                self._queue.appendleft(task)

    def _anew(self, task: Task, why: str) -> Iterator[Reported]:
        task = replace(task, attempts=task.attempts + 1)
        if self._halted is not None or task.attempts >= ATTEMPTS:
            self._open.discard(task.subject)
            yield task, Over(why)
        else:
            self._queue.appendleft(task)
            yield Notice(task.subject, f"{why}; its unit is done anew")

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _is_open(self, now: float) -> bool:
        """Whether anything is to begin."""
        if self._halted is not None:
            return False
        last = self._end + START_SECONDS if self._fresh else self._end - LEAST_SECONDS
        return bool(self._queue) or (bool(self._open) and now <= last)

    def _assign(self, work_of: Callable[[Task], Work]) -> None:
        for worker in [w for w in self._devices if w not in self._running]:
            now = self.fleet.now()
            task = self._next(now) if self._is_open(now) else None
            if task is None:
                return
            self._running[worker] = task
            self.fleet.assign(worker, task.number, work_of(task))

    def _next(self, now: float) -> Task | None:
        """Return what is done anew, or a task of whatever had the least time."""
        left = self._end - now
        if self._queue:
            task = self._queue.popleft()
            if task.seconds is not None:
                seconds = max(min(task.seconds, left), LEAST_SECONDS)
                task = replace(task, seconds=seconds)
            return task
        while self._is_open(now):
            given, place, subject, block = heapq.heappop(self._shares)
            if subject not in self._open:
                continue
            if block == 0:
                self._fresh -= 1
                left = self._limit  # as if all began at once
            fair = left * max(self.workers, 1) / len(self._open)
            seconds = max(min(fair, left, UNIT_SECONDS), LEAST_SECONDS)
            more = (given + seconds, place, subject, block + 1)
            heapq.heappush(self._shares, more)
            return Task(self._number(), subject, block, seconds)
        return None

    def _require_workers(self, now: float) -> None:
        """Raise an error where there have been no workers for long."""
        if self._devices:
            self._lonely = now
        elif self._rejected and now - self._lonely > REFUSED_SECONDS:
            raise UsageError(
                f"every worker is rejected: {'; '.join(self._rejected)}",
                where=self.fleet.title,
                fix="install the same versions on all machines",
            )
        elif now - self._lonely > JOIN_SECONDS:
            raise BackendError(
                f"no worker came up in {JOIN_SECONDS:.0f} s",
                where=self.fleet.title,
                fix="`ray status` prints what the cluster has, and what is asked of it",
            )
