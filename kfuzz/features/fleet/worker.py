"""What a worker is asked, and what it reports: frozen values that travel by pickle.

All machines of a run have the same versions, and trust one another as Ray's do.
"""

import functools
import hashlib
import heapq
import itertools
import math
import os
import pickle
import platform
import shutil
import socket
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from enum import StrEnum
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, Protocol

from kfuzz.cli.run import events, portable
from kfuzz.core.errors import (
    BackendError,
    BindingError,
    DecodeError,
    HarnessError,
    NothingToRunError,
    UsageError,
)
from kfuzz.core.event import FindingReplayed, FindingSaved, Notice, Progress
from kfuzz.core.finding import ATEN, Finding, Target, version_of
from kfuzz.core.home import HOME
from kfuzz.engine.config import RunConfig
from kfuzz.execution.device.backends import environment_for, guess, resolve
from kfuzz.execution.processes.child import OwnProcess, obey, work
from kfuzz.store.corpus import Corpus
from kfuzz.store.entry import read_entry

CALIBRATION: Final = "calibration.json"
"""The file of a unit's own folder that `RunConfig.calibration` then names."""


@dataclass(frozen=True)
class Survey:
    """Which kernels do the targets of a run have? Reports `Surveyed`.

    Attributes:
        config: of the run.
        homes: where the corpus says that kernels live, by name: see `named_apart`.
    """

    config: RunConfig
    homes: Mapping[str, tuple[Target, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Place:
    """One kernel of a run, as a unit gets it.

    Attributes:
        node_id: its one name in the run.
        target: what loads it, seen from the project.
        name: the name that it is bound to.
        alias: the name that its findings bear; "" for its own.
    """

    node_id: str
    target: str
    name: str
    alias: str = ""


@dataclass(frozen=True)
class Surveyed:
    """What a survey found.

    Attributes:
        backend: the name of what kernels run on.
        places: the kernels.
        outside: as `RunStarted` has it.
    """

    backend: str
    places: tuple[Place, ...]
    outside: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Search:
    """A campaign of one kernel; reports its events, each with the finding it speaks of.

    Attributes:
        config: of the campaign; its folders are the worker's.
        stored: what the corpus holds of the kernel that bears on it.
        calibration: the content of the file that the run names.
    """

    config: RunConfig
    stored: tuple[Finding, ...] = ()
    calibration: bytes | None = None


Work = Survey | Search | str
"""The name of a device asks why it is not sound, "" where it is, and its UUID."""


class About(StrEnum):
    """What a report is about.

    READY: the worker, and its value is its machine, its device as no other machine has
    it, and its versions. ITEM: something that its unit came to. DONE: its unit ended.
    FAILED: it ended with an error. AILING: its device failed its canaries, and why.
    GONE: the worker is no more, and why.
    """

    READY = "ready"
    ITEM = "item"
    DONE = "done"
    FAILED = "failed"
    AILING = "ailing"
    GONE = "gone"


@dataclass(frozen=True)
class Report:
    """What a worker reports.

    Attributes:
        worker: its name.
        about: what it is about.
        value: see `About`.
        unit: number of the unit.
    """

    worker: str
    about: About
    value: Any = None
    unit: int = 0


def key_of(finding: Finding) -> str:
    """Return what tells a finding from others before it is reduced and explained."""
    return replace(finding, explanation=None).id


# What must be the same on all machines of a run: else they judge differently.

_PACKAGES = ("torch", "triton", "numpy", "hypothesis")


@functools.cache
def versions() -> dict[str, str]:
    """Return the versions here by name; that of kfuzz is a hash of its source."""
    made = {"kfuzz": _source_hash(), "python": platform.python_version()}
    return made | {name: version_of(name) or "none" for name in _PACKAGES}


def differences(theirs: dict[str, str]) -> str:
    """Return how the versions of a worker differ from those here, "" if they do not."""
    ours = versions()
    return ", ".join(
        f"{name} {theirs.get(name, 'none')} (here {ours[name]})"
        for name in ours
        if theirs.get(name) != ours[name]
    )


def _source_hash() -> str:
    digest = hashlib.sha256()
    home = Path(HOME, "kfuzz")
    # The folders behind links, which `rglob` does not enter.
    for folder in (home, home / "contracts", home / "strategies"):
        for path in sorted(folder.resolve().rglob("*.py")):
            digest.update(path.relative_to(folder.resolve()).as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


# A worker: one unit after the other, each in a process of its own.
#
# It keeps what its units report until the driver has taken it. It is the same whatever
# carries its calls.

_ENTRY: Final = "kfuzz.features.fleet.worker:unit"
CANARIES: Final = 2
"""Canaries in a row that fail before a device judges no more."""
LEASE_SECONDS: Final = 300.0
"""A driver that has not asked for so long is gone; its unit ends."""
PROGRESS_SECONDS: Final = 5.0
"""Between two counters of one unit: a driver has a thousand workers to listen to."""
_LOOK_SECONDS: Final = 0.2
TRIAL_SECONDS: Final = 180.0
"""Of a canary: importing torch and creating a context on a machine that is busy."""


class _AilingError(Exception):
    """The device failed its canaries."""


class Worker:
    """Does units, and keeps what they report.

    Args:
        root: the project; "" for the working folder, into which it was copied.
        device: where kernels run, as the command line names it.
        gpu: whether that is a GPU, which canaries try.
    """

    def __init__(self, root: str, device: str, *, gpu: bool) -> None:
        self._root = root or os.getcwd()
        self._device = device
        self._gpu = gpu
        self._messages: deque[tuple[int, bytes]] = deque()
        self._count = 0
        self._changed = threading.Condition()
        self._asked = time.monotonic()
        self._stop = threading.Event()

    def about(self) -> tuple[str, str, dict[str, str]]:
        """Return its machine, its device as no other machine has it, its versions."""
        node, device = socket.gethostname(), f"{self._device} ({os.getpid()})"
        if self._gpu:
            ailment, uuid = self._trial()
            device = uuid or os.environ.get("CUDA_VISIBLE_DEVICES", ailment)
        return node, f"{node} {device}", versions()

    def start(self, number: int, work: Work) -> None:
        """Begin a unit; whatever was begun before has ended."""
        self._asked = time.monotonic()
        self._stop = threading.Event()
        args = (number, work, self._stop)
        threading.Thread(target=self._do, args=args, daemon=True).start()

    def stop(self) -> None:
        """Have the unit end soon, and report what came of it."""
        self._stop.set()

    def take(self, after: int, seconds: float) -> list[tuple[int, bytes]]:
        """Return what was reported after a number, and forget what was up to it.

        Args:
            after: number of the last message that the driver has.
            seconds: how long to wait for a message where there is none.

        Returns:
            Messages by ascending number: what they are about, the value and the unit,
            pickled.
        """
        until = time.monotonic() + seconds
        with self._changed:
            self._asked = time.monotonic()
            while self._messages and self._messages[0][0] <= after:
                self._messages.popleft()
            while not self._messages and (left := until - time.monotonic()) > 0:
                self._changed.wait(left)
            self._asked = time.monotonic()
            return list(self._messages)

    def _report(self, about: About, value: object, number: int) -> None:
        with self._changed:
            self._count += 1
            message = pickle.dumps((about, value, number))
            self._messages.append((self._count, message))
            self._changed.notify_all()

    def _do(self, number: int, work: Work, stop: threading.Event) -> None:
        try:
            self._require_sound()
            progressed = -math.inf
            for value in self._performed(work, stop):
                event = value[0] if isinstance(value, tuple) else None
                if isinstance(event, Progress):
                    if time.monotonic() - progressed < PROGRESS_SECONDS:
                        continue
                    progressed = time.monotonic()
                if isinstance(event, FindingSaved):
                    self._require_sound()
                self._report(About.ITEM, value, number)
            self._report(About.DONE, None, number)
        except _AilingError as error:
            self._report(About.AILING, str(error), number)
        except Exception as error:
            self._report(About.FAILED, portable(error), number)

    def _require_sound(self) -> None:
        """Raise an error if the device fails `CANARIES` canaries in a row."""
        ailment = ""
        for _ in range(CANARIES if self._gpu else 0):
            ailment, _ = self._trial()
            if not ailment:
                return
        if ailment:
            raise _AilingError(ailment)

    def _trial(self) -> tuple[str, str]:
        """Return what ails the device, "" where nothing does, and its UUID."""
        stop = threading.Event()
        try:
            for made in self._performed(self._device, stop, TRIAL_SECONDS):
                ailment, uuid = made
                return str(ailment), str(uuid)
        except Exception as error:
            return str(error).partition("\n")[0], ""
        return "its canary reported nothing", ""

    def _performed(
        self, work: Work, stop: threading.Event, most: float | None = None
    ) -> Iterator[Any]:
        """Yield what a process reports that does a piece of work."""
        folder = tempfile.mkdtemp(prefix="kfuzz-unit-")
        try:
            with OwnProcess(_ENTRY, os.environ, start_new_session=True) as process:
                process.send((work, self._root, folder))
                yield from self._heard(process, stop, most)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _heard(
        self, process: OwnProcess, stop: threading.Event, most: float | None
    ) -> Iterator[Any]:
        began = time.monotonic()
        try:
            for message in process.messages(stop, _LOOK_SECONDS):
                now = time.monotonic()
                if now - self._asked > LEASE_SECONDS and most is None:
                    raise HarnessError("the driver asks no more")
                if most is not None and now - began > most:
                    raise HarnessError(f"nothing came of it in {most:.0f} s")
                if message is not None:
                    yield message[1]
        except EOFError:
            how = process.ended()
            raise HarnessError(f"the process of a unit ended: {how}") from None


# The process of one unit: it gets what to do, and reports what comes of it.


def unit(connection: Connection) -> None:
    """Be the process of one unit."""
    work(connection, _performed, portable)


def _performed(connection: Connection, stop: threading.Event) -> Iterator[Any]:
    """Do as the first message says, and yield what comes of it."""
    asked, root, folder = connection.recv()
    os.chdir(root)
    obey(connection, stop)
    yield from perform(asked, Path.cwd(), Path(folder), stop)


def perform(
    work: Work, root: Path, folder: Path, stop: threading.Event
) -> Iterator[Any]:
    """Yield what comes of a piece of work.

    Args:
        work: the work.
        root: the project, as it lies on this machine; the working folder.
        folder: an empty one, for this alone.
        stop: ends it soon, once set.
    """
    match work:
        case Survey():
            yield _survey(work, root)
        case Search():
            for event in events(_placed(work, root, folder), stop=stop):
                yield _happened(event)
        case str() as device:
            yield _tried(device)


def _survey(work: Survey, root: Path) -> Surveyed:
    config = work.config
    backend = guess(config.device)
    if backend is not None:  # Triton reads its variables as it is imported
        os.environ.update(environment_for(backend, os.environ))
    from kfuzz.engine.search.preconditions import named_apart
    from kfuzz.engine.search.schedule import outside_of
    from kfuzz.targets.load import load_all

    on, _ = resolve(config.device)
    loaded = named_apart(
        load_all(config.targets, root=root), lambda name: work.homes.get(name, ()), root
    )
    places = []
    for kernel in loaded:
        source, name = kernel.source, kernel.kernel.name
        if source.file is not None:
            target = f"{os.path.relpath(source.file, root)}::{name}"
        elif source.module.startswith(ATEN):
            target = source.module  # names its overloads together
        else:
            target = f"{source.module}:{name}"
        places.append(Place(kernel.node_id, target, name, kernel.alias))
    return Surveyed(on.name, tuple(places), outside_of(loaded))


def _placed(work: Search, root: Path, folder: Path) -> RunConfig:
    """Return the campaign's configuration, with folders of this machine."""
    corpus = Corpus(folder / "corpus")
    for finding in work.stored:
        corpus.save(finding)
    calibration = None
    if work.calibration is not None:
        calibration = folder / CALIBRATION
        calibration.write_bytes(work.calibration)
    return replace(
        work.config, root=root, corpus=corpus.root, calibration=calibration,
        started=None,
    )  # fmt: skip


def _happened(event: Any) -> tuple[Any, Finding | None]:
    """Return an event with the finding that it speaks of, as stored."""
    match event:
        case FindingSaved():
            return event, event.finding
        case FindingReplayed(path=path) if event.id:
            return event, read_entry(Path(path))
    return event, None


def _tried(device: str) -> tuple[str, str]:
    from kfuzz.engine.workers.runner import tried
    from kfuzz.engine.workers.zygotes import Backend

    with closing(Backend(device)) as backend:
        uuid, ailment, _ = tried(backend, backend.devices[0])
    return ailment, uuid


# Units of a run on workers, each done at least once, whatever is lost.
#
# A unit is a campaign of one kernel by one block of seeds. That findings are reported
# once is the driver's part. What carries the calls is a `Fleet`: Ray's actors, or a
# simulation.

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


Reported = tuple[Task, Any] | Notice
"""What a task came to, at last a text: why it is done no more, "" where it is done; or
what people should know."""


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
        self._number = itertools.count(1).__next__
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
            yield running, ""
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
            yield task, why
        else:
            self._queue.appendleft(task)
            yield Notice(task.subject, f"{why}; its unit is done anew")

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
