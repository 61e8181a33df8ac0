"""The clock of a run: its time limit counts from the first case that can be judged."""

import math
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from kfuzz.core.budget import Scale
from kfuzz.core.errors import KfuzzError, class_name, message_of
from kfuzz.core.event import KernelFinished, KernelProof, Notice
from kfuzz.core.verdict import Tried
from kfuzz.engine.search.round import KernelSearch
from kfuzz.engine.workers.jobs import LOOK_SECONDS
from kfuzz.engine.workers.zygotes import OPEN_SECONDS, runs_on
from kfuzz.evaluation.drawing import BOUNDS
from kfuzz.targets.load import LoadedKernel


class RunClock:
    """Tells start-up from the run, and when the run ends.

    Start-up is what comes before the first case can be judged, then what each further
    kernel takes until it is open, divided by the kernels searched at once: importing
    its file, creating a device's context. The limit of a run does not count it.

    Args:
        limit: seconds of the run; None for no limit.
        jobs: kernels searched at once.
        started: `time.monotonic()` when the command began.

    Attributes:
        begun: `time.monotonic()` when the first case could be judged.
    """

    def __init__(self, limit: float | None, *, jobs: int, started: float) -> None:
        self.limit = limit
        self.started = started
        self._jobs = jobs
        self._lock = threading.Lock()
        self.begun: float | None = None
        self._added = 0.0

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Count the time in which the block gets a kernel ready as start-up."""
        entered = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                now = time.monotonic()
                if self.begun is None:
                    self.begun = now
                self._added += (now - max(entered, self.begun)) / self._jobs

    @property
    def startup_s(self) -> float:
        """Seconds that were start-up, so far."""
        begun = time.monotonic() if self.begun is None else self.begun
        return begun - self.started + self._added

    @property
    def elapsed_s(self) -> float:
        """Seconds since the command began, start-up included."""
        return time.monotonic() - self.started

    @property
    def deadline(self) -> float:
        """`time.monotonic()` at which the run ends, as far as is known now."""
        if self.limit is None:
            return math.inf
        # Of start-up so much at most is not counted as one child may take to open.
        return self.started + min(self.startup_s, OPEN_SECONDS) + self.limit


# Whose time slice is next: kernels searched side by side share the time of a run.


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
                if not any(k.busy for k in self._kernels):
                    break
                self._changed.wait(LOOK_SECONDS)
            return None

    def give(self, kernel: KernelSearch) -> None:
        """Let a kernel have another time slice."""
        with self._changed:
            kernel.busy = False
            self._changed.notify_all()

    def share(self, seconds: float, kernel: KernelSearch) -> float:
        """Return a kernel's share of the time that is left."""
        left = sum(not k.done or k is kernel for k in self._kernels)
        return seconds * min(self.jobs, left) / left

    def _next(self) -> KernelSearch | None:
        """Return the kernel that is next, None if none can be now.

        Under a time limit the one that has had the least of it.
        """
        busy = Counter(k.device for k in self._kernels if k.busy)
        free = [
            k
            for k in self._kernels
            if not (k.done or k.busy) and busy[k.device] < self._most
        ]
        if not free:
            return None
        return min(free, key=lambda k: k.seconds if self._timed else k.rounds)


LIVE_CHILDREN: Final = 8
"""Kernels of which each may keep its children; of more each ends them with its time
slice: they hold memory, on a GPU a context."""


# What a campaign tells of its kernels: how far they are, and what they came to.


def outside_of(kernels: Sequence[LoadedKernel]) -> dict[str, str]:
    """Return what `--target` takes for the kernels outside the project, by node id."""
    return {k.node_id: k.outside for k in kernels if k.outside}


def finished_of(
    kernel: KernelSearch, classes: Collection[str], scale: Scale, *, ending: str,
    proof: KernelProof | None = None,
) -> KernelFinished:  # fmt: skip
    """Return what a kernel came to.

    Args:
        kernel: the kernel.
        classes: ids of the contract classes in force.
        scale: which sizes were searched.
        ending: why it had no case, if it had none.
        proof: what is proved of it.
    """
    record, findings = kernel.record, list(kernel.findings.values())
    # Of its own, where one after the other searches it, or as many at once.
    seconds = sum(w.seconds for w in kernel.workers) / len(kernel.workers)
    return KernelFinished(
        kernel=kernel.node_id,
        operator=kernel.loaded.kernel.operator.name,
        cases=record.cases,
        cases_per_s=record.cases / seconds if seconds else 0.0,
        contracts=record.tallies(findings, frozenset(classes)),
        refusals=record.refusals(),
        findings=tuple(findings),
        paths=dict(kernel.paths),
        worst_ratio=record.worst,
        notes=record.notes(),
        screened=record.prefiltered,
        bursts=record.batches,
        fenced=any(w.runner.children.fenced for w in kernel.workers),
        needs_gpu=record.needs_gpu,
        tried=record.tried(),
        searched=_searched(kernel, scale),
        largest=dict(record.largest),
        uncompared=record.uncompared(findings, ending),
        compared=record.compared(),
        proof=proof,
    )


def line_of(error: Exception) -> str:
    """Return an error in one line, with its place if it is kfuzz's own fault."""
    if isinstance(error, KfuzzError):
        return str(error)
    trace = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(trace[-1].filename).name}:{trace[-1].lineno}" if trace else ""
    return f"an error of kfuzz's own{place}: {class_name(error)}: {message_of(error)}"


def _searched(kernel: KernelSearch, scale: Scale) -> tuple[Tried, ...]:
    """Return what a kernel was tried with by classes of sizes, the smallest first.

    The last one is of what is larger than all that is searched.
    """
    rounds: Counter[int] = Counter()
    for size in (size for worker in kernel.workers for size in worker.sizes):
        rounds[size.budget.elements] += size.rounds
    top = max(rounds)
    place = runs_on(kernel.loaded.kernel, kernel.runner.place.backend).place
    made, above = [], 0
    for most in (*(bound for bound in BOUNDS if bound < top), top, None):
        tried = kernel.record.tried(above, math.inf if most is None else most)
        if tried.cases:
            lacks = ""
        elif tried.seconds:
            lacks = "no case there decided a contract"
        elif most is None and scale is Scale.USUAL:
            lacks = f"the limit {place}"
        elif len(rounds) == 1 or most is None or rounds[most]:
            lacks = "none was drawn"
        else:
            lacks = "no time was left" if most in rounds else "none is declared"
        made.append(replace(tried, above=above, most=most, lacks=lacks))
        above = most or above
    return tuple(made)


BASELINE_PASSES: Final = "impostor"
TRIED: Final = 8
"""Cases on which a trivial baseline was tried before a run reports that none rejected
it: on one or a few the judgement may rightly have no power."""


def watched(kernel: KernelSearch) -> Iterator[Notice]:
    """Yield what a kernel's search gives cause to warn of, at its end."""
    record, node = kernel.record, kernel.node_id
    for kind, (tried, times) in record.baselines.items():
        if tried >= TRIED and not times:
            text = (
                f"a trivial baseline passes: {kind} in place of the results was "
                f"accepted in all {tried} cases tried, so its values are hardly judged"
            )
            yield Notice(node, text, BASELINE_PASSES)
