"""A campaign: rounds over kernels under a budget, yielding events."""

import math
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from kfuzz.contracts.classes import ATTRIBUTION
from kfuzz.contracts.suite import select_classes
from kfuzz.core.budget import SIZE_BUDGETS, SizeBudget
from kfuzz.core.event import (
    ContractTally,
    Event,
    FindingSaved,
    KernelFinished,
    Notice,
    Progress,
    Refusal,
    RunFinished,
    RunStarted,
)
from kfuzz.core.finding import Finding
from kfuzz.core.fingerprint import host_fingerprint
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CaseReport, Kind, Signature, State, Verdict
from kfuzz.corpus import Corpus, Stored
from kfuzz.engine.backend import Backend
from kfuzz.engine.config import RunConfig
from kfuzz.engine.falsify import round_seed, search_round, strategy_of
from kfuzz.engine.lifecycle import enter, process
from kfuzz.engine.runner import HANG_SECONDS, Place, Runner, Stopped
from kfuzz.targets.load import LoadedKernel, load_all

# The first round is short, so that a gross fault shows in a second; later ones
# give Hypothesis's target phase room. A round is never longer than this.
FIRST_ROUND: Final = 25
LONGEST_ROUND: Final = 200
# One symptom can have several causes, but a broken kernel shows its one cause in
# every case: these occurrences, then each power of two, are diagnosed.
DIAGNOSED: Final = 4
FINDINGS_PER_KERNEL: Final = 6
# Seconds given to reduce and explain one finding, and kept back from the run's
# time for one confirmation.
REDUCE_SECONDS: Final = 45.0
REDUCE_UNLIMITED_SECONDS: Final = 600.0
RESERVE_SECONDS: Final = 1.5
# The last candidate, three forks, and the full limit.
CONFIRM_HANG_SECONDS: Final = HANG_SECONDS + 4.0
# Live children; each holds memory, on a GPU a context.
LIVE_CHILDREN: Final = 8
_ORDER: Final = [c.id for c in ATTRIBUTION]
# Classes that further probes may tell apart.
_DIAGNOSABLE: Final = frozenset(
    c.id for c in ATTRIBUTION if c.id.startswith("C-") or c.id == "K-VAL-01"
)


@dataclass
class _Kernel:
    """The state of one kernel over a run."""

    loaded: LoadedKernel
    runner: Runner
    budget: SizeBudget
    classes: frozenset[str]
    cases: int = 0
    rounds: int = 0
    seconds: float = 0.0
    worst: float = 0.0
    errors: int = 0
    decided: dict[str, int] = field(default_factory=dict)
    undecided: dict[str, int] = field(default_factory=dict)
    refusals: dict[str, tuple[int, str]] = field(default_factory=dict)
    symptoms: dict[tuple[object, ...], int] = field(default_factory=dict)
    seen: set[Signature] = field(default_factory=set)
    findings: dict[str, Finding] = field(default_factory=dict)
    paths: dict[str, str] = field(default_factory=dict)
    notices: dict[str, bool] = field(default_factory=dict)
    judged_dtypes: set[str] = field(default_factory=set)
    unsupported_dtypes: set[str] = field(default_factory=set)
    done: bool = False

    @property
    def node_id(self) -> str:
        return self.loaded.target.node_id

    @property
    def name(self) -> str:
        return self.loaded.kernel.name


def run(config: RunConfig, *, stop: threading.Event) -> Iterator[Event]:
    """Search the kernels of the configured targets for violations.

    Args:
        config: what to test and how long.
        stop: set from outside to end the run cleanly.

    Yields:
        Events, ending with one `RunFinished`.

    Raises:
        KfuzzError: before the first event, on targets or settings that cannot
            be obeyed.
    """
    loaded = load_all(config.targets, root=config.root)
    yield from run_kernels(config, loaded, stop=stop)


def run_kernels(
    config: RunConfig, loaded: list[LoadedKernel], *, stop: threading.Event
) -> Iterator[Event]:
    """Search kernels that are loaded already; otherwise as `run`."""
    classes = select_classes(config.contracts, config.exclude)
    backend = Backend(config.device, isolate=config.isolate)
    try:
        yield from _Campaign(config, stop, backend, loaded, classes).events()
    finally:
        backend.close()


class _Campaign:
    def __init__(
        self,
        config: RunConfig,
        stop: threading.Event,
        backend: Backend,
        loaded: list[LoadedKernel],
        classes: frozenset[str],
    ) -> None:
        self.config = config
        self.stop = stop
        self.backend = backend
        self.corpus = Corpus(config.corpus)
        self.start = time.monotonic()
        limit = config.budget.max_time
        self.deadline = math.inf if limit is None else self.start + limit
        self.kernels = [self._prepare(kernel, classes) for kernel in loaded]

    def _prepare(self, loaded: LoadedKernel, classes: frozenset[str]) -> _Kernel:
        operator, claims = loaded.kernel.operator, loaded.kernel.declaration
        bound = {c.id for c in ATTRIBUTION if c.applies(operator, claims)}
        budget = SIZE_BUDGETS[self.backend.name]
        strategy_of(loaded.kernel, budget)  # an impossible domain shows here
        place = Place(
            device=self.backend.device,
            backend=self.backend.name,
            budget=budget,
            classes=tuple(sorted(classes)),
            root=self.config.root,
        )
        fork = self.backend.fork if self.backend.isolated else None
        runner = Runner(loaded, place, fork, expired=self._expired)
        return _Kernel(loaded, runner, budget, frozenset(classes & bound))

    def events(self) -> Iterator[Event]:
        names = tuple(k.node_id for k in self.kernels)
        yield RunStarted(self.config.seed, self.backend.name, names)
        try:
            while not self._over():
                kernel = self._next()
                if kernel is None:
                    break
                yield from self._turn(kernel)
                yield self._progress(kernel)
        finally:
            for kernel in self.kernels:
                kernel.runner.close()
        for kernel in self.kernels:
            yield self._finished(kernel)
        elapsed = time.monotonic() - self.start
        interrupted = self.stop.is_set()
        yield RunFinished(elapsed, interrupted, self.config.seed, self.backend.name)

    def _expired(self) -> bool:
        return self.stop.is_set() or time.monotonic() >= self.deadline

    def _over(self) -> bool:
        most = self.config.budget.max_findings
        full = most is not None and self._count_findings() >= most
        return self.stop.is_set() or full or time.monotonic() >= self._search_end()

    def _search_end(self) -> float:
        """The moment after which no round begins: a confirmation is kept back."""
        limit = self.config.budget.max_time
        if limit is None:
            return math.inf
        return self.deadline - min(RESERVE_SECONDS, limit / 10)

    def _next(self) -> _Kernel | None:
        """Return the kernel that has had the least time, None if all are done."""
        open_kernels = [k for k in self.kernels if not k.done]
        if not open_kernels:
            return None
        if self.config.budget.max_time is None:
            return min(open_kernels, key=lambda k: k.rounds)
        return min(open_kernels, key=lambda k: k.seconds)

    def _turn(self, kernel: _Kernel) -> Iterator[Event]:
        """Give a kernel one round, then take what it found to its minimum."""
        began = time.monotonic()
        found: list[tuple[Case, CaseReport]] = []
        cases = self._round_cases(kernel)
        share = self._share(kernel, began)

        def judge(case: Case) -> CaseReport | None:
            if found or self.stop.is_set() or time.monotonic() >= share:
                return None
            try:
                report = kernel.runner.judge(case, "search")
                kernel.cases += 1
                report = self._record(kernel, case, report)
            except Stopped:
                return None
            if report.failure is not None and self._is_new(kernel, report):
                found.append((case, report))
            return report

        left = self.config.budget.max_cases
        before = kernel.cases
        # One stack of a crash is news, a hundred are noise.
        self.backend.quiet = any(Kind.CRASH in symptom for symptom in kernel.symptoms)
        number = round_seed(self.config.seed, kernel.name, kernel.rounds)
        # What this backend could never judge is not drawn again.
        useless = kernel.unsupported_dtypes - kernel.judged_dtypes
        strategy = strategy_of(kernel.loaded.kernel, kernel.budget, without=useless)
        if strategy is None:
            kernel.done = True
            return
        if left is not None:
            cases = min(cases, left - kernel.cases)
        search_round(strategy, judge, cases=cases, seed_value=number)
        kernel.rounds += 1
        for text, told in kernel.notices.items():
            if not told:
                kernel.notices[text] = True
                yield Notice(kernel.node_id, text)
        for case, report in found:
            yield from self._process(kernel, case, report)
        kernel.seconds += time.monotonic() - began
        nothing = kernel.cases == before and not found
        spent = left is not None and kernel.cases >= left
        full = len(kernel.findings) >= FINDINGS_PER_KERNEL
        endless = self.config.budget.max_time is None and nothing
        kernel.done = spent or full or endless
        self._retire(kernel)

    def _round_cases(self, kernel: _Kernel) -> int:
        return min(FIRST_ROUND << min(kernel.rounds, 3), LONGEST_ROUND)

    def _share(self, kernel: _Kernel, now: float) -> float:
        """Return when this round must end, so that shares stay fair."""
        if self.config.budget.max_time is None:
            return math.inf
        open_kernels = sum(not k.done for k in self.kernels)
        fair = (self._search_end() - now) / max(open_kernels, 1)
        return min(self._search_end(), now + max(fair, 0.2))

    def _record(self, kernel: _Kernel, case: Case, report: CaseReport) -> CaseReport:
        """Count what a case teaches; diagnose a failure where that is due."""
        if report.error is not None:
            kernel.errors += 1
            kernel.notices.setdefault(f"could not be judged: {report.error}", False)
        if report.unsupported is not None:
            kernel.unsupported_dtypes.add(_dtype_of(case))
            text = f"not judged on this backend: {report.unsupported}"
            kernel.notices.setdefault(text, False)
        else:
            kernel.judged_dtypes.add(_dtype_of(case))
        if report.refusal is not None:
            count, example = kernel.refusals.get(report.refusal, (0, ""))
            kernel.refusals[report.refusal] = (count + 1, example)
        for name, verdict in report.verdicts.items():
            if verdict is Verdict.UNDER_SPECIFIED:
                kernel.undecided[name] = kernel.undecided.get(name, 0) + 1
            else:
                kernel.decided[name] = kernel.decided.get(name, 0) + 1
        if report.failure is None:
            kernel.worst = max(kernel.worst, min(report.ratio, 1.0))
            return report
        symptom = report.failure.signature(kernel.name).symptom
        times = kernel.symptoms.get(symptom, 0) + 1
        kernel.symptoms[symptom] = times
        if not _is_due(times) or report.failure.contract not in _DIAGNOSABLE:
            return report
        full = kernel.runner.judge(case, "full")
        return full if full.failure is not None else report

    def _is_new(self, kernel: _Kernel, report: CaseReport) -> bool:
        assert report.failure is not None
        signature = report.failure.signature(kernel.name)
        times = kernel.symptoms.get(signature.symptom, 0)
        return signature not in kernel.seen and _is_due(times)

    def _process(
        self, kernel: _Kernel, case: Case, report: CaseReport
    ) -> Iterator[Event]:
        """Save, confirm, reduce, confirm, explain."""
        assert report.failure is not None
        finding = Finding(
            signature=report.failure.signature(kernel.name),
            target=kernel.loaded.target,
            operator=kernel.loaded.kernel.operator.name,
            device=self.backend.name,
            case=kernel.runner.pin(case),
            first=case,
            failure=report.failure,
            declaration=kernel.loaded.kernel.declaration,
            fingerprint=host_fingerprint(device=kernel.runner.device_name),
            seed=self.config.seed,
        )
        finding = enter(finding, State.NEW, "found")
        kernel.seen.add(finding.signature)
        entry = _Entry(self.corpus, finding)
        path = str(entry.path)
        yield FindingSaved(kernel.node_id, finding, path, True, "found")
        self.backend.quiet = True
        try:
            process(
                kernel.runner,
                finding,
                seconds=lambda: self._reduce_seconds(finding),
                stopped=self._expired,
                save=entry.save,
            )
        except Stopped:
            text = f"{entry.finding.id} is saved as it stood when the run ended"
            yield Notice(kernel.node_id, text)
        finally:
            self.backend.quiet = False
        final = entry.settle()
        kernel.seen.add(final.signature)
        is_new = entry.is_new and final.id not in kernel.findings
        kernel.findings[final.id] = final
        kernel.paths[final.id] = str(entry.path)
        yield FindingSaved(kernel.node_id, final, str(entry.path), is_new, "done")

    def _reduce_seconds(self, finding: Finding) -> float:
        """Return how long one finding may be reduced and explained."""
        if self.deadline == math.inf:
            # Evaluations bound it; the clock is a safety stop.
            return REDUCE_UNLIMITED_SECONDS
        # Half of what is left: others want to be found too.
        left = self.deadline - time.monotonic() - RESERVE_SECONDS
        if finding.signature.kind is Kind.HANG:
            # Its minimum is confirmed under the full limit.
            return min(REDUCE_SECONDS, max(left - CONFIRM_HANG_SECONDS, 0.0))
        return min(REDUCE_SECONDS, max(left / 2, 0.0))

    def _retire(self, kernel: _Kernel) -> None:
        """Close children beyond what may live at once, the current one last."""
        if kernel.done:
            kernel.runner.close()
        live = [k for k in self.kernels if k is not kernel]
        for other in live[: max(len(live) + 1 - LIVE_CHILDREN, 0)]:
            other.runner.close()

    def _count_findings(self) -> int:
        return sum(len(k.findings) for k in self.kernels)

    def _progress(self, kernel: _Kernel) -> Progress:
        return Progress(
            kernel=kernel.node_id,
            elapsed_s=time.monotonic() - self.start,
            cases=sum(k.cases for k in self.kernels),
            worst_ratio=max(k.worst for k in self.kernels),
            findings=self._count_findings(),
            kernels_done=sum(k.done for k in self.kernels),
        )

    def _finished(self, kernel: _Kernel) -> KernelFinished:
        tallies = {name: self._tally(kernel, name) for name in _ORDER}
        refusals = tuple(
            Refusal(reason, count, _remedy(reason, kernel), example)
            for reason, (count, example) in sorted(kernel.refusals.items())
        )
        return KernelFinished(
            kernel=kernel.node_id,
            operator=kernel.loaded.kernel.operator.name,
            cases=kernel.cases,
            cases_per_s=kernel.cases / kernel.seconds if kernel.seconds else 0.0,
            contracts={n: t for n, t in tallies.items() if t is not None},
            refusals=refusals,
            findings=tuple(kernel.findings.values()),
            paths=dict(kernel.paths),
            worst_ratio=kernel.worst,
        )

    def _tally(self, kernel: _Kernel, name: str) -> ContractTally | None:
        if name not in kernel.classes:
            known = any(c.id == name for c in ATTRIBUTION)
            applied = name in kernel.runner.place.classes
            if known and applied:
                return ContractTally(Verdict.NOT_APPLICABLE)
            return None
        decided = kernel.decided.get(name, 0)
        undecided = kernel.undecided.get(name, 0)
        violated = any(
            f.signature.contract == name and f.state in (State.CONFIRMED, State.KNOWN)
            for f in kernel.findings.values()
        )
        if violated:
            verdict = Verdict.VIOLATES
        elif kernel.errors and not decided:
            verdict = Verdict.ERROR
        elif decided:
            verdict = Verdict.CONFORMS
        elif undecided:
            verdict = Verdict.UNDER_SPECIFIED
        else:
            verdict = Verdict.NOT_APPLICABLE
        return ContractTally(verdict, decided, undecided)


class _Entry:
    """A finding's place in the corpus, as the finding changes.

    Attributes:
        finding: as stored last.
        path: its folder.
        is_new: whether the corpus did not hold its bucket before.
    """

    def __init__(self, corpus: Corpus, finding: Finding) -> None:
        self._corpus = corpus
        self.finding = finding
        self.is_new = corpus.get(finding) is None
        self.path = corpus.save(finding)

    def save(self, finding: Finding) -> Finding:
        """Store the finding in place of its earlier form."""
        if finding.id != self.finding.id:
            self.is_new = self._corpus.get(finding) is None
        self.path = self._corpus.replace(self.finding, finding)
        self.finding = finding
        return finding

    def settle(self) -> Finding:
        """Return the finding as the corpus holds it, merged with what it held.

        A finding whose signature a known entry has is known too.
        """
        stored = self._corpus.get(self.finding)
        final = self.finding if stored is None else stored.finding
        if final.state is State.CONFIRMED and self._is_known(final):
            final = enter(final, State.KNOWN, "its signature is known")
            self.path = self._corpus.save(final)
        self.finding = final
        return final

    def _is_known(self, finding: Finding) -> bool:
        entries = (e.finding for e in self._corpus.entries() if isinstance(e, Stored))
        return any(
            e.state is State.KNOWN and e.signature == finding.signature for e in entries
        )


def _dtype_of(case: Case) -> str:
    return next(iter(case.tensors.values())).dtype


def _is_due(times: int) -> bool:
    """Whether the n-th occurrence of a symptom is diagnosed."""
    return times <= DIAGNOSED or times & (times - 1) == 0


def _remedy(reason: str, kernel: _Kernel) -> str:
    """Return the declaration that makes a refusal explicit."""
    if reason == "non-contiguous input":
        return 'layouts="contiguous"'
    if reason == "storage offset":
        return 'layouts="contiguous" (or "inner_contiguous")'
    if reason == "zero-size input":
        return 'shape_class="N >= 1 and M >= 1"'
    if reason == "dim other than the last":
        return "dims={-1}"
    if reason == "non-finite input":
        return 'nonfinite="undefined"'
    if reason.startswith("dtype "):
        refused = {r.removeprefix("dtype ") for r in kernel.refusals}
        kept = [d for d in kernel.loaded.kernel.declaration.dtypes if d not in refused]
        return f"dtypes={tuple(kept)!r}"
    return ""
