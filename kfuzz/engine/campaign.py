"""A campaign: rounds over kernels under a budget, yielding events."""

import math
import threading
import time
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kfuzz.contracts.classes import ATTRIBUTION
from kfuzz.contracts.suite import select_classes
from kfuzz.core.budget import SIZE_BUDGETS, Profile, SizeBudget
from kfuzz.core.errors import BackendError, BindingError
from kfuzz.core.event import (
    Event,
    FindingSaved,
    KernelFinished,
    Notice,
    Progress,
    RunFinished,
    RunStarted,
)
from kfuzz.core.finding import Finding
from kfuzz.core.life import enter, utc_now
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CaseReport, Kind, State
from kfuzz.corpus import Corpus
from kfuzz.engine import coverage
from kfuzz.engine.backend import Backend
from kfuzz.engine.bursts import screen_round
from kfuzz.engine.children import Place
from kfuzz.engine.config import Engine, RunConfig
from kfuzz.engine.coverage import CoverageSearch
from kfuzz.engine.falsify import round_seed, search_round, strategy_of
from kfuzz.engine.filed import FiledFinding
from kfuzz.engine.guidance import charge, is_climbed
from kfuzz.engine.judge_runner import runner_of
from kfuzz.engine.lifecycle import process
from kfuzz.engine.record import Record
from kfuzz.engine.round import UNFENCED, KernelTurns, Round, unreached
from kfuzz.engine.runner import HANG_SECONDS
from kfuzz.engine.served import Stopped
from kfuzz.execution import collectives, pages
from kfuzz.targets.load import LoadedKernel, load_all

if TYPE_CHECKING:  # imported for good, its storage is chosen: see `falsify`
    from hypothesis.strategies import SearchStrategy

# The first round is short, so that a gross fault shows in a second; later ones
# give Hypothesis's target phase room. A round is never longer than this.
FIRST_ROUND: Final = 25
LONGEST_ROUND: Final = 200
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
    coverage.require(config)
    backend = Backend(
        config.device, isolate=config.isolate, serve=coverage.served_by(config)
    )
    try:
        _require_device(config.profile, backend.name)
        yield from Campaign(config, stop, backend, loaded, classes).events()
    finally:
        backend.close()


class Campaign:
    """A search of kernels that are loaded, on a backend that is up.

    What judges a candidate is one with hooks of its own: `budget_of`, `opening`,
    `strategy` and `count_findings`.
    """

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
        self.classes = classes
        self.corpus = Corpus(config.corpus)
        self.corpus.require_writable()
        self.start = time.monotonic() if config.started is None else config.started
        limit = config.budget.max_time
        self.deadline = math.inf if limit is None else self.start + limit
        # None where no kernel here has any to do with them.
        self.no_collective: str | None = None
        if backend.name == "cuda" and backend.isolated and "C-ORD-03" in classes:
            self.no_collective = collectives.unavailable(backend.device)
        self.kernels = [self._prepare(kernel, classes) for kernel in loaded]
        # By node id; empty where nothing but chance and error guides a search.
        self.guided: dict[str, CoverageSearch] = {}
        if config.engine is Engine.ATHERIS:
            self.guided = {
                k.node_id: CoverageSearch(
                    k, backend.fork, config, expired=self._expired
                )
                for k in self.kernels
            }

    def _prepare(self, loaded: LoadedKernel, classes: frozenset[str]) -> KernelTurns:
        operator, claims = loaded.kernel.operator, loaded.kernel.declaration
        bound = {c.id for c in ATTRIBUTION if c.binds(operator, claims)}
        budget = self.budget_of()
        # An impossible domain shows here.
        strategy_of(loaded.kernel, budget, profile=self.config.profile)
        place = Place(
            device=self.backend.device,
            backend=self.backend.name,
            budget=budget,
            classes=tuple(sorted(classes)),
            root=self.config.root,
        )
        fork = self.backend.fork if self.backend.isolated else None
        runner = runner_of(loaded, place, fork, expired=self._expired)
        record = Record(frozenset(classes & bound), claims.dtypes)
        if why := _no_fences(self.backend):
            record.notice(f"{UNFENCED}: {why}")
        return KernelTurns(loaded, runner, budget, record)

    def events(self) -> Iterator[Event]:
        """Search, and yield what happens, ending with one `RunFinished`."""
        names = tuple(k.node_id for k in self.kernels)
        yield RunStarted(self.config.seed, self.backend.name, names, utc_now())
        if self.no_collective:
            text = f"C-ORD-03: collectives are not_applicable: {self.no_collective}"
            yield Notice("", text)
        try:
            for each in self.kernels:
                yield from self.opening(each)
            while not self._over():
                kernel = self._next()
                if kernel is None:
                    break
                yield from self._turn(kernel)
                yield self._progress(kernel)
        finally:
            for kernel in self.kernels:
                self._close(kernel)
        for kernel in self.kernels:
            if not self.guided and (text := unreached(kernel)):
                yield Notice(kernel.node_id, text)
            yield self._finished(kernel)
        elapsed = time.monotonic() - self.start
        interrupted = self.stop.is_set()
        yield RunFinished(elapsed, interrupted, self.config.seed, self.backend.name)

    def budget_of(self) -> SizeBudget:
        """Return the limits on the sizes of cases."""
        return SIZE_BUDGETS[self.backend.name]

    def opening(self, kernel: KernelTurns) -> Iterator[Event]:
        """Judge what comes before anything is drawn: nothing, here."""
        yield from ()

    def strategy(
        self, kernel: KernelTurns, without: Collection[str]
    ) -> "SearchStrategy[Case] | None":
        """Return what the cases of a kernel are drawn from; None if nothing is left."""
        return strategy_of(
            kernel.loaded.kernel,
            kernel.budget,
            without=without,
            profile=self.config.profile,
        )

    def _expired(self) -> bool:
        return self.stop.is_set() or time.monotonic() >= self.deadline

    def _over(self) -> bool:
        most = self.config.budget.max_findings
        full = most is not None and self.count_findings() >= most
        return self.stop.is_set() or full or time.monotonic() >= self._search_end()

    def _search_end(self) -> float:
        """The moment after which no round begins: a confirmation is kept back."""
        limit = self.config.budget.max_time
        if limit is None:
            return math.inf
        return self.deadline - min(RESERVE_SECONDS, limit / 10)

    def _next(self) -> KernelTurns | None:
        """Return the kernel whose turn it is, None if all are done.

        Under a time limit the one that has had the least of its share: stride
        scheduling (Waldspurger, 1995) with shares that follow what each discovers.
        """
        open_kernels = [k for k in self.kernels if not k.done]
        if not open_kernels:
            return None
        if self.config.budget.max_time is None:
            return min(open_kernels, key=lambda k: k.rounds)
        return min(open_kernels, key=lambda k: k.charged)

    def _turn(self, kernel: KernelTurns) -> Iterator[Event]:
        """Give a kernel one round, then take what it found to its minimum."""
        began = time.monotonic()
        before = kernel.record.cases
        limit = self.config.budget.max_cases
        # One stack of a crash is news, a hundred are noise.
        self.backend.quiet = any(Kind.CRASH in symptom for symptom in kernel.symptoms)
        # A large case that was too large says nothing of its dtype.
        quick = self.config.profile is Profile.QUICK
        strategy = self.strategy(kernel, kernel.record.useless_dtypes if quick else ())
        if strategy is None:
            kernel.done = True
            return
        cases = min(FIRST_ROUND << min(kernel.rounds, 3), LONGEST_ROUND)
        if limit is not None:
            cases = min(cases, limit - before)
        turn = Round(
            kernel, self.backend, stop=self.stop, deadline=self._share(kernel, began)
        )
        number = round_seed(self.config.seed, kernel.name, kernel.rounds)
        if guided := self.guided.get(kernel.node_id):
            guided.search(turn, strategy, cases=cases, seed_value=number)
        else:
            search_round(
                strategy, turn.judge, cases=cases, seed_value=number,
                climb=is_climbed(kernel.rounds),
            )  # fmt: skip
            self._screen(kernel, strategy, turn)
        if self.no_collective == "":
            turn.judge_beside_collective()
        kernel.rounds += 1
        if isinstance(turn.error, BindingError | BackendError):
            raise turn.error
        if turn.error is not None:
            kernel.record.errors += 1
            kernel.record.notice(f"given up: {turn.error}")
        for text in kernel.record.untold():
            yield Notice(kernel.node_id, text)
        if turn.found is not None:
            yield from self._process(kernel, *turn.found)
        self._charge(kernel, time.monotonic() - began)
        nothing = kernel.record.cases == before and turn.found is None
        kernel.done = (
            turn.error is not None
            or (limit is not None and kernel.record.cases >= limit)
            or kernel.unknown >= FINDINGS_PER_KERNEL
            or (self.config.budget.max_time is None and nothing)
        )
        self._retire(kernel)

    def _charge(self, kernel: KernelTurns, seconds: float) -> None:
        """Count the time of a round, and what it discovered."""
        kernel.seconds += seconds
        kernel.discovery.end_round()
        open_kernels = [k for k in self.kernels if not k.done]
        rates = [k.discovery.rate for k in open_kernels]
        kernel.charged += charge(seconds, rates, open_kernels.index(kernel))

    def _screen(
        self, kernel: KernelTurns, strategy: "SearchStrategy[Case]", turn: Round
    ) -> None:
        """Give a kernel's round its bursts, unless it has found something."""
        if turn.over or self.config.profile is not Profile.QUICK:
            return
        screen_round(
            kernel,
            turn,
            strategy,
            backend=self.backend.name,
            members=self.config.burst,
            limit=self.config.budget.max_cases,
            seed_value=round_seed(self.config.seed, f"{kernel.name}:", kernel.rounds),
        )

    def _share(self, kernel: KernelTurns, now: float) -> float:
        """Return when this round must end, so that shares stay fair."""
        if self.config.budget.max_time is None:
            return math.inf
        open_kernels = sum(not k.done for k in self.kernels)
        fair = (self._search_end() - now) / max(open_kernels, 1)
        return min(self._search_end(), now + max(fair, 0.2))

    def _process(
        self, kernel: KernelTurns, case: Case, report: CaseReport
    ) -> Iterator[Event]:
        """Save, confirm, reduce, confirm, explain."""
        assert report.failure is not None
        finding = Finding(
            signature=report.failure.signature(kernel.name),
            target=kernel.loaded.target,
            operator=kernel.loaded.kernel.operator.subject,
            device=self.backend.name,
            case=case,
            first=case,
            failure=report.failure,
            declaration=kernel.loaded.kernel.declaration,
            fingerprint=kernel.runner.fingerprint(),
            seed=self.config.seed,
            first_errors=report.failure.errors,
        )
        finding = enter(finding, State.NEW, "found")
        kernel.seen.add(finding.signature)
        entry = FiledFinding(self.corpus, finding)
        path, is_new = str(entry.path), not entry.is_known
        yield FindingSaved(kernel.node_id, finding, path, is_new, "found")
        self.backend.quiet = True
        try:
            pinned = replace(finding, case=kernel.runner.pin(case))
            process(
                kernel.runner,
                pinned,
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

    def _retire(self, kernel: KernelTurns) -> None:
        """Close children beyond what may live at once, the current one last."""
        if kernel.done:
            self._close(kernel)
        live = [k for k in self.kernels if k is not kernel]
        for other in live[: max(len(live) + 1 - LIVE_CHILDREN, 0)]:
            self._close(other)

    def _close(self, kernel: KernelTurns) -> None:
        """End the children of a kernel."""
        kernel.runner.close()
        if guided := self.guided.get(kernel.node_id):
            guided.close()

    def count_findings(self) -> int:
        """Return how many findings there are, of those that end a run.

        Known ones do not: they would keep what is new from being found.
        """
        return sum(k.unknown for k in self.kernels)

    def _progress(self, kernel: KernelTurns) -> Progress:
        return Progress(
            kernel=kernel.node_id,
            elapsed_s=time.monotonic() - self.start,
            cases=sum(k.record.cases for k in self.kernels),
            worst_ratio=max(k.record.worst for k in self.kernels),
            findings=self.count_findings(),
            kernels_done=sum(k.done for k in self.kernels),
            strata=sum(len(k.discovery.ledger.visits) for k in self.kernels),
        )

    def _finished(self, kernel: KernelTurns) -> KernelFinished:
        record, findings = kernel.record, list(kernel.findings.values())
        return KernelFinished(
            kernel=kernel.node_id,
            operator=kernel.loaded.kernel.operator.name,
            cases=record.cases,
            cases_per_s=record.cases / kernel.seconds if kernel.seconds else 0.0,
            contracts=record.tallies(findings, self.classes),
            refusals=record.refusals(),
            findings=tuple(findings),
            paths=dict(kernel.paths),
            worst_ratio=record.worst,
            notes=record.notes(),
            screened=record.screened,
            bursts=record.bursts,
            strata=len(kernel.discovery.ledger.visits),
            regions=kernel.discovery.ledger.regions(),
        )


def _require_device(profile: Profile, backend: str) -> None:
    """Check that the device can have cases of a profile.

    Raises:
        BackendError: if it cannot.
    """
    if profile is Profile.LARGE and backend != "cuda":
        raise BackendError(
            f"billions of elements take minutes on the backend {backend!r}",
            where="profile large",
            fix="run it on a GPU, or leave the profile out: views that span gigabytes "
            "are searched on the CPU anyway",
        )


def _no_fences(backend: Backend) -> str:
    """Return why no argument lies beside a page that faults.

    Returns:
        "" if some do, if a child will say so, and in the interpreter, which checks
        addresses instead.
    """
    if backend.name == "interpret":
        return ""
    if not backend.isolated:
        return "a page that faults would end this process, which runs the kernels"
    if backend.name == "cuda" or pages.available():
        return ""
    return "pages that fault cannot be made here"
