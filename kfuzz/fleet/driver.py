"""The driver of a search: the only writer of the corpus and of events."""

import re
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from kfuzz.core.errors import HarnessError, StorageError
from kfuzz.core.event import (
    Event,
    FindingReplayed,
    FindingSaved,
    KernelFinished,
    Notice,
    Progress,
    RunFinished,
    RunStarted,
)
from kfuzz.core.finding import Finding, Target
from kfuzz.core.random_streams import Purpose, hashed, stream
from kfuzz.core.statement import Statement
from kfuzz.core.verdict import ReplayOutcome, Verdict
from kfuzz.engine.config import Chosen, ReplayConfig, ReplayResult, RunConfig
from kfuzz.fleet.dispatch import Dispatch, Doubt, Fleet, Heard, Over, Said
from kfuzz.fleet.filing import Filing
from kfuzz.fleet.plan import LEAST_SECONDS, Task
from kfuzz.fleet.tallies import added, closed, unfinished
from kfuzz.fleet.work import (
    Grade,
    Happened,
    Place,
    Replay,
    Search,
    Survey,
    Surveyed,
    Work,
)
from kfuzz.store.corpus import Corpus, Stored
from kfuzz.store.life import utc_now

FINDINGS_PER_KERNEL: Final = 6
"""As of a campaign: a kernel with more is searched no more."""
PROGRESS_SECONDS: Final = 1.0
"""Between two events of progress, however many workers tell of theirs."""
LATE_SECONDS: Final = 90.0
"""A unit's own limit does not count its start-up; what takes longer is ended."""
SURVEY: Final = "targets"
_DIGITS: Final = re.compile(r"\d+")


class Driver:
    """One run on a fleet.

    Args:
        config: of the run.
        fleet: the workers; whoever made it closes it.
        stop: set from outside to end the run cleanly.
        graded: whether each kernel gets a conformance statement, which takes one unit
            whatever the time limit.
        platform: whether torch's own kernels are meant.

    Attributes:
        filing: the corpus.
        statements: the statements by kernel, in the order in which they came.
    """

    def __init__(
        self,
        config: RunConfig,
        fleet: Fleet,
        stop: threading.Event,
        *,
        graded: bool = False,
        platform: bool = False,
    ) -> None:
        self.config = config
        self.statements: dict[str, Statement] = {}
        self._graded, self._platform = graded, platform
        self.corpus = Corpus(config.corpus)
        self.corpus.require_writable()
        self.filing = Filing(self.corpus)
        self._began = self._searched = fleet.now()
        self._dispatch = Dispatch(fleet, stop)
        self._surveyed: Surveyed | None = None
        self._places: dict[str, Place] = {}
        self._results: dict[str, KernelFinished] = {}
        self._last: dict[str, KernelFinished] = {}
        self._cases = 0
        self._marks: dict[str, tuple[Finding, ...]] = {}
        self._lost: dict[str, str] = {}
        self._running: dict[int, Progress] = {}
        self._notices: set[tuple[str, str]] = set()
        self._doubts: dict[str, Doubt] = {}
        self._replays: dict[str, ReplayResult] = {}
        self._calibration: bytes | None = None
        self._progressed = 0.0
        self._full = False
        if config.calibration is not None:
            self._calibration = config.calibration.read_bytes()

    @property
    def _is_shared(self) -> bool:
        """Whether a kernel gets as many units as time allows."""
        return self.config.budget.max_cases is None and not self._graded

    @property
    def _now(self) -> float:
        return self._dispatch.fleet.now()

    def events(self) -> Iterator[Event]:
        """Search, and yield what happens, ending with one `RunFinished`.

        Raises:
            KfuzzError: before the first event, on targets or settings that cannot be
                obeyed.
            StorageError: if a finding cannot be kept; what was told before is.
        """
        yield from self._surveying()
        if self._surveyed is None:  # stopped before
            yield self._finished(self._now)
            return
        searched = self._searched = self._now
        yield RunStarted(
            self.config.seed,
            self._surveyed.backend,
            tuple(self._places),
            utc_now(),
            jobs=max(self._dispatch.plan.workers(), 1),
            outside=dict(self._surveyed.outside),
        )
        budget = self.config.budget
        self._dispatch.plan.ask(
            list(self._places),
            # With a number of cases the seed alone says which cases there are.
            seconds=budget.max_time if self._is_shared else None,
            began=searched,
        )
        refused: StorageError | None = None
        try:
            yield from self._searching(searched)
        except StorageError as error:
            refused = error
        yield from self._endings()
        yield self._finished(searched)
        if refused is not None:
            raise refused

    def _surveying(self) -> Iterator[Event]:
        self._dispatch.plan.ask([SURVEY])
        for told in self._dispatch.run(self._work_of, lambda task: True):
            match told:
                case Heard(_, Surveyed() as found):
                    self._surveyed = found
                    self._places = {p.node_id: p for p in found.places}
                case Said():
                    yield from self._notice("", told.message)
                case Over(failed=why) if why and not self._dispatch.stop.is_set():
                    raise HarnessError(f"the targets could not be listed: {why}")

    def _searching(self, began: float) -> Iterator[Event]:
        budget = self.config.budget
        limit = budget.max_time
        # Units under a time limit end by themselves, and tell what came of them.
        late = 0.0 if budget.max_cases is not None else LATE_SECONDS
        for told in self._dispatch.run(self._work_of, self._is_exhausted):
            match told:
                case Heard(task, Happened(event, finding)):
                    yield from self._happened(task, event, finding)
                case Heard(task, Statement() as statement):
                    self.statements[task.subject] = statement
                case Heard(task, ReplayResult() as result) if task.doubted:
                    self._replays[task.doubted] = result
                case Doubt():
                    self._doubts[told.key] = told
                case Over(task, why):
                    self._running.pop(task.number, None)
                    if task.doubted:
                        yield from self._settled(task, why)
                    elif why:
                        self._lost.setdefault(task.subject, why)
                        yield from self._notice(task.subject, f"given up: {why}")
                    yield from self._progress(task.subject)
                case Said():
                    yield from self._notice(told.subject, told.message)
            if limit is not None and self._now - began >= limit + late:
                yield from self._end()

    def _happened(self, task: Task, event: Event, finding: object) -> Iterator[Event]:
        match event:
            case FindingSaved():
                filed = self.filing.file(task.number, event)
                if filed is not None:
                    yield filed
                yield from self._count(task)
            case FindingReplayed():
                place = self.config.corpus / _folder_of(event.id, finding)
                yield replace(event, path=str(place))
            case Notice():
                yield from self._notice(
                    event.kernel, event.message, event.about, event.trace
                )
            case KernelFinished():
                before = self._results.get(task.subject)
                self._results[task.subject] = added(before, event) if before else event
                self._last[task.subject] = event
                self._cases += event.cases
            case Progress():
                self._running[task.number] = event
                yield from self._progress(task.subject)
            case _:  # that a unit begins and ends is no event of the run
                pass

    def _count(self, task: Task) -> Iterator[Event]:
        """End the run once there are as many findings as were asked for."""
        most = self.config.budget.max_findings
        if most is not None and self.filing.confirmed() >= most and not self._full:
            self._full = True
            yield from self._end()

    def _end(self) -> Iterator[Event]:
        for told in self._dispatch.end(self._work_of):
            if isinstance(told, Said):
                yield from self._notice(told.subject, told.message)

    def _settled(self, task: Task, why: str) -> Iterator[Event]:
        """Count a doubted finding that another device has run again, or drop it."""
        doubt = self._doubts.pop(task.doubted)
        saved = doubt.value.event
        result = self._replays.pop(task.doubted, None)
        if result is not None and result.outcome is ReplayOutcome.FAILS:
            filed = self.filing.file(doubt.task.number, replace(saved, stage="done"))
            if filed is not None:
                yield filed
            return
        reason = why or (result.message if result else "it was not run again")
        text = f"{saved.finding.id} of a quarantined device does not count: {reason}"
        yield from self._notice(task.subject, text)

    def _endings(self) -> Iterator[Event]:
        for doubt in self._doubts.values():
            text = "of a quarantined device does not count: it was not run again"
            yield from self._notice(
                doubt.task.subject, f"{doubt.value.event.finding.id} {text}"
            )
        for kernel in self._places:
            findings, paths = self.filing.of(kernel), self.filing.paths(kernel)
            why = self._lost.get(kernel) or "the run ended before its search did"
            made = self._results.get(kernel) or unfinished(kernel, why)
            yield closed(made, findings, paths)

    def _finished(self, searched: float) -> RunFinished:
        now = self._now
        return RunFinished(
            now - self._began,
            self._dispatch.stop.is_set(),
            self.config.seed,
            self._surveyed.backend if self._surveyed else "",
            searched - self._began,
        )

    def _progress(self, kernel: str) -> Iterator[Event]:
        now = self._now
        if now - self._progressed < PROGRESS_SECONDS:
            return
        self._progressed = now
        running = list(self._running.values())
        yield Progress(
            kernel=kernel,
            elapsed_s=now - self._began,
            cases=self._cases + sum(p.cases for p in running),
            worst_ratio=max((p.worst_ratio for p in running), default=0.0),
            findings=self.filing.confirmed(),
            kernels_done=len(self._results),
            strata=sum(p.strata for p in running),
        )

    def _notice(
        self, kernel: str, message: str, about: str = "", trace: str = ""
    ) -> Iterator[Notice]:
        """Yield a notice, unless another unit has told the same."""
        key = (kernel, _DIGITS.sub("#", message))  # units differ in their counts
        if key not in self._notices:
            self._notices.add(key)
            yield Notice(kernel, message, about, trace)

    def _is_exhausted(self, task: Task) -> bool:
        """Whether a kernel needs no further unit, as a campaign's would not."""
        if task.doubted:
            return False
        last = self._last.get(task.subject)
        if self.filing.unknown(task.subject) >= FINDINGS_PER_KERNEL:
            return True
        if last is None or not last.cases or last.needs_gpu:
            return True
        return any(t.verdict is Verdict.ERROR for t in last.contracts.values())

    def _work_of(self, task: Task) -> Work:
        if self._surveyed is None:
            return Survey(_portable(self.config), self._homes(), self._platform)
        if task.doubted:
            return self._again(task)
        place = self._places[task.subject]
        config, budget = self.config, self.config.budget
        if task.seconds is not None:
            budget = replace(budget, max_time=task.seconds)
        elif budget.max_time is not None:
            left = self._searched + budget.max_time - self._now
            if budget.max_cases is None:
                share = self._dispatch.plan.workers() / len(self._places)
                left = min(left, budget.max_time * share)
            budget = replace(budget, max_time=max(left, LEAST_SECONDS))
        replayed = config.replay and task.block == 0
        if place.called not in self._marks:
            self._marks[place.called] = tuple(self.corpus.marks(place.called))
        stored = self._stored(place) if replayed else self._marks[place.called]
        search = Search(
            replace(
                _portable(config),
                targets=(place.target,),
                chosen=Chosen(place.name, place.alias),
                seed=block_seed(config.seed, task.block),
                budget=budget,
                replay=replayed,
                seen=tuple(
                    f.signature
                    for f in self.filing.of(task.subject)
                    if task.block and f.explanation is not None
                ),
            ),
            stored,
            self._calibration,
        )
        return Grade(search, self._platform) if self._graded else search

    def _stored(self, place: Place) -> tuple[Finding, ...]:
        entries = self.corpus.entries(place.called)
        return tuple(e.finding for e in entries if isinstance(e, Stored))

    def _again(self, task: Task) -> Replay:
        finding = self._doubts[task.doubted].value.finding
        place = self._places[task.subject]
        config = ReplayConfig(
            self.config.root, self.config.corpus,
            device=self.config.device, target=place.target, keep=False,
        )  # fmt: skip
        return Replay(finding, (), config)

    def _homes(self) -> dict[str, tuple[Target, ...]]:
        found: dict[str, dict[Target, None]] = defaultdict(dict)
        for entry in self.corpus.entries():
            if isinstance(entry, Stored):
                name = entry.finding.signature.kernel
                found[name][entry.finding.target] = None
        return {name: tuple(targets) for name, targets in found.items()}


def block_seed(seed: int, block: int) -> int:
    """Return the seed of a block of a run: the run's own for the first."""
    if not block:
        return seed
    return stream(hashed(f"{seed} block {block}"), Purpose.CASES)


def _portable(config: RunConfig) -> RunConfig:
    """Return a configuration without what has a meaning on this machine alone."""
    return replace(config, started=None, calibration=None, keep_inputs=False)


def _folder_of(id: str, finding: object) -> str:
    return str(getattr(finding, "folder", id))
