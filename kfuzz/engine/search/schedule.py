"""The clock of a run: its time limit counts from the first case that can be judged."""

import math
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from kfuzz.core.errors import (
    BindingError,
    KfuzzError,
    class_name,
    message_of,
    trace_text,
)
from kfuzz.core.event import KernelFinished, KernelProof, Notice, Progress
from kfuzz.engine.search.preconditions import Bindings
from kfuzz.engine.search.round import KernelSearch
from kfuzz.engine.search.self_check import GuidedSearch
from kfuzz.engine.workers.jobs import Stopped
from kfuzz.engine.workers.zygotes import OPEN_SECONDS
from kfuzz.targets.load import LoadedKernel

# Start-up that a run does not count, at most: so long one child may take to open.
START_SECONDS: Final = OPEN_SECONDS


class RunClock:
    """Tells start-up from the run, and when the run ends.

    Start-up is what comes before the first case can be judged, then what each further
    kernel takes until it is open, divided by the kernels searched at once: importing
    its file, creating a device's context. The limit of a run does not count it.

    Args:
        limit: seconds of the run; None for no limit.
        jobs: kernels searched at once.
        started: `time.monotonic()` when the command began.
    """

    def __init__(self, limit: float | None, *, jobs: int, started: float) -> None:
        self.limit = limit
        self.started = started
        self._jobs = jobs
        self._lock = threading.Lock()
        self._begun: float | None = None
        self._added = 0.0

    def begin(self, at: float | None = None) -> None:
        """Say that a first case can be judged, now or at a moment; once is enough."""
        with self._lock:
            if self._begun is None:
                self._begun = time.monotonic() if at is None else at

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Count the time in which the block gets a kernel ready as start-up."""
        entered = time.monotonic()
        try:
            yield
        finally:
            self.begin()
            with self._lock:
                assert self._begun is not None
                late = time.monotonic() - max(entered, self._begun)
                self._added += max(late, 0.0) / self._jobs

    @property
    def startup_s(self) -> float:
        """Seconds that were start-up, so far."""
        begun = time.monotonic() if self._begun is None else self._begun
        return begun - self.started + self._added

    @property
    def elapsed_s(self) -> float:
        """Seconds since the command began, start-up included."""
        return time.monotonic() - self.started

    @property
    def run_s(self) -> float:
        """Seconds of the run so far; 0 before a case can be judged."""
        return self.elapsed_s - min(self.startup_s, START_SECONDS)

    @property
    def deadline(self) -> float:
        """`time.monotonic()` at which the run ends, as far as is known now."""
        if self.limit is None:
            return math.inf
        return self.started + min(self.startup_s, START_SECONDS) + self.limit


# Whose time slice is next: kernels searched side by side share the time of a run.

# Between two looks whether the run is over, while other kernels have theirs.
_LOOK_SECONDS: Final = 0.2
# What a kernel may have at once of its share of the time.
_AT_ONCE: Final = 0.5


class Scheduler:
    """Gives kernels their time slices, each to one thread at a time.

    Args:
        kernels: all of the run.
        jobs: time slices at once; on several GPUs as many on each.
        timed: whether a time limit is what ends the run, of which all have the same
            share. Else kernels take turns.
        over: whether no more of them are to begin.
    """

    def __init__(
        self,
        kernels: Sequence[KernelSearch],
        *,
        jobs: int,
        timed: bool,
        over: Callable[[], bool],
    ) -> None:
        self._kernels = kernels
        self._timed = timed
        self._over = over
        self._changed = threading.Condition()
        # Node ids of those that wait and are put aside.
        self._aside: set[str] = set()
        self._most = math.ceil(jobs / max(len({k.device for k in kernels}), 1))
        self.jobs = jobs

    def take(self) -> KernelSearch | None:
        """Return the kernel that is next, None once there is none any more.

        It waits while others have theirs that may be the last ones.
        """
        with self._changed:
            while not self._over():
                kernel = self._next()
                if kernel is not None:
                    kernel.busy = True
                    return kernel
                if not self._aside and not any(k.busy for k in self._kernels):
                    break
                self._changed.wait(_LOOK_SECONDS)
            return None

    def give(self, kernel: KernelSearch) -> None:
        """Let a kernel have another time slice."""
        with self._changed:
            kernel.busy = False
            self._changed.notify_all()

    def charge(self, kernel: KernelSearch, seconds: float) -> None:
        """Count a time slice."""
        with self._changed:
            kernel.seconds += seconds

    def share(self, seconds: float, kernel: KernelSearch) -> float:
        """Return a kernel's share of the time that is left."""
        left = sum(not k.done or k is kernel for k in self._kernels)
        return seconds * min(self.jobs, left) / left

    def turn(self, seconds: float, kernel: KernelSearch) -> float:
        """Return how much of the time that is left a kernel may have at once.

        Half of its share where others wait: one slow round of a kernel, such as a
        gradient, must not take the time of another.
        """
        waiting = sum(not k.done for k in self._kernels) > self.jobs
        return self.share(seconds, kernel) * (_AT_ONCE if waiting else 1.0)

    @contextmanager
    def spared(self, most: int) -> Iterator[list[KernelSearch]]:
        """Yield kernels that wait for a time slice, all but `most` of them.

        They get none meanwhile.
        """
        with self._changed:
            idle = [k for k in self._kernels if self._waits(k)]
            spared = idle[: max(len(idle) - most, 0)]
            names = {k.node_id for k in spared}
            self._aside |= names
        try:
            yield spared
        finally:
            with self._changed:
                self._aside -= names
                self._changed.notify_all()

    def _waits(self, kernel: KernelSearch) -> bool:
        """Whether a kernel could have a time slice."""
        return not (kernel.done or kernel.busy or kernel.node_id in self._aside)

    def _next(self) -> KernelSearch | None:
        """Return the kernel that is next, None if none can be now.

        Under a time limit the one that has had the least of it.
        """
        busy = Counter(k.device for k in self._kernels if k.busy)
        free = [
            k for k in self._kernels if self._waits(k) and busy[k.device] < self._most
        ]
        if not free:
            return None
        return min(free, key=lambda k: k.seconds if self._timed else k.rounds)


# The kernels of a run that have children: opened as start-up, closed if too many.

# What users brought is compared with so many seconds of kernels before any is searched.
COMPARING_SECONDS: Final = 3.0
# Live children; each holds memory, on a GPU a context.
LIVE_CHILDREN: Final = 8


class LiveKernels:
    """Opens and closes the kernels of a run.

    Args:
        kernels: of the run.
        scheduler: gives them their time slices.
        clock: of the run; opening a kernel is start-up.
        guided: what draws for kernels and calls them as well, by node id.
        on_host: whether kernels run on the CPU, where the oracles are tried.
        expired: whether the run is over.

    Raises:
        BindingError: if what is to judge a kernel can judge no case of it.
    """

    def __init__(
        self,
        kernels: Sequence[KernelSearch],
        scheduler: Scheduler,
        clock: RunClock,
        *,
        guided: Mapping[str, GuidedSearch],
        on_host: bool,
        expired: Callable[[], bool],
    ) -> None:
        self._kernels, self._scheduler, self._clock = kernels, scheduler, clock
        self._guided, self._expired = guided, expired
        self._bindings = Bindings(kernels, on_host=on_host)

    def open(self, kernel: KernelSearch) -> None:
        """Get a kernel ready that has not been judged yet.

        Raises:
            Stopped: the run is over.
        """
        with self._clock.opening():
            if not self._guided:
                kernel.runner.open()
                self._bindings.compare(kernel)

    def open_first(self) -> None:
        """Have the time of the run begin before its first time slice."""
        with suppress(KfuzzError, Stopped):  # its time slice says so
            self.open(self._kernels[0])

    def compare_bindings(self) -> None:
        """Have what users brought compared with its kernels, as far as that is quick.

        The others are in their first time slice.
        """
        end = time.monotonic() + COMPARING_SECONDS
        for kernel in filter(self._bindings.awaits, self._kernels):
            if time.monotonic() > end or self._expired():
                return
            try:
                self.open(kernel)
            except BindingError:
                raise
            except (KfuzzError, Stopped):
                pass  # its time slice says so
            if len(self._kernels) > LIVE_CHILDREN:
                self.close(kernel)

    def close_spare(self) -> None:
        """Close the kernels beyond those that may live at once, but for busy ones."""
        most = max(LIVE_CHILDREN - self._scheduler.jobs, 0)
        with self._scheduler.spared(most) as spared:
            for kernel in spared:
                self.close(kernel)

    def close(self, kernel: KernelSearch) -> None:
        """End the children of a kernel."""
        kernel.runner.close()
        if guided := self._guided.get(kernel.node_id):
            guided.close()


# What a campaign tells of its kernels: how far they are, and what they came to.


def progress_of(
    kernels: Sequence[KernelSearch],
    kernel: KernelSearch,
    *,
    elapsed_s: float,
    findings: int,
) -> Progress:
    """Return the counters after a time slice.

    Args:
        kernels: all of the run.
        kernel: whose it was.
        elapsed_s: seconds since the start.
        findings: so far, of those that end a run.
    """
    return Progress(
        kernel=kernel.node_id,
        elapsed_s=elapsed_s,
        cases=sum(k.record.cases for k in kernels),
        worst_ratio=max(k.record.worst for k in kernels),
        findings=findings,
        kernels_done=sum(k.done for k in kernels),
    )


def outside_of(kernels: Sequence[LoadedKernel]) -> dict[str, str]:
    """Return what `--target` takes for the kernels outside the project, by node id."""
    return {k.node_id: k.outside for k in kernels if k.outside}


def outside_notices(outside: Mapping[str, str]) -> Iterator[Notice]:
    """Yield what a person should know of kernels outside the project."""
    if outside:
        first, *others = outside
        shown = f"{first} and {len(others)} more" if others else first
        verb = "lie" if others else "lies"
        text = f"{shown} {verb} outside the project: findings do not say where, so that"
        yield Notice("", f"{text} replaying one takes the --target printed with it")


def finished_of(
    kernel: KernelSearch, classes: Collection[str], *, ending: str,
    proof: KernelProof | None = None,
) -> KernelFinished:  # fmt: skip
    """Return what a kernel came to.

    Args:
        kernel: the kernel.
        classes: ids of the contract classes in force.
        ending: why it had no case, if it had none.
        proof: what is proved of it.
    """
    record, findings = kernel.record, list(kernel.findings.values())
    return KernelFinished(
        kernel=kernel.node_id,
        operator=kernel.loaded.kernel.operator.name,
        cases=record.cases,
        cases_per_s=record.cases / kernel.seconds if kernel.seconds else 0.0,
        contracts=record.tallies(findings, frozenset(classes)),
        refusals=record.refusals(),
        findings=tuple(findings),
        paths=dict(kernel.paths),
        worst_ratio=record.worst,
        notes=record.notes(),
        screened=record.prefiltered,
        bursts=record.batches,
        fenced=kernel.runner.fenced,
        needs_gpu=record.needs_gpu,
        tried=record.tried(),
        uncompared=record.uncompared(findings, ending),
        compared=record.compared(),
        proof=proof,
    )


def trace_of(error: Exception) -> str:
    """Return the traceback of what kfuzz did not expect; "" of an error that it made.

    One that it made says what is wrong, and where, by itself.
    """
    if isinstance(error, KfuzzError):
        return ""
    return trace_text(error)


def line_of(error: Exception) -> str:
    """Return an error in one line, with its place if it is kfuzz's own fault."""
    if isinstance(error, KfuzzError):
        return str(error)
    trace = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(trace[-1].filename).name}:{trace[-1].lineno}" if trace else ""
    return f"an error of kfuzz's own{place}: {class_name(error)}: {message_of(error)}"
