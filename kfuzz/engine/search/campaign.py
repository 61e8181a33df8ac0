"""A campaign: rounds over kernels under a budget, yielding events."""

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, Final

from kfuzz.contracts.binding import BoundKernel
from kfuzz.contracts.classes import ATTRIBUTION
from kfuzz.contracts.suite import select_classes
from kfuzz.core.budget import Scale, SizeBudget
from kfuzz.core.errors import (
    BackendError,
    BindingError,
    KfuzzError,
    StorageError,
    trace_text,
)
from kfuzz.core.event import (
    Event,
    KernelFinished,
    Notice,
    Progress,
    RunFinished,
    RunStarted,
)
from kfuzz.core.features import hook, needed
from kfuzz.core.finding import Finding
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import FAILING, CaseReport, Kind, State
from kfuzz.engine.config import Engine, RunConfig
from kfuzz.engine.search import found
from kfuzz.engine.search.record import Record
from kfuzz.engine.search.round import (
    DRAWING,
    QUANTUM_SECONDS,
    UNFENCED,
    KernelSearch,
    Round,
    SizeClass,
    above,
    due,
    prefilter_round,
    quantum,
    size_classes,
)
from kfuzz.engine.search.schedule import (
    LIVE_CHILDREN,
    Bindings,
    RunClock,
    Scheduler,
    finished_of,
    jobs_of,
    line_of,
    named_apart,
    no_fences,
    outside_of,
    require,
    watched,
)
from kfuzz.engine.workers import zygotes
from kfuzz.engine.workers.jobs import SHARING, Halt, Stopped, fair_share, streamed
from kfuzz.engine.workers.runner import Runner, runner_of
from kfuzz.engine.workers.zygotes import Backend, budget_for, home_of, runs_on
from kfuzz.evaluation.drawing import round_seed, strategy_of
from kfuzz.execution.processes.child import Child
from kfuzz.execution.processes.wire import free_memory
from kfuzz.store.corpus import Corpus
from kfuzz.store.life import utc_now
from kfuzz.targets.load import LoadedKernel, imported_seconds, load_all

# What a campaign asks of whatever proves its kernels meanwhile.

Keep = Callable[[KernelSearch, Case, CaseReport], Iterator[Event]]


Prover = Callable[[RunConfig], Any]
"""Returns the proofs of a run, None where nothing of it is proved; see
`kfuzz.features.prove.search.BesideSearch`."""

FINDINGS_PER_KERNEL: Final = 6
# The most of a kernel's time that one case may take: to compile.
SHARE: Final = 0.05
# Compiling is never given up before.
COMPILING_SECONDS: Final = 5.0


def run(
    config: RunConfig, *, stop: threading.Event, prover: Prover | None = None
) -> Iterator[Event]:
    """Search the kernels of the configured targets for violations.

    Args:
        config: what to test and how long.
        stop: set from outside to end the run cleanly.
        prover: begins to prove the kernels meanwhile.

    Yields:
        Events, ending with one `RunFinished`.

    Raises:
        KfuzzError: before the first event, on targets or settings that cannot
            be obeyed.
    """
    loaded = load_all(config.targets, root=config.root)
    yield from run_kernels(config, loaded, stop=stop, prover=prover)


def run_kernels(
    config: RunConfig,
    loaded: list[LoadedKernel],
    *,
    stop: threading.Event,
    prover: Prover | None = None,
) -> Iterator[Event]:
    """Search kernels that are loaded already; otherwise as `run`."""
    classes = select_classes(config.contracts, config.exclude_contracts)
    serve = zygotes.SERVE
    if config.engine is Engine.ATHERIS:
        guided = needed("coverage", "--engine atheris")
        guided.require(config)
        serve = guided.EXPLORE
    loaded = named_apart(loaded, Corpus(config.corpus).homes, config.root)
    backend = Backend(config.device, isolate=config.isolate, serve=serve)
    with closing(backend):
        require(config, backend.on)
        proofs = None if prover is None else prover(config)
        with nullcontext() if proofs is None else closing(proofs):
            campaign = Campaign(config, stop, backend, loaded, classes, proofs)
            yield from campaign.events()


class Campaign:
    """A search of kernels that are loaded, on a backend that is up.

    What judges a candidate is one with hooks of its own: `budget_of`, `shares_time`,
    `opening`, `draws`, `count_findings`, `search_end`, `first_until`,
    `reducing_seconds`, `after` and `process`.
    """

    def __init__(
        self,
        config: RunConfig,
        stop: threading.Event,
        backend: Backend,
        loaded: list[LoadedKernel],
        classes: frozenset[str],
        proofs: Any = None,
    ) -> None:
        self.config = config
        self.stop = stop
        self.halt = Halt(stop)
        self.backend = backend
        self.classes = classes
        # A file that was asked for is never passed over.
        known = (
            needed("calibrations", "--calibration")
            if config.calibration
            else hook("calibrations")
        )
        self.calibrations = known and known(backend.name, config.calibration)
        self.corpus = Corpus(config.corpus)
        self.corpus.require_writable()
        began = time.monotonic()
        self.jobs = jobs_of(config, backend, len(loaded))
        limit = config.budget.max_time
        started = began if config.started is None else config.started
        self.clock = RunClock(limit, jobs=self.jobs, started=started)
        # What the search leaves to the time after it, and how long that took.
        self.unfinished: list[tuple[KernelSearch, found.FiledFinding]] = []
        self.reducing_s = 0.0
        self._reduced = count()
        devices = backend.devices[: self.jobs]
        self.kernels = [
            self._prepare(kernel, classes, devices[number % len(devices)])
            for number, kernel in enumerate(loaded)
        ]
        self.workers = list(self.kernels)
        for number in range(len(loaded), self.jobs):
            kernel = self.kernels[number % len(loaded)]
            self._join(kernel, devices[number % len(devices)])
        self.scheduler = Scheduler(
            self.workers, jobs=self.jobs, timed=limit is not None, over=self.over
        )
        # Under a limit findings are taken to their minimum one after the other, so
        # that there are not more of them.
        self._counting = threading.Lock()
        # By node id; empty where nothing but chance and error guides a search.
        self.guided: dict[str, Any] = {}
        self.proofs = proofs
        if config.engine is Engine.ATHERIS:
            guided = needed("coverage", "--engine atheris")
            self.guided = {
                k.node_id: guided.CoverageSearch(
                    k, partial(self._fork, k), config, expired=partial(self._expired, k)
                )
                for k in self.kernels
            }
        self.bindings = Bindings(self.kernels, on_host=not backend.on.has.asynchronous)

    def open(self, kernel: KernelSearch) -> None:
        """Get a kernel ready that has not been judged yet, as start-up.

        Raises:
            Stopped: the run is over.
        """
        with self.clock.opening():
            if not self.guided:
                kernel.runner.open()
                self.bindings.compare(kernel)

    def close(self, kernel: KernelSearch) -> None:
        """End the children of a kernel."""
        kernel.runner.close()
        if guided := self.guided.get(kernel.node_id):
            guided.close()

    def _prepare(
        self, loaded: LoadedKernel, classes: frozenset[str], device: str
    ) -> KernelSearch:
        operator, claims = loaded.kernel.operator, loaded.kernel.declaration
        bound = {c.id for c in ATTRIBUTION if c.binds(operator, claims)}
        budget = self.budget_of(loaded.kernel)

        def drawn(budget: SizeBudget) -> object:
            return strategy_of(loaded.kernel, budget, scale=self.config.scale)

        drawn(budget)  # an impossible domain shows here
        runner = self._runner(loaded, budget, device, lambda: kernel)
        record = Record(frozenset(classes & bound), claims.dtypes)
        if why := no_fences(self.backend):
            record.notice(f"{UNFENCED}: {why}")
        kernel = KernelSearch(loaded, runner, budget, record)
        kernel.large = self.config.scale is Scale.LARGE
        shared = self.shares_time()
        kernel.sizes = size_classes(budget, drawn) if shared else [SizeClass(budget)]
        return kernel

    def _runner(
        self,
        loaded: LoadedKernel,
        budget: SizeBudget,
        device: str,
        worker: Callable[[], KernelSearch],
    ) -> Runner:
        return runner_of(
            loaded,
            self.backend,
            root=self.config.root,
            expired=lambda: self._expired(worker()),
            classes=self.classes,
            budget=budget,
            device=device,
            probes=self.config.probes,
            quiet=lambda: worker().quiet,
        )

    def _join(self, kernel: KernelSearch, device: str) -> None:
        """Have another worker search a kernel."""
        runner = self._runner(kernel.loaded, kernel.budget, device, lambda: made)
        made = kernel.joined(runner)
        self.workers.append(made)

    def shares_time(self) -> bool:
        """Whether classes of sizes share a kernel's time, and compiling has limits.

        Under a time limit alone: else the seed says which cases there are.
        """
        limits = self.config.budget
        timed = limits.max_time is not None and limits.max_cases is None
        return timed and self.config.scale is Scale.USUAL

    def _fork(self, kernel: KernelSearch) -> Child:
        return self.backend.fork(lambda: kernel.quiet, device=kernel.device)

    def events(self) -> Iterator[Event]:
        """Search, and yield what happens, ending with one `RunFinished`."""
        names = tuple(k.node_id for k in self.kernels)
        outside = outside_of([k.loaded for k in self.kernels])
        yield RunStarted(
            self.config.seed,
            self.backend.name,
            names,
            utc_now(),
            jobs=self.jobs,
            outside=outside,
        )
        refused: StorageError | None = None
        try:
            if self.config.replay:
                with suppress(KfuzzError, Stopped):  # its time slice says so
                    self.open(self.kernels[0])
                yield from found.replay_first(
                    self.kernels, self.config, self.backend,
                    classes=self.classes, stop=self.stop, end=self.search_end(),
                )  # fmt: skip
            for each in self.kernels:
                yield from self.opening(each)
            for made in streamed(self._next_slice, self.jobs, halt=self.halt.set):
                # Counted where all is reported, in order.
                yield self.progress(made) if isinstance(made, KernelSearch) else made
            began = time.monotonic()
            yield from self._finish()
            if self.config.locate:
                yield from found.located(
                    self.kernels, self.backend, self.corpus, root=self.config.root,
                    jobs=self.jobs, seconds=self.after or found.UNLIMITED_SECONDS,
                    stopped=self.halt.is_set,
                )  # fmt: skip
            self.reducing_s = time.monotonic() - began
        except StorageError as error:
            refused = error  # what was seen is reported all the same
        finally:
            for kernel in self.workers:
                self.close(kernel)
        finished: list[KernelFinished] = []
        for kernel in self.kernels:
            proof = None
            if self.proofs is not None and not self.stop.is_set():
                proof = self.proofs.proof(kernel, self.stop)
            ending = self._ending(kernel)
            scale = self.config.scale
            made = finished_of(kernel, self.classes, scale, ending=ending, proof=proof)
            yield made
            finished.append(made)
            if not kernel.loaded.target.reference:  # judged by a rule of its own
                yield from watched(kernel)
        if self.calibrations:
            yield from self.calibrations.warn(self.kernels, finished)
        yield RunFinished(
            self.clock.elapsed_s,
            self.stop.is_set(),
            self.config.seed,
            self.backend.name,
            self.clock.startup_s,
            self.reducing_s,
            imported_seconds(),
        )
        if refused is not None:
            raise refused

    def _ending(self, kernel: KernelSearch) -> str:
        """Return why a kernel had no case, if it had none."""
        if self.stop.is_set():
            return "the run was interrupted before the first case"
        if kernel.record.errors:
            return "its search ended with an error before the first case"
        return "the run ended before the first case"

    def budget_of(self, kernel: BoundKernel) -> SizeBudget:
        """Return the limits on the sizes of a kernel's cases."""
        return budget_for(kernel, self.backend.name)

    def opening(self, kernel: KernelSearch) -> Iterator[Event]:
        """Judge what comes before anything is drawn: nothing, here."""
        yield from ()

    def draws(
        self, kernel: KernelSearch, budget: SizeBudget, without: frozenset[str]
    ) -> Callable[..., Sequence[Any]] | None:
        """Return what draws cases of a kernel, or batches; None if nothing is left.

        Its child does, so that no worker waits for another one's.

        Args:
            kernel: the kernel.
            budget: limits on their sizes.
            without: declared dtypes that are not to be drawn.
        """
        if without.issuperset(kernel.loaded.kernel.declaration.dtypes):
            return None
        scale = self.config.scale
        generate = kernel.runner.generate
        return partial(generate, budget=budget, without=without, scale=scale)

    def _expired(self, kernel: KernelSearch) -> bool:
        """Whether a worker's runner waits for nothing more."""
        until = self.clock.deadline if kernel.until is None else kernel.until
        return self.halt.is_set() or time.monotonic() >= until

    def over(self) -> bool:
        """Whether no further round begins."""
        over = self.halt.is_set() or time.monotonic() >= self.search_end()
        return over or self._full()

    def _full(self) -> bool:
        """Whether there are as many findings as were asked for."""
        most = self.config.budget.max_findings
        return most is not None and self.count_findings() >= most

    def search_end(self) -> float:
        """The moment after which no round begins."""
        return self.clock.deadline

    def _next_slice(self) -> Iterator[Event | KernelSearch] | None:
        """Return the next time slice, None once there are no more; threads call it."""
        kernel = self.scheduler.take()
        return None if kernel is None else self._taken(kernel)

    def _taken(self, kernel: KernelSearch) -> Iterator[Event | KernelSearch]:
        """Yield what happens in a kernel's time slice, and the kernel at its end.

        What goes wrong in it is an error of that kernel, and no other.
        """
        try:
            yield from self._guarded(kernel, self._time_slice(kernel))
        finally:
            self.scheduler.give(kernel)
        yield kernel

    def _guarded(
        self, kernel: KernelSearch, events: Iterator[Event]
    ) -> Iterator[Event]:
        """Yield events; what goes wrong is an error of that kernel, and no other."""
        try:
            yield from events
        except (BindingError, BackendError, StorageError):
            raise  # nothing else fares better
        except Exception as error:
            kernel.end()
            kernel.record.errors += 1
            for text in kernel.record.unreported():
                yield Notice(kernel.node_id, text)
            text = f"given up: {line_of(error)}"
            # One that kfuzz made says what is wrong, and where, by itself.
            trace = "" if isinstance(error, KfuzzError) else trace_text(error)
            yield Notice(kernel.node_id, text, trace=trace)
            self.close(kernel)

    def _time_slice(self, kernel: KernelSearch) -> Iterator[Event]:
        """Give a kernel one round, then take what it found to its minimum."""
        if not kernel.rounds:
            try:
                self.open(kernel)
            except Stopped:
                text = "not searched: it was not ready when the run ended"
                yield Notice(kernel.node_id, text)
                return
            if self.shares_time():
                free = kernel.runner.children.free // SHARING
                free = free or (free_memory() or 0) // self.jobs
                most = runs_on(kernel.loaded.kernel, self.backend.name).limits.largest
                kernel.sizes = [*kernel.sizes, *above(kernel.budget, most, free)]
        if self.proofs is not None and kernel is kernel.workers[0]:
            yield from self.proofs.examples(
                kernel,
                lambda end: Round(kernel, stop=self.halt, deadline=end),
                self._counted,
                end=self.search_end(),
            )
        began = kernel.marked = time.monotonic()
        before = kernel.record.cases
        limit = self.config.budget.max_cases
        # One stack of a crash is news, a hundred are noise.
        kernel.quiet = any(Kind.CRASH in symptom for symptom in kernel.symptoms)
        # A large case that was too large says nothing of its dtype.
        quick = self.config.scale is Scale.USUAL
        useless = kernel.record.useless_dtypes if quick else frozenset[str]()
        size = due(kernel.sizes)
        draw = self.draws(kernel, size.budget, useless)
        if draw is None:
            kernel.end()
            return
        cases = size.cases if limit is None else min(size.cases, limit - before)
        if cases < 1:  # what a search opens with was more
            kernel.end()
            return
        until = self.search_end()
        left = self.scheduler.share(max(until - began, 0.0), kernel)
        deadline = min(until, began + max(left, QUANTUM_SECONDS[0]))
        this_round = Round(kernel, stop=self.halt, deadline=deadline)
        drawing, whole, cut_at = math.inf, math.inf, None
        if self.shares_time():
            drawing, whole = quantum(left) / 2, kernel.seconds + left
            kernel.patience = max(COMPILING_SECONDS, SHARE * whole)
        kernel.runner.beyond = size.budget.elements > kernel.budget.elements
        kernel.number = next(kernel.numbers)
        number = round_seed(self.config.seed, kernel.name, kernel.number)
        if guided := self.guided.get(kernel.node_id):
            strategy = strategy_of(
                kernel.loaded.kernel, size.budget, without=useless,
                scale=self.config.scale,
            )  # fmt: skip
            guided.search(this_round, strategy, cases=cases, seed_value=number)
        else:
            seconds, end = DRAWING * drawing, math.inf
            with this_round.guarded():
                drawn = draw(
                    cases=cases, seed_value=number, seconds=seconds,
                    simplest=not size.rounds or drawing == math.inf,
                )  # fmt: skip
                # What draws may have had to start: that takes no time from its cases.
                end = time.monotonic() + (1 - DRAWING) * drawing
                for case in drawn:
                    if this_round.over or time.monotonic() >= end:
                        break
                    this_round.judge(case)
            if time.monotonic() >= end:
                cut_at = this_round.cases
            # Tall ones are too slow in batches, and larger ones too large.
            few = replace(size.budget, tall=0)
            quick = quick and few.elements <= kernel.budget.elements
            draw = self.draws(kernel, few, useless) if quick else None
            if draw is not None and not this_round.over:
                end = time.monotonic() + drawing
                draw = partial(draw, seconds=seconds)
                with this_round.guarded():
                    prefilter_round(kernel, this_round, draw, self.config, end=end)
        kernel.runner.beyond = False
        size.count(time.monotonic() - began, cut_at=cut_at)
        if self.config.also_compile and this_round.found is None:
            this_round.judge_builds(self.config.also_compile)
        kernel.rounds += 1
        if isinstance(this_round.error, BindingError | BackendError):
            raise this_round.error
        if this_round.error is not None:
            kernel.record.errors += 1
            kernel.record.notice(f"given up: {this_round.error}")
        home = home_of(kernel.loaded.source, self.config.root)
        if why := self.backend.unshared(home):
            kernel.record.notice(f"each child imports its file by itself: {why}")
        for text in kernel.record.unreported():
            yield Notice(kernel.node_id, text)
        if this_round.found is not None:
            yield from self._counted(kernel, *this_round.found)
        kernel.seconds += time.monotonic() - began
        nothing = kernel.record.cases == before and this_round.found is None
        unknown = kernel.count(lambda state: state is not State.KNOWN)
        full = unknown >= FINDINGS_PER_KERNEL
        if full:
            text = f"searched no more: it has {unknown} findings nobody knew of"
            yield Notice(kernel.node_id, text)
        if (
            this_round.error is not None
            or kernel.record.needs_gpu
            or (limit is not None and kernel.record.cases >= limit)
            or full
            or (self.config.budget.max_time is None and nothing)
        ):
            kernel.end()
        if kernel.done or len(self.kernels) > LIVE_CHILDREN:
            self.close(kernel)

    def _counted(
        self, kernel: KernelSearch, case: Case, report: CaseReport
    ) -> Iterator[Event]:
        """Take what was found to its minimum, unless there are findings enough."""
        limited = self.config.budget.max_findings is not None
        with self._counting if limited else nullcontext():
            if not self._full():
                yield from self.process(kernel, case, report)

    def process(
        self, kernel: KernelSearch, case: Case, report: CaseReport
    ) -> Iterator[Event]:
        """Save, confirm, reduce, confirm, explain."""
        finding = found.first_finding(kernel, case, report, seed=self.config.seed)
        until = self.first_until(kernel, finding)
        with kernel.taking(finding.signature.symptom, until):
            entry = yield from found.taken_to_minimum(
                kernel,
                finding,
                self.corpus,
                seconds=partial(self.reducing_seconds, kernel, finding, until),
                stopped=partial(self._expired, kernel),
                further=self.after > 0,
            )
        if entry is not None:
            self.unfinished.append((kernel, entry))

    @property
    def after(self) -> float:
        """Seconds that findings get once the search is over: as many as it had."""
        limit = self.clock.limit
        return 0.0 if limit is None else max(limit, found.AFTER_SECONDS)

    def first_until(self, kernel: KernelSearch, finding: Finding) -> float:
        """Return when a finding is left to the time after the search."""
        now = time.monotonic()
        left = max(self.clock.deadline - now, 0.0)
        return now + found.first_seconds(kernel, finding, left)

    def reducing_seconds(
        self, kernel: KernelSearch, finding: Finding, until: float
    ) -> float:
        """Return how long a finding may be reduced that has time until a moment."""
        if self.clock.limit is None:
            return found.UNLIMITED_SECONDS  # evaluations bound it
        return found.to_reduce(kernel, finding, until - time.monotonic())

    def _finish(self) -> Iterator[Event]:
        """Take to their minimum the findings for which the search left no time."""
        if not self.unfinished:
            return
        began, n = time.monotonic(), len(self.unfinished)
        wanted = sum(found.after_seconds(k, entry.own) for k, entry in self.unfinished)
        most = min(wanted, self.after)
        if not self.halt.is_set():
            what = "1 finding" if n == 1 else f"{n} findings"
            yield Notice("", f"reducing {what}, at most {most:.0f} s")
        pieces = iter([self._finished(k, began + most) for k in self.workers])
        yield from streamed(lambda: next(pieces, None), self.jobs, halt=self.halt.set)

    def _finished(self, kernel: KernelSearch, end: float) -> Iterator[Event]:
        """Take to their minimum those that one worker has found."""
        for entry in [entry for worker, entry in self.unfinished if worker is kernel]:
            finding = entry.own
            left = len(self.unfinished) - next(self._reduced)
            fair = fair_share(end, left, self.jobs)
            until = time.monotonic() + min(fair, found.after_seconds(kernel, finding))
            seconds = partial(self.reducing_seconds, kernel, finding, until)
            stopped = partial(self._expired, kernel)
            with kernel.taking(finding.signature.symptom, until):
                made = found.reduced(kernel, entry, seconds=seconds, stopped=stopped)
                yield from self._guarded(kernel, made)

    def count_findings(self) -> int:
        """Return how many findings there are, of those that end a run.

        Known ones do not: they would keep what is new from being found. Nor do those
        that were not confirmed: they do not fail the run either.
        """
        return sum(k.count(FAILING.__contains__) for k in self.kernels)

    def progress(self, kernel: KernelSearch) -> Progress:
        """Return what is reported after a time slice of a kernel."""
        every = self.kernels
        return Progress(
            kernel=kernel.node_id,
            elapsed_s=self.clock.elapsed_s,
            cases=sum(k.record.cases for k in every),
            worst_ratio=max(k.record.worst for k in every),
            findings=self.count_findings(),
            kernels_done=sum(k.done for k in every),
        )
