"""A candidate and its reference, loaded to be judged or replayed like any kernel.

Its cases are judged in the campaign's process, while its calls run in a child.
"""

import ctypes
import hashlib
import math
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

from kfuzz.contracts.binding import BoundKernel
from kfuzz.contracts.classes import ATTRIBUTION
from kfuzz.core.budget import Budget, Depth, SizeBudget
from kfuzz.core.declaration import Declaration
from kfuzz.core.errors import BackendError, HarnessError, KfuzzError, UsageError
from kfuzz.core.event import Event, KernelFinished, Notice, RunFinished
from kfuzz.core.finding import Finding, Target
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import ATTRIBUTED, CaseReport, Failure, State, Verdict
from kfuzz.engine.config import ReplayConfig, RunConfig
from kfuzz.engine.search.campaign import Campaign
from kfuzz.engine.search.found import INTERPRET, SECONDS, kept, unfit
from kfuzz.engine.search.round import KernelSearch, Round
from kfuzz.engine.workers.children import Place
from kfuzz.engine.workers.jobs import Stopped
from kfuzz.engine.workers.runner import Runner, is_hang
from kfuzz.engine.workers.zygotes import Backend
from kfuzz.evaluation.drawing import drawn, strategy_of
from kfuzz.evaluation.locating import Overdue, limited
from kfuzz.evaluation.probes.calls import is_due
from kfuzz.execution.device.backends import BACKENDS, DeviceBackend, resolve
from kfuzz.features.judge import outcome
from kfuzz.features.judge.candidate import (
    ENDS,
    EVALUATION,
    FILE,
    HUNDREDS,
    MOST,
    OTHER_WEIGHTS,
    SHAPES,
    Candidate,
    Judged,
    claims_of,
)
from kfuzz.features.judge.kernelbench.reference import (
    PosedProblem,
    Reference,
    open_problem,
)
from kfuzz.features.judge.kernelbench.values import OWN, SCALED, SHIFTED
from kfuzz.features.judge.locating import LIMITS, NO_TRITON, Steered, located
from kfuzz.features.judge.sandbox.contain import Limits
from kfuzz.features.judge.sandbox.meeting import Perturbations
from kfuzz.features.judge.sandbox.sandbox import zygote_for
from kfuzz.store.corpus import Corpus, attach
from kfuzz.targets import load
from kfuzz.targets.load import LoadedKernel, Source
from kfuzz.targets.own_code import imports_none

# Elements of arguments and weights up to which several children are built at once.
_SIDE_BY_SIDE: Final = 1 << 26


class JudgedRunner(Runner):
    """Runs cases of one candidate; its children are the candidate's own affair."""

    def __init__(
        self, loaded: "JudgedKernel", place: Place, *, expired: Callable[[], bool]
    ) -> None:
        super().__init__(loaded, place, None, expired=expired)
        self._judged = loaded.judged
        self._over = expired
        # Whether it hangs: then no further run is made for a smaller case.
        self._hung = False

    @property
    def distinguishes(self) -> bool:
        """Whether to find out by further calls which class a violation breaks."""
        return self._judged.distinguishes

    @property
    def records_count(self) -> bool:
        """Always: what came back was judged in this process, from bytes."""
        return True

    def seen_often(self, failure: Failure) -> bool:
        """Whether calls in a row have ended so more than once."""
        return self._judged.ends_often(failure.kind)

    def open(self) -> None:
        """Do nothing: a candidate's child is started when it is asked for."""

    def judge(
        self, case: Case, depth: Depth, *, patience: float = math.inf
    ) -> CaseReport:
        """Run and judge one case; what is compiled for it gets all the time it takes.

        Raises:
            Stopped: once the run's time is over.
        """
        if self._over():
            raise Stopped
        report = self.judge_again(case, depth)
        # It was established in two fresh children: see `RemoteKernel`.
        self._hung = self._hung or is_hang(report)
        if depth == Depth.SEARCH and not case.pinned:
            reference = self._judged.reference
            self._judged.tried.take(
                case, report, benchmarked=reference.is_benchmarked(case),
                own=reference.is_own(case),
            )  # fmt: skip
        return report

    def judge_again(self, case: Case, depth: Depth) -> CaseReport:
        """Run and judge one case that is none of the search's.

        Raises:
            Stopped: once the run's time is over.
        """
        report = self._judged.judge(case, depth)
        if report.error is not None and self._over():
            raise Stopped  # a call was cut off, and nothing is known of it
        return report

    def judge_fresh(self, case: Case, depths: Sequence[Depth]) -> list[CaseReport]:
        """Run and judge one case in fresh children, one after the other.

        They get ready side by side where memory is enough for a few of them.
        """
        weights = self._judged.reference.form.state().values()
        if case.elements + sum(x.numel() for x in weights) <= _SIDE_BY_SIDE:
            self._judged.candidate.sandbox.prepare(len(depths))
        reports: list[CaseReport] = []
        for depth in depths:
            if self._over():
                raise Stopped
            self._judged.candidate.sandbox.fresh()
            reports.append(self.judge_again(case, depth))
        return reports

    def diagnose(
        self, case: Case, seconds: float, *, fresh: bool, sizes: bool = True
    ) -> CaseReport | None:
        """Judge a case that fails with the probes that tell the classes apart."""
        if not fresh:
            return self.judge(case, Depth.FULL)
        [report] = self.judge_fresh(case, [Depth.FULL])
        return report

    def prepare(self, children: int) -> None:
        """Do nothing: a fresh child of a candidate is started when it is asked for."""

    def locate(self, case: Case) -> tuple[Case, Failure] | None:
        """Return None: there are no fences in a candidate's child."""
        return None

    def accepts(self, case: Case) -> bool:
        """Whether a smaller form of a case is one that the reference's file allows."""
        return super().accepts(case) and self._judged.accepts(case)

    def pin(self, case: Case) -> Case:
        """Return the case with its values explicit, unless there are too many."""
        return case if self._hung else self._judged.pin(case)

    def close(self) -> None:
        """End the candidate's child."""
        self._judged.candidate.close()


@dataclass(frozen=True)
class JudgedKernel(LoadedKernel):
    """A candidate that is loaded like a kernel, and runs in its child.

    Attributes:
        judged: it, held against its reference.
    """

    judged: Judged = field(kw_only=True)

    def runner(self, place: Place, *, expired: Callable[[], bool]) -> JudgedRunner:
        """Return what runs its cases."""
        return JudgedRunner(self, place, expired=expired)


def judged_again(finding: Finding, config: ReplayConfig) -> JudgedKernel:
    """Return the candidate of a finding, in a child, to be replayed.

    Raises:
        KfuzzError: if a file is gone, the problem decides nothing any more, or the
            candidate cannot be built.
    """
    backend, devices = resolve(config.device or finding.device)
    reference, candidate = _files(finding, config)
    made = loaded_candidate(
        _deciding(reference, backend, devices[0]), candidate, finding.declaration,
        name=finding.signature.kernel, root=config.root, backend=backend.name,
        limits=Limits(), corpus=config.corpus,
    )  # fmt: skip
    # Only then it was right at the benchmarked shape when it was found.
    made.judged.tried.passed = finding.signature.contract == SHAPES
    return made


def _deciding(path: Path, backend: DeviceBackend, device: str) -> Reference:
    """Return a reference that decides something.

    Raises:
        KfuzzError: if it decides nothing any more.
    """
    problem = open_problem(path, device, backend)
    if problem.audit.faults or problem.reference is None:
        what = f"the reference decides nothing: {problem.audit.faults[0]}"
        raise KfuzzError(what, where=str(path))
    return problem.reference


def _files(finding: Finding, config: ReplayConfig) -> tuple[Path, Path]:
    """Return where reference and candidate of a finding lie.

    Raises:
        UsageError: if one is not there, or is not the one that was judged.
    """
    reference, candidate = finding.target.reference, finding.target.file
    if config.target:
        reference, colons, candidate = config.target.partition("::")
        if not (colons and reference and candidate):
            raise UsageError(
                "the finding is a candidate's", where=config.target,
                fix="give --target REFERENCE.py::CANDIDATE.py",
            )  # fmt: skip
    base = Path() if config.target else config.root
    fix = "name both: --target REFERENCE.py::CANDIDATE.py"
    for path in (base / reference, base / candidate):
        if not os.path.isfile(path):
            raise UsageError("no such file", where=str(path), fix=fix)
    files = (base / reference).resolve(), (base / candidate).resolve()
    there = candidate_name(*files, config.root).rpartition("_")[2]
    if not config.target and there != finding.target.name.rpartition("_")[2]:
        # Of a path outside the project its last part is stored: this is another file.
        where = finding.target.node_id
        raise UsageError("what was judged lay elsewhere", where=where, fix=fix)
    return files


def candidate_name(reference: Path, candidate: Path, root: Path) -> str:
    """Return a candidate's name in findings, which ends with a hash of both paths.

    Files of one name in two folders, or against two references, are not the same
    candidate: what is stored of one says nothing of the other.
    """
    told = []
    for path in (reference, candidate):
        full = path.resolve()
        inside = full.is_relative_to(root)
        told.append((full.relative_to(root) if inside else full).as_posix())
    digest = hashlib.sha256(
        "::".join(told).encode(errors="surrogateescape")
    ).hexdigest()
    return f"{candidate.stem}_{digest[:6]}"


def loaded_candidate(
    reference: Reference,
    candidate: Path,
    claims: Declaration,
    *,
    name: str,
    root: Path,
    backend: str,
    limits: Limits,
    corpus: Path,
    opened: Callable[..., Candidate] = Candidate,
    distinguishes: bool = True,
) -> JudgedKernel:
    """Return a candidate in its child, held against a reference.

    Args:
        reference: the reference.
        candidate: the candidate's file.
        claims: what the candidate is held to.
        name: the candidate's in findings.
        root: the project.
        backend: name of the backend.
        limits: what its child may take.
        corpus: where findings lie, which the candidate must not read.
        opened: starts it.
        distinguishes: as of `Setting`.

    Raises:
        KfuzzError: if it cannot be started.
    """
    budget = budget_of(reference, backend)
    inside = candidate.resolve().is_relative_to(corpus.resolve())
    judged = Judged(
        reference,
        opened(
            candidate.resolve(), reference, backend=backend, limits=limits,
            hidden=[] if inside else [corpus],
        ),
        name=name, budget=budget, classes=judged_classes(), claims=claims,
        distinguishes=distinguishes,
    )  # fmt: skip
    target = Target(
        file=_within(candidate, root), name=name,
        reference=_within(reference.form.path, root),
    )  # fmt: skip
    return JudgedKernel(judged.kernel, target, Source(), judged=judged)


def judged_classes() -> Collection[str]:
    """Return the ids of the contract classes that candidates are held to."""
    return frozenset(c.id for c in ATTRIBUTION if c.of_candidates)


def budget_of(reference: Reference, backend: str) -> SizeBudget:
    """Return the limits on cases, large enough for the least that the reference takes.

    Those of a search elsewhere are small: most faults of shape show there.
    """
    limits, least = BACKENDS[backend].limits, reference.least_elements
    elements = max(limits.judged_elements, least)
    rows = max(limits.sizes.rows, least)
    return replace(limits.sizes, elements=elements, rows=rows, span=0)


def _within(path: Path, root: Path) -> str:
    """Return a path as findings name it: relative to the project, or its last part."""
    full = path.resolve()
    inside = full.is_relative_to(root)
    return full.relative_to(root).as_posix() if inside else full.name


# `kfuzz judge`: a candidate nobody vouches for, against a reference somebody does.
#
# First what the problem is worth; then the candidate on the file's own values at the
# benchmarked shape; then value families and other shapes, drawn as for any kernel.

# The search of a candidate: the benchmarked shape first, then as for any kernel.

# Values at the benchmarked shape, after the file's own: normal ones, zeros, and such as
# break shortcuts and narrow formats.
FAMILIES: Final = (
    "zeros", "randn", "negative", "tail_big", "expspread", "exact_int", "offset",
    "subnormal",
)  # fmt: skip
# Then such as hold NaN or infinities, where these have a meaning.
SPECIAL: Final = ("nan1", "infmix")
# Sizes elsewhere: at most this, or so many times the benchmarked one.
_NEAR: Final = 8192
_TIMES: Final = 16
# Parts of the time: for the benchmarked shape, and for all that is not confirming.
_OPENING: Final = 0.45
_SEARCHING: Final = 0.75
_HISTORY: Final = 0.12
_LONGEST_HISTORY: Final = 0.3
# Cases before a long run of calls, and its calls for each case where these are counted.
_BEFORE_HISTORY: Final = 3
_CALLS_A_CASE: Final = 8
# Seconds in which a finding is reduced and explained, at most.
_REDUCING: Final = 20.0
UNSEEN: Final = (
    "loads outside arguments go unseen: in the candidate's child nothing faults there"
)


class Search(Campaign):
    """A campaign that begins at the benchmarked shape."""

    def __init__(
        self,
        config: RunConfig,
        stop: threading.Event,
        backend: Backend,
        loaded: list[JudgedKernel],
        classes: frozenset[str],
        *,
        benchmarked_only: bool,
        modeless: bool,
        explain: bool,
    ) -> None:
        self._modeless = modeless
        self._explain = explain
        self._judged = loaded[0].judged
        self._reference = self._judged.reference
        self._only_there = benchmarked_only or not self._reference.shapes.free
        self._judged.benchmarked_only = self._only_there
        # Confirmed findings that rest on NaN or infinities: after one only numbers.
        self._not_numbers: set[str] = set()
        super().__init__(config, stop, backend, list(loaded), classes)
        self._judged.candidate.sandbox.until = lambda: self.clock.deadline
        self.clock.begun = self.clock.started  # a judge's time includes start-up
        for kernel in self.kernels:
            kernel.record.notices = {UNSEEN: False}

    def budget_of(self, kernel: BoundKernel) -> SizeBudget:
        """Return the limits on cases: those of small ones, unless none is as small."""
        return budget_of(self._reference, self.backend.name)

    def shares_time(self) -> bool:
        """Return False: a fresh process costs more than any size that is searched."""
        return False

    def draws(
        self, kernel: KernelSearch, budget: SizeBudget, without: frozenset[str]
    ) -> Callable[..., Sequence[Any]] | None:
        """Return what draws cases, with the file's own values among them.

        It draws in this process: no candidate's child does.
        """
        small = replace(budget, tall=0)
        made = strategy_of(kernel.loaded.kernel, small, without=without)
        if made is None:
            return None
        made = made.filter(self._is_near)
        made = made.map(outcome.finite_of) if self._not_numbers else made
        made = made.map(self._reference.adapted)
        made = made.map(self._reference.resized) if self._only_there else made
        return partial(drawn, made)

    def opening(self, kernel: KernelSearch) -> Iterator[Event]:
        """Judge the benchmarked shape: the file's own values first, then others."""
        limit = self.config.budget.max_time
        end = self.search_end()
        if limit is not None:
            now = time.monotonic()
            end = now + _OPENING * max(end - now, 0.0)
        for number, case in enumerate(self._first_cases()):
            # The first one is judged however little time there is.
            until = end if number else self.search_end()
            this_round = Round(kernel, stop=self.stop, deadline=until)
            most = self.config.budget.max_cases
            full = most is not None and kernel.record.cases >= most
            if number and (full or this_round.over or self.over()):
                break
            if self._not_numbers and not outcome.is_finite(case):
                continue
            began = time.monotonic()
            this_round.judge(case)
            kernel.seconds += time.monotonic() - began
            for text in kernel.record.unreported():
                yield Notice(kernel.node_id, text)
            if isinstance(this_round.error, KfuzzError):
                raise this_round.error
            if this_round.found is not None:
                yield from self.process(kernel, *this_round.found)
            if number + 1 == _BEFORE_HISTORY and self._explain:
                began = time.monotonic()
                yield from self._history(kernel)
                end = min(end + time.monotonic() - began, self.search_end())
        if not self._explain and not self.over():
            yield from self._history(kernel)  # what one call shows is found sooner
        yield self.progress(kernel)

    def _history(self, kernel: KernelSearch) -> Iterator[Event]:
        """Make a long run of calls in the child that there is."""
        limit, most = self.config.budget.max_time, self.config.budget.max_cases
        begun = time.monotonic()

        def over(made: int) -> bool:
            if self.over() or limit is None:
                return self.over()
            share = (time.monotonic() - begun) / limit
            in_reach = made * _LONGEST_HISTORY >= HUNDREDS * share
            more = made < HUNDREDS and in_reach
            return share >= (_LONGEST_HISTORY if more else _HISTORY)

        calls = MOST if most is None else min(MOST, _CALLS_A_CASE * most)
        found = self._judged.history(self.config.seed, calls=calls, over=over)
        if found is None:
            return
        case, report = found
        assert report.failure is not None
        symptom = report.failure.signature(kernel.name).symptom
        states = {
            f.state for f in kernel.findings.values() if f.signature.symptom == symptom
        }
        # What was seen before and not confirmed is seen again here.
        if symptom not in kernel.shown or (states and not states & ATTRIBUTED):
            kernel.shown.add(symptom)
            yield from self.process(kernel, case, report)

    def _time_slice(self, kernel: KernelSearch) -> Iterator[Event]:
        """Give a kernel one round: every other one begins in a process of its own.

        There the first call is on any shape, and few calls come before a case.
        """
        if kernel.rounds % 2 == 0:
            self._judged.candidate.sandbox.fresh()
        yield from super()._time_slice(kernel)

    def _is_near(self, case: Case) -> bool:
        """Whether no dimension is so large that compilers of others gave up.

        A kernel that is benchmarked on rows of a thousand is mostly compiled for one
        block of a row, which takes minutes for rows of a million.
        """
        sizes = self._reference.shapes.sizes
        return all(
            n <= max(_NEAR, _TIMES * sizes.get(axis, 1))
            for spec in case.tensors.values()
            for axis, n in zip(spec.axes, spec.shape, strict=True)
        )

    def _first_cases(self) -> Iterator[Case]:
        """Yield cases at the benchmarked shape, what is worth most time first."""
        reference, seeds = self._reference, _seeds(self._reference, self.config.seed)
        asks = self._judged.kernel.declaration.nonfinite == "propagate"
        yield reference.case(OWN, next(seeds))
        yield (own := reference.case(OWN, next(seeds)))
        yield reference.case(SHIFTED, next(seeds))
        # What knows no other shape is found before all that takes more time.
        yield from self._judged.larger(own)[:1]
        if self._judged.takes_other_weights:
            yield replace(reference.case(OWN, next(seeds)), config=OTHER_WEIGHTS)
        if self._modeless:
            yield replace(reference.case(OWN, next(seeds)), config=EVALUATION)
        special = SPECIAL if asks else ()
        for family in (*list(SCALED)[1:], SHIFTED, *FAMILIES, *special):
            yield reference.case(family, next(seeds))
        if not reference.whole:  # which may take all the time that is left
            yield reference.case(OWN, next(seeds), whole=True)

    def process(
        self, kernel: KernelSearch, case: Case, report: CaseReport
    ) -> Iterator[Event]:
        """Take a finding to its minimum, from a smaller shape where one shows it."""
        assert report.failure is not None
        wanted = report.failure.signature(kernel.name)
        outputs = self._reference.outputs
        recording = self._judged.candidate.recording
        recorded = recording.showing(report.failure, outputs)
        pinned = kernel.runner.pin(case)
        if self._explain and not pinned.pinned and not self.over():
            for small in self._judged.smaller(case):
                told = self._judged.judge(small, Depth.FULL)
                if told.failure is not None and told.shows(wanted):
                    case, report = small, told
                    recorded = recording.showing(told.failure, outputs)
                    break
        known = set(kernel.findings)
        yield from super().process(kernel, case, report)
        for id in set(kernel.findings) - known:
            finding = kernel.findings[id]
            if recorded is not None and finding.state is State.WITNESSED:
                attach(Path(kernel.paths[id]), FILE, recorded)
            if finding.state not in ATTRIBUTED and finding.failure.kind in ENDS:
                # A second time is a proof: let it show again.
                kernel.shown.discard(wanted.symptom)
                kernel.seen.discard(finding.signature)
        self._not_numbers = {
            f.id
            for f in kernel.findings.values()
            if f.state in ATTRIBUTED and not self._judged.is_ordinary(f.case)
        }

    def count_findings(self) -> int:
        """Return how many findings are confirmed, but those about NaN alone.

        What a candidate makes of numbers is searched for as long as without them.
        """
        found = [f for k in self.kernels for f in k.findings.values()]
        return sum(
            f.state in ATTRIBUTED and f.id not in self._not_numbers for f in found
        )

    def search_end(self) -> float:
        """The moment after which no round begins: time to confirm is kept."""
        limit = self.config.budget.max_time
        if limit is None:
            return math.inf
        return self.clock.started + _SEARCHING * limit

    @property
    def after(self) -> float:
        """None: a judge has promised when it ends."""
        return 0.0

    def first_until(self, kernel: KernelSearch, finding: Finding) -> float:
        """Return the end: to be confirmed a finding has all the time that is left."""
        return self.clock.deadline

    def reducing_seconds(
        self, kernel: KernelSearch, finding: Finding, until: float
    ) -> float:
        """Return how long a finding may be reduced: half of what is left."""
        if not self._explain:
            return 0.0
        most = super().reducing_seconds(kernel, finding, until)
        left = max(self.search_end() - time.monotonic(), 0.0)
        return min(most, left / 2, _REDUCING)


def reuse_memory() -> None:
    """Have this process keep the memory of large tensors that it lets go of.

    By default glibc gives it back at once, and the next tensor's pages are faulted in
    anew: half of the time that bounds of millions of elements take.
    """
    with suppress(AttributeError, OSError):  # another C library
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_MAX, 0)
        libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def _seeds(reference: Reference, seed: int) -> Iterator[int]:
    """Return seeds; the first case gets a second call by its own."""
    every = count((seed * 7919) % (1 << 20))
    first = next(n for n in every if is_due(reference.case(OWN, n)))
    return count(first)


# What a judgement takes over of what came of the search.
_FINISHED: Final = ("findings", "paths", "contracts", "refusals", "notes")
# Parameters of mallopt(3), as malloc.h numbers them.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_MAX: Final = -4
# Cases at the benchmarked shape without which nothing is said to conform.
_LEAST_CASES: Final = 3
# The part that the search gets however long it took to get ready.
_LEAST: Final = 0.4
# Seconds below which no line is looked for.
_LEAST_LOCATING: Final = 5.0


@dataclass(frozen=True)
class JudgeConfig:
    """What is to be judged, and how long.

    Attributes:
        reference: the reference file.
        candidate: the candidate's.
        root: the project; findings name files relative to it.
        corpus: folder of findings.
        seed: everything drawn depends on it.
        budget: when to stop; at the first confirmed finding by default.
        device: "auto", "cpu", "cuda", "cuda:i" or "interpret".
        benchmarked_only: whether no other shape is tried.
        claims: what candidates declare, as `kfuzz.kernel` takes it.
        limits: what the candidate's child may take.
        started: `time.monotonic()` from which the time counts.
        explain: whether findings are reduced and explained; else a confirmed one ends
            the judgement.
    """

    reference: Path
    candidate: Path
    root: Path
    corpus: Path
    seed: int = 0
    budget: Budget = field(default_factory=lambda: Budget(max_findings=1))
    device: str = "auto"
    benchmarked_only: bool = False
    claims: Mapping[str, Any] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    started: float | None = None
    explain: bool = True


class Judging:
    """One judgement; `events` are to be consumed before it is asked for."""

    def __init__(
        self,
        config: JudgeConfig,
        *,
        opened: Callable[..., Candidate] | None = None,
        problem: PosedProblem | None = None,
        hidden: Sequence[Path] = (),
    ) -> None:
        """Take what is asked.

        Args:
            config: what to judge.
            opened: starts the candidate; in a child of its own by default, which gets
                ready while the reference is opened.
            problem: the reference, where it was opened before on this device.
            hidden: what candidates must not read besides, where `opened` is given.
        """
        self._config = config
        self._start = config.started or time.monotonic()
        self._backend, devices = resolve(config.device)
        self._device = devices[0]
        device = self._device if self._backend.has.native else self._backend.name
        self._zygote = None if opened else zygote_for(device)
        self._opened = opened or partial(Candidate, zygote=self._zygote)
        self._problem, self._hidden = problem, hidden
        self._judged: Judged | None = None
        self._finished: KernelFinished | None = None
        self._elapsed = 0.0
        self._interrupted = False
        self._broken = self._given_up = self._no_line = ""
        self._is_built = True
        self._on_finite: Verdict | None = None
        self._notices: list[str] = []

    def events(self, *, stop: threading.Event) -> Iterator[Event]:
        """Judge, and tell what happens.

        Raises:
            UsageError: if a file is missing, or the reference is not of the form.
            BackendError: if the device is not there.
        """
        if not os.path.isfile(self._config.candidate):
            raise UsageError("no such file", where=str(self._config.candidate))
        with self._zygote or nullcontext():
            if self._problem is None:
                self._problem = self._opened_problem()
            problem = self._problem
            if problem and problem.reference is not None and not problem.audit.faults:
                yield from self._search(problem.reference, problem.audit, stop)
        self._elapsed = time.monotonic() - self._start

    def _opened_problem(self) -> PosedProblem | None:
        """Return the problem; None where opening it takes longer than an import may."""
        path, seconds = self._config.reference.resolve(), load.limit()
        try:
            with limited(seconds), load.imported(str(path)):
                return open_problem(path, self._device, self._backend)
        except Overdue:
            self._given_up = (
                f"opening the reference was given up after {seconds:.0f} s: "
                f"{load.way_out(seconds)}"
            )
            return None

    def _search(
        self, reference: Reference, audit: outcome.Audit, stop: threading.Event
    ) -> Iterator[Event]:
        config = self._config
        # A candidate judged on it before may have left it with other weights.
        reference.use_drawn(drawn=False)
        stated = {"accumulator": audit.accumulator, **config.claims}
        if audit.finite:
            stated["nonfinite"] = "undefined"
        claims = claims_of(reference, **stated)
        try:
            loaded = loaded_candidate(
                reference, config.candidate, claims,
                name=candidate_name(config.reference, config.candidate, config.root),
                root=config.root,
                backend=self._backend.name, limits=config.limits,
                opened=self._opened, corpus=config.corpus, distinguishes=config.explain,
            )  # fmt: skip
        except UsageError:
            raise
        except KfuzzError as error:
            self._broken = str(error)
            self._is_built = isinstance(error, HarnessError | BackendError)
            return
        self._judged = loaded.judged
        self._judged.candidate.kernel.perturbations = Perturbations(config.seed)
        # Its time counts from the start, unless getting ready has left little of it.
        limit, now = config.budget.max_time, time.monotonic()
        started = now if limit is None else max(self._start, now - (1 - _LEAST) * limit)
        run = RunConfig(
            targets=(), root=config.root, corpus=config.corpus, seed=config.seed,
            budget=config.budget, device=config.device, isolate="none", burst=1,
            started=started,
        )  # fmt: skip
        backend = Backend(config.device, isolate="none")
        campaign = Search(
            run, stop, backend, [loaded], frozenset(judged_classes()),
            benchmarked_only=config.benchmarked_only, modeless=audit.modeless,
            explain=config.explain,
        )  # fmt: skip
        try:
            for event in campaign.events():
                self._take(event)
                yield event
        finally:
            loaded.judged.candidate.close()
            backend.close()
        if config.explain and (found := self._first()) and not stop.is_set():
            left = SECONDS if limit is None else started + limit - time.monotonic()
            self._locate(found, reference, claims, min(left, SECONDS))

    def _locate(
        self, found: Finding, reference: Reference, claims: Declaration, seconds: float
    ) -> None:
        """Name the line of what the verdict rests on, where that is found in time."""
        config, end = self._config, time.monotonic() + seconds
        plain = replace(found, target=replace(found.target, reference=""))
        self._no_line = unfit(plain)
        if imports_none(config.candidate):
            self._no_line = NO_TRITON
        if not self._no_line and seconds < _LEAST_LOCATING:
            self._no_line = "there was no time for it"
        if self._no_line:
            return
        try:
            backend, devices = resolve(INTERPRET)
            if not self._backend.has.on_host:
                path = config.reference.resolve()
                reference = _deciding(path, backend, devices[0])
            loaded = loaded_candidate(
                reference, config.candidate, claims, name=found.signature.kernel,
                root=config.root, backend=backend.name,
                limits=replace(LIMITS, open_seconds=seconds),
                corpus=config.corpus, opened=self._steered,
            )  # fmt: skip
            loaded.judged.benchmarked_only = config.benchmarked_only
            line, _, self._no_line = located(found, loaded, config.root, end)
        except KfuzzError as error:
            self._no_line = str(error)
            return
        if line is not None and self._finished is not None:
            kept(Corpus(config.corpus), found, line)
            every = self._finished.findings
            every = tuple(replace(f, line=line) if f is found else f for f in every)
            self._finished = replace(self._finished, findings=every)

    def _steered(self, *given: Any, hidden: Sequence[Path], **more: Any) -> Steered:
        return Steered(*given, hidden=[*hidden, *self._hidden], **more)

    def _first(self) -> Finding | None:
        """Return the finding that the verdict rests on, None where it rests on none."""
        if self._finished is None or self._judged is None:
            return None
        found = [f for f in self._finished.findings if f.state in ATTRIBUTED]
        on_numbers = [f for f in found if self._judged.is_ordinary(f.case)]
        return next(iter(on_numbers or found), None)

    def _take(self, event: Event) -> None:
        match event:
            case KernelFinished():
                self._finished = event
            case RunFinished():
                self._interrupted = event.interrupted
            case Notice():
                self._notices.append(event.message)

    def judgement(self) -> outcome.Judgement:
        """Return the verdict, and what it rests on."""
        config = self._config
        audit = self._problem.audit if self._problem else outcome.Audit()
        verdict, reason = self._verdict(audit)
        finished, judged = self._finished, self._judged
        candidate = judged.candidate if judged else None
        measures = candidate.sandbox.containment if candidate else {}
        words = candidate.kernel.words if candidate else {}
        return outcome.Judgement(
            verdict=verdict,
            reason=reason,
            reference=str(config.reference),
            candidate=str(config.candidate),
            device=self._backend.name,
            device_name=self._backend.device_name(self._device),
            seed=config.seed,
            elapsed_s=self._elapsed,
            interrupted=self._interrupted,
            audit=audit,
            coverage=judged.tried if judged else outcome.Coverage(),
            **{name: getattr(finished, name) for name in _FINISHED if finished},
            notices=tuple(dict.fromkeys((*self._notices, *self._own_notices()))),
            containment=tuple(measures.values()),
            launched=tuple(words.get("kernels", ())),
            operators=tuple(words.get("operators", ())),
            weights=candidate.weights if candidate else "",
            on_finite=self._on_finite,
            is_built=self._is_built,
            no_line=self._no_line,
            cut_off=(
                verdict is Verdict.UNDER_SPECIFIED
                and _was_cut_off(judged)
                and not (finished and finished.findings)
            ),
        )

    def _own_notices(self) -> tuple[str, ...]:
        """Return notices of the judgement itself."""
        if self._judged is None:
            return ()
        judged = self._judged
        kernel = judged.candidate.kernel
        told = [f"by its child's word: {text}" for text in kernel.words["strays"]]
        told += [
            f"by its child's word a call leaves {text} changed; it was put back"
            for text in kernel.words["left"]
        ]
        if judged.reference.form.neutral() and not judged.candidate.same_names:
            told.append(
                "weights that are all 0 or all 1 stay so: the candidate's are not the "
                "reference's by name and size"
            )
        return tuple(told)

    def _verdict(self, audit: outcome.Audit) -> tuple[Verdict, str]:
        if audit.faults or self._given_up:
            return Verdict.UNDER_SPECIFIED, (*audit.faults, self._given_up)[0]
        if self._broken:
            return Verdict.ERROR, self._broken
        finished, judged = self._finished, self._judged
        if finished is None or judged is None:
            return Verdict.ERROR, "the judgement did not come to its end"
        if first := self._first():
            told = f"{first.signature.contract}: {first.failure.message}"
            told += f"; at {first.line}" if first.line else ""
            if not judged.is_ordinary(first.case):
                self._on_finite, why = self._without_attribution(finished, judged)
                known = f"on finite inputs {self._on_finite}: {why}"
                if self._on_finite is Verdict.CONFORMS:
                    known = "conforms on finite inputs, breaks on NaN or inf alone"
                told += f"; {known}"
            return Verdict.VIOLATES, told
        return self._without_attribution(finished, judged)

    def _without_attribution(
        self, finished: KernelFinished, judged: Judged
    ) -> tuple[Verdict, str]:
        """Return the verdict where nothing is reported, or nothing about numbers."""
        tallies, tried = finished.contracts.values(), judged.tried
        if any(t.verdict is Verdict.ERROR for t in tallies):
            told = ("could not be judged", "not judged on this backend")
            said = (n for n in self._notices if any(t in n for t in told))
            return Verdict.ERROR, next(said, "some case could not be judged")
        open_ = [f for f in finished.findings if f.state not in ATTRIBUTED]
        if open_:
            return Verdict.UNDER_SPECIFIED, (
                f"{open_[0].signature.contract} failed and was not confirmed: "
                f"{open_[0].state}"
            )
        least = min(_LEAST_CASES, self._config.budget.max_cases or _LEAST_CASES)
        asked = tried.refused_there + tried.taken_there
        for is_so, why in (
            (_was_cut_off(judged), "a call had not returned when the time was up: "
             "give more with --max-time"),
            (tried.raised_watched, "it raises where torch's operators are watched and "
             "returns where they are not, as torch.jit.trace does: its memory cannot "
             "be judged"),
            (not tried.passed, "no case on the file's own values could be decided"),
            (judged.candidate.stalls, "a call did not return in time, and did in a "
             "fresh process"),
            (tried.benchmarked < least, f"the time was enough for {tried.benchmarked} "
             "cases at the benchmarked shape: give more with --max-time"),
            (tried.refused_there > tried.taken_there, f"it raised on "
             f"{tried.refused_there} of {asked} cases of finite values other than the "
             "file's own at the benchmarked shape, all of which the reference takes"),
        ):  # fmt: skip
            if is_so:
                return Verdict.UNDER_SPECIFIED, why
        return Verdict.CONFORMS, "nothing found"


def _was_cut_off(judged: Judged | None) -> bool:
    """Whether a call had not returned before anything could be decided."""
    return bool(judged and judged.candidate.sandbox.cut_off and not judged.tried.passed)
