"""What a run requires before it begins, its clock, and whose turn it is.

Its time limit counts from the first case that can be judged.
"""

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

from hypothesis.errors import HypothesisException

from kfuzz.contracts.binding import BoundKernel
from kfuzz.contracts.reading import aspects_beyond_core
from kfuzz.core.budget import Depth, Scale, SizeBudget
from kfuzz.core.errors import (
    BackendError,
    BindingError,
    KfuzzError,
    UsageError,
    class_name,
    message_of,
)
from kfuzz.core.event import KernelFinished, KernelProof, Notice
from kfuzz.core.finding import Target
from kfuzz.core.recipe import CONTIGUOUS, NOWHERE, Case
from kfuzz.core.verdict import VALUE_KINDS, CaseReport, Kind, Tried
from kfuzz.engine.config import Engine, RunConfig
from kfuzz.engine.search.round import KernelSearch
from kfuzz.engine.workers.jobs import LOOK_SECONDS, PROCESSORS_EACH, SHARING, processors
from kfuzz.engine.workers.zygotes import OPEN_SECONDS, Backend, runs_on
from kfuzz.evaluation.bindings import examine, examine_recipe, in_dtype, is_brought
from kfuzz.evaluation.calling import broken, defined
from kfuzz.evaluation.drawing import BOUNDS, search_round, strategy_of
from kfuzz.execution.device.backends import DeviceBackend
from kfuzz.execution.memory import fences as pages
from kfuzz.execution.processes.wire import free_memory
from kfuzz.targets.forms import Launch
from kfuzz.targets.load import LoadedKernel, file_of_module, home_of, mentions


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
    searched = _searched(kernel, scale)
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
        searched=searched,
        errors=tuple(
            replace(made, structures=0, once=0, seconds=0.0)
            for size in searched
            for dtype in record.dtypes_drawn
            if (made := record.tried(size.above, size.most, dtype)).cases
        ),
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
        tried = kernel.record.tried(above, most)
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
        made.append(replace(tried, lacks=lacks))
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


# What a run asks of the device, of processes and of its corpus before it begins.
#
# A corpus sorts findings by name: kernels of one name that live in two places are told
# from one another.

# What the children of one worker take, about.
_WORKER_BYTES: Final = 1 << 30


def require(config: RunConfig, backend: DeviceBackend) -> None:
    """Check that a run can have what it asks for.

    Raises:
        BackendError: if the device cannot have cases of its profile.
        UsageError: if kernels that are to be searched side by side have no processes.
    """
    if config.scale is Scale.LARGE and not backend.has.large:
        raise BackendError(
            f"billions of elements take minutes on the backend {backend.name!r}",
            where="profile large",
            fix="run it on a GPU, or leave the profile out",
        )
    if config.isolate == "none" and (config.jobs or 1) > 1:
        raise UsageError(
            "in one process kernels are searched one after the other",
            where=f"--jobs {config.jobs} --isolate none",
            fix="leave one of them out",
        )


def jobs_of(config: RunConfig, backend: Backend, kernels: int) -> int:
    """Return how many workers search side by side.

    One for each processor that there is memory for, on GPUs `SHARING` for each if there
    are processors for them, unless the run says how many. Where the time alone ends a
    run several of them search one kernel; else the seed says which cases there are.
    """
    if not backend.isolated:
        return 1
    devices = len(backend.devices)
    most = processors()
    if backend.on.has.asynchronous:
        each = most // (PROCESSORS_EACH * devices)
        most = devices * max(min(each, SHARING), 1)
    most = max(min(most, (free_memory() or 1 << 60) // _WORKER_BYTES), 1)
    wanted = config.jobs or most
    if config.scale is Scale.LARGE:  # the memory of a device is enough for one
        wanted = min(wanted, devices)
    limits, guided = config.budget, config.engine is Engine.ATHERIS
    if limits.max_time is None or limits.max_cases is not None or guided:
        wanted = min(wanted, kernels)
    return max(wanted, 1)


def no_fences(backend: Backend) -> str:
    """Return why no argument lies beside a page that faults.

    Returns:
        "" if some do, if a child will say so, and in the interpreter, which checks
        addresses instead.
    """
    if not backend.on.has.native:
        return ""
    if not backend.isolated:
        return "a page that faults would end this process, which runs the kernels"
    if backend.on.has.asynchronous or pages.available():
        return ""
    return "pages that fault cannot be made here"


# Below it are torch's own kernels, whose names no file writes down, once for each
# backend: these are the same kernels.
_PLATFORM: Final = "kfuzz.contracts.platform."


def named_apart(
    loaded: Sequence[LoadedKernel],
    homes_of: Callable[[str], Sequence[Target]],
    root: Path,
) -> list[LoadedKernel]:
    """Return a run's kernels, each with a name of its own for its findings.

    Else what is known of one kernel would be known of another. A kernel bears its full
    name where findings of another kernel are stored under its own, where its own are
    stored under the full one, and where the run has two of one name of which nothing is
    stored.

    Where the kernel of an entry has gone from its place, it has moved: the entry is
    taken for the run's. Entries that name no place (of notebooks, of files outside the
    project) are too, and so is anything of a kernel that has none. Candidates bear a
    name for each path.

    Args:
        loaded: the run's kernels.
        homes_of: returns where the entries of the corpus under a name say that its
            kernel lives.
        root: the project.
    """
    counts = Counter(kernel.kernel.name for kernel in loaded)
    made = []
    for kernel in loaded:
        source, alias = kernel.source, ""
        here = source.file
        if here is None and source.module:
            here = file_of_module(source.module, root)
        if here is not None:
            homes = homes_of(kernel.kernel.name)
            own = kernel.target in homes
            taken = any(
                other != kernel.target and _is_elsewhere(other, kernel, here, root)
                for other in homes
            )
            shared = counts[kernel.kernel.name] > 1 and not own
            if taken or shared or kernel.target in homes_of(kernel.full_name):
                alias = kernel.full_name
        made.append(replace(kernel, alias=alias))
    return made


def _is_elsewhere(other: Target, kernel: LoadedKernel, here: Path, root: Path) -> bool:
    """Whether an entry's kernel is another one than a run's, and is still there."""
    if other.reference or other.name != kernel.kernel.name:
        return False
    if other.module.startswith(_PLATFORM):
        return not kernel.target.module.startswith(_PLATFORM)
    there = home_of(other, root)
    return there is not None and there != here and mentions(there, other.name)


# What users brought to judge their kernels, tried before a search begins.

# Cases drawn, and how many of them are tried: those nearest to the core domain.
_DRAWN: Final = 24
_TRIED: Final = 4
_ELEMENTS: Final = 2048
# Elements of a tensor below which others are preferred.
_FEW: Final = 8
# Cases on which a kernel and its oracle have to differ, all of them.
_COMPARED: Final = 3


class Bindings:
    """Tries the bindings of a run: first without their kernels, then beside them.

    Args:
        kernels: of the run.
        on_host: whether they run on the CPU, where the oracles are tried.

    Raises:
        BindingError: if what is to judge a kernel can judge no case of it.
    """

    def __init__(self, kernels: Sequence[KernelSearch], *, on_host: bool) -> None:
        self._open: dict[str, tuple[tuple[Case, ...], bool]] = {}
        for kernel in kernels:
            bound = kernel.loaded.kernel
            # A candidate's operator is made of another's model, with rules of its own.
            if kernel.loaded.target.reference:
                continue
            brought = is_brought(bound.operator.forward or bound.operator)
            if bound.operator.forward is not None or not (
                brought or isinstance(bound.function, Launch)
            ):
                continue
            cases = small_cases(bound, kernel.budget)
            if brought:
                self._open[kernel.node_id] = examine(bound, cases, on_host=on_host)
            examine_recipe(bound, cases)

    def compare(self, kernel: KernelSearch) -> None:
        """Hold a kernel's results against its oracle's, once: are they of one kind?

        Raises:
            BindingError: if the oracle raises where the kernel runs, no case gives
                results of one shape, or the oracle alone gives a constant.
        """
        examined = self._open.get(kernel.node_id)
        if examined is None:
            return
        (judged, constant), bound, reports = examined, kernel.loaded.kernel, []
        for case in judged[:_COMPARED]:
            reports.append(kernel.runner.judge(case, Depth.BASE))
            if not _differs(reports[-1], constant=constant):
                break
        else:
            if reports:
                self._refuse(bound, reports)
        self._open.pop(kernel.node_id, None)  # another worker may have been first

    def _refuse(self, bound: BoundKernel, reports: Sequence[CaseReport]) -> None:
        cases = f"in each of {len(reports)} small cases"
        first, where = reports[0].failure, defined(bound.operator.oracle)
        if why := next((r.oracle_raised for r in reports if r.oracle_raised), ""):
            what = f"the oracle raises {cases} where the kernel runs: {why}"
            fix = "It is given tensors there: make what it needs on their device"
        elif first is not None and first.kind is Kind.WRONG_SHAPE:
            what = f"kernel and oracle return different shapes {cases}: {first.message}"
            fix = "Nothing can be compared until both return one shape"
        else:
            what = "the oracle returns a constant, and the kernel does not"
            fix = "Mend the oracle: its result must depend on its inputs"
        raise broken(bound, f"{what} (the oracle is {where})", fix)


def _differs(report: CaseReport, *, constant: bool) -> bool:
    if report.oracle_raised or report.failure is None:
        return bool(report.oracle_raised)
    kind = report.failure.kind
    return kind is Kind.WRONG_SHAPE or (constant and kind in VALUE_KINDS)


def small_cases(kernel: BoundKernel, budget: SizeBudget) -> tuple[Case, ...]:
    """Return a few small cases of a kernel's domain, contiguous, the plainest first.

    Equal for equal kernels; none where drawing gives none.
    """
    found: list[Case] = []

    def take(case: Case) -> None:
        if all(0 < s.numel <= _ELEMENTS for s in case.tensors.values()):
            found.append(_plain(kernel, case))

    try:
        strategy = strategy_of(kernel, budget)
        if strategy is None:
            return ()
        search_round(strategy, take, cases=_DRAWN, seed_value=0)
    except (BindingError, HypothesisException):  # the search says so, or has large ones
        return ()

    def beyond(case: Case) -> tuple[int, bool]:
        aspects = aspects_beyond_core(
            case, kernel.operator, kernel.explicit, finite=True,
            lacking=kernel.arguments.lacking(case.tensors),
        )  # fmt: skip
        return len(aspects), case.elements < len(case.tensors) * _FEW

    return tuple(sorted(found, key=beyond)[:_TRIED])


def _plain(kernel: BoundKernel, case: Case) -> Case:
    """Return a case in the first data type, contiguous and away from any page."""
    tensors = {n: replace(s, strides=None, offset=0) for n, s in case.tensors.items()}
    made = replace(case, tensors=tensors, edge=NOWHERE, layout=CONTIGUOUS)
    return in_dtype(kernel.operator, made, kernel.declaration.dtypes[0])
