"""Which worker does what next: a state machine without clocks, processes or Ray.

It takes what happens, with the time, and returns what is to be done. A task is a search
of one kernel by one block of seeds. It is done at least once: what a lost worker had is
done anew. That findings are told once is the driver's part.
"""

import heapq
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

ATTEMPTS: Final = 3
"""Workers that may be lost with a task before it is given up."""
CANARIES: Final = 2
"""Canaries in a row that fail before a device judges no more."""
UNIT_SECONDS: Final = 300.0
"""Of one task under a time limit: start-up is some 3 % of it, and no more is lost."""
LEAST_SECONDS: Final = 5.0
"""What a task of less would find is not worth its start-up."""
START_SECONDS: Final = 30.0
"""A subject that had none yet begins so long after the end: start-up is not counted."""


@dataclass(frozen=True)
class Task:
    """One unit of work.

    Attributes:
        number: its own; a task that is done anew keeps it.
        subject: node id of a kernel, or whatever else the driver asks about.
        block: which seeds; 0 is the run's own.
        seconds: how long it may search; None where a number of cases ends it.
        doubted: key of a finding that is to be confirmed, "" for a search.
        avoid: the device that must not do it, "" for none.
        attempts: workers that were lost with it.
    """

    number: int
    subject: str
    block: int = 0
    seconds: float | None = None
    doubted: str = ""
    avoid: str = ""
    attempts: int = 0


@dataclass(frozen=True)
class Joined:
    """A worker is ready.

    Attributes:
        worker: its name.
        device: what it judges on, as all machines tell it from others.
        refused: why it may not work, "" where it may.
    """

    worker: str
    device: str
    refused: str = ""


@dataclass(frozen=True)
class Lost:
    """A worker is gone."""

    worker: str
    why: str


@dataclass(frozen=True)
class Ended:
    """A worker has done its task.

    Attributes:
        worker: its name.
        exhausted: whether the subject needs no further task.
    """

    worker: str
    exhausted: bool = False


@dataclass(frozen=True)
class Dropped:
    """A task came to no end, by no fault of its own; its worker lives."""

    worker: str
    why: str


@dataclass(frozen=True)
class Canary:
    """A worker's device was tried; `ailment` is "" where it passed."""

    worker: str
    ailment: str = ""


@dataclass(frozen=True)
class Doubted:
    """A finding came from a device that failed its canary right after it."""

    worker: str
    subject: str
    finding: str


@dataclass(frozen=True)
class Halted:
    """Nothing more is to begin, and what runs is to end."""


Happening = Joined | Lost | Ended | Dropped | Canary | Doubted | Halted


@dataclass(frozen=True)
class Assign:
    """A worker is to do a task."""

    worker: str
    task: Task


@dataclass(frozen=True)
class Recall:
    """A worker is to end its task soon, and to tell what came of it."""

    worker: str


@dataclass(frozen=True)
class Dismiss:
    """A worker is to be ended at once."""

    worker: str


@dataclass(frozen=True)
class Tell:
    """People should know."""

    message: str
    subject: str = ""


@dataclass(frozen=True)
class GiveUp:
    """A task is done no more; what it would have shown is unknown."""

    task: Task
    why: str


Action = Assign | Recall | Dismiss | Tell | GiveUp


class Plan:
    """The tasks of a run, and who has which.

    Args:
        subjects: each gets a task at least, in this order.
        seconds: the limit of the run; None where each subject is one task, so that it
            does what it would do without a fleet.
        began: the time at which the limit begins.
    """

    def __init__(
        self,
        subjects: Sequence[str] = (),
        *,
        seconds: float | None = None,
        began: float = 0.0,
    ) -> None:
        self.halted = False
        self._devices: dict[str, str] = {}
        self._idle: dict[str, None] = {}
        self._running: dict[str, Task] = {}
        self._queue: deque[Task] = deque()
        self._failed: Counter[str] = Counter()
        self._quarantined: set[str] = set()
        self._numbers = 0
        self._end: float | None = None
        self._limit = 0.0
        self._fresh = 0
        # Seconds given, place in the order, subject, its next block.
        self._shares: list[tuple[float, int, str, int]] = []
        self._open: set[str] = set()
        self.ask(subjects, seconds=seconds, began=began)

    def ask(
        self,
        subjects: Sequence[str],
        *,
        seconds: float | None = None,
        began: float = 0.0,
    ) -> None:
        """Add subjects, see the class."""
        if seconds is None:
            self._queue += (Task(self._number(), each) for each in subjects)
            return
        self._end, self._limit = began + seconds, seconds
        self._open |= set(subjects)
        self._fresh += len(subjects)
        for place, each in enumerate(subjects):
            heapq.heappush(self._shares, (0.0, place, each, 0))

    def workers(self) -> int:
        """Return how many workers there are."""
        return len(self._devices)

    def task_of(self, worker: str) -> Task | None:
        """Return what a worker is doing."""
        return self._running.get(worker)

    def is_over(self, now: float) -> bool:
        """Whether nothing runs and nothing more will."""
        if self._running:
            return False
        return self.halted or not (self._queue or self._is_open(now))

    def deadlocked(self) -> list[Task]:
        """Return what waits for another device than those that there are.

        Empty unless nothing else is left.
        """
        if self._running or not self._devices:
            return []
        devices = set(self._devices.values())
        return [t for t in self._queue if devices <= {t.avoid}]

    def take(self, happening: Happening, now: float) -> list[Action]:
        """Return what is to be done once something has happened."""
        return [*self._answer(happening), *self._assigned(now)]

    def tick(self, now: float) -> list[Action]:
        """Return what is to be done because there are new subjects."""
        return list(self._assigned(now))

    def abandon(self, tasks: Sequence[Task]) -> None:
        """Have tasks done no more."""
        gone = {task.number for task in tasks}
        self._queue = deque(t for t in self._queue if t.number not in gone)

    def _answer(self, happening: Happening) -> Iterator[Action]:
        match happening:
            case Joined(worker, device, refused):
                if refused or device in self._quarantined:
                    yield Dismiss(worker)
                    yield Tell(refused or f"{worker}: {device} is quarantined")
                else:
                    self._devices[worker] = device
                    self._idle[worker] = None
            case Lost(worker, why):
                self._forget(worker)
                if task := self._running.pop(worker, None):
                    yield from self._anew(task, f"{worker} is lost: {why}")
                elif not self.halted:
                    yield Tell(f"{worker} is lost: {why}")
            case Ended(worker, exhausted):
                task = self._running.pop(worker, None)
                self._free(worker)
                if task is not None and exhausted:
                    self._open.discard(task.subject)
            case Dropped(worker, why):
                task = self._running.pop(worker, None)
                self._free(worker)
                if task is not None:
                    yield from self._anew(task, why)
            case Canary(worker, ailment):
                yield from self._tried(worker, ailment)
            case Doubted(worker, subject, finding):
                avoid = self._devices.get(worker, "")
                self._queue.appendleft(
                    Task(self._number(), subject, doubted=finding, avoid=avoid)
                )
            case Halted():
                if not self.halted:
                    self.halted = True
                    self._queue.clear()
                    yield from (Recall(worker) for worker in self._running)

    def _tried(self, worker: str, ailment: str) -> Iterator[Action]:
        device = self._devices.get(worker)
        if device is None:
            return
        self._failed[device] = self._failed[device] + 1 if ailment else 0
        if self._failed[device] < CANARIES:
            return
        self._quarantined.add(device)
        yield Tell(f"{device} is quarantined after {CANARIES} canaries: {ailment}")
        for other in [w for w, d in self._devices.items() if d == device]:
            self._forget(other)
            yield Dismiss(other)
            if task := self._running.pop(other, None):
                # The device's fault: it does not count as the task's.
                again = replace(task, attempts=task.attempts - 1)
                yield from self._anew(again, f"{device} is quarantined")

    def _anew(self, task: Task, why: str) -> Iterator[Action]:
        task = replace(task, attempts=task.attempts + 1)
        if self.halted:
            yield GiveUp(task, why)
        elif task.attempts >= ATTEMPTS:
            self._open.discard(task.subject)
            yield GiveUp(task, why)
        else:
            self._queue.appendleft(task)
            yield Tell(f"{why}; its unit is done anew", task.subject)

    def _forget(self, worker: str) -> None:
        self._devices.pop(worker, None)
        self._idle.pop(worker, None)

    def _free(self, worker: str) -> None:
        if worker in self._devices:
            self._idle[worker] = None

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _is_open(self, now: float) -> bool:
        if self._end is None or not self._open:
            return False
        last = self._end + START_SECONDS if self._fresh else self._end - LEAST_SECONDS
        return now <= last

    def _assigned(self, now: float) -> Iterator[Action]:
        if self.halted:
            return
        for worker in list(self._idle):
            task = self._queued_for(worker, now) or self._next(now)
            if task is None:
                if not self._queue:
                    return  # nor is there any for the others
                continue
            del self._idle[worker]
            self._running[worker] = task
            yield Assign(worker, task)

    def _queued_for(self, worker: str, now: float) -> Task | None:
        """Return the first task in the queue that a worker may do."""
        for task in self._queue:
            if task.avoid and task.avoid == self._devices[worker]:
                continue
            self._queue.remove(task)
            if task.seconds is not None and self._end is not None:
                left = max(self._end - now, LEAST_SECONDS)
                return replace(task, seconds=min(task.seconds, left))
            return task
        return None

    def _next(self, now: float) -> Task | None:
        """Return a new task of the subject that has had the least time."""
        while self._is_open(now):
            given, place, subject, block = heapq.heappop(self._shares)
            if subject not in self._open:
                continue  # a subject that is exhausted has had a task
            assert self._end is not None
            left, many = self._end - now, len(self._open)
            if block == 0:
                self._fresh -= 1
                left = self._limit  # as if all began at once
            fair = left * max(len(self._devices), 1) / many
            seconds = max(min(fair, left, UNIT_SECONDS), LEAST_SECONDS)
            more = (given + seconds, place, subject, block + 1)
            heapq.heappush(self._shares, more)
            return Task(self._number(), subject, block, seconds)
        return None
