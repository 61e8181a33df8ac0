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
from kfuzz.core.verdict import Verdict
from kfuzz.engine.config import Chosen, RunConfig
from kfuzz.fleet.dispatch import LEAST_SECONDS, Dispatch, Fleet, Over, Task
from kfuzz.fleet.filing import Filing
from kfuzz.fleet.tallies import added, closed, unfinished
from kfuzz.fleet.work import Happened, Place, Search, Survey, Surveyed, Work
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
    """

    def __init__(self, config: RunConfig, fleet: Fleet, stop: threading.Event) -> None:
        self.config = config
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
        self._calibration: bytes | None = None
        self._progressed = 0.0
        if config.calibration is not None:
            self._calibration = config.calibration.read_bytes()

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
            jobs=max(self._dispatch.workers, 1),
            outside=dict(self._surveyed.outside),
        )
        budget = self.config.budget
        self._dispatch.ask(
            list(self._places),
            # With a number of cases the seed alone says which cases there are.
            seconds=budget.max_time if budget.max_cases is None else None,
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
        self._dispatch.ask([SURVEY])
        for reported in self._dispatch.run(self._work_of, lambda task: True):
            match reported:
                case (_, Surveyed() as found):
                    self._surveyed = found
                    self._places = {p.node_id: p for p in found.places}
                case Notice():
                    yield from self._notice("", reported.message)
                case (_, Over(failed=why)) if why and not self._dispatch.stop.is_set():
                    raise HarnessError(f"the targets could not be listed: {why}")

    def _searching(self, began: float) -> Iterator[Event]:
        budget = self.config.budget
        limit = budget.max_time
        # Units under a time limit end by themselves, and report what came of them.
        late = 0.0 if budget.max_cases is not None else LATE_SECONDS
        for reported in self._dispatch.run(self._work_of, self._is_exhausted):
            match reported:
                case (task, Happened(event, finding)):
                    yield from self._happened(task, event, finding)
                case (task, Over(why)):
                    self._running.pop(task.number, None)
                    if why:
                        self._lost.setdefault(task.subject, why)
                        yield from self._notice(task.subject, f"given up: {why}")
                    yield from self._progress(task.subject)
                case Notice():
                    yield from self._notice(reported.kernel, reported.message)
            if limit is not None and self._now - began >= limit + late:
                self._dispatch.end()

    def _happened(
        self, task: Task, event: Event, finding: Finding | None
    ) -> Iterator[Event]:
        match event:
            case FindingSaved():
                filed = self.filing.file(task.number, event)
                if filed is not None:
                    yield filed
                most = self.config.budget.max_findings
                if most is not None and self.filing.confirmed() >= most:
                    self._dispatch.end()
            case FindingReplayed():
                folder = event.id if finding is None else finding.folder
                place = self.config.corpus / folder
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

    def _endings(self) -> Iterator[Event]:
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
        last = self._last.get(task.subject)
        if self.filing.unknown(task.subject) >= FINDINGS_PER_KERNEL:
            return True
        if last is None or not last.cases or last.needs_gpu:
            return True
        return any(t.verdict is Verdict.ERROR for t in last.contracts.values())

    def _work_of(self, task: Task) -> Work:
        if self._surveyed is None:
            return Survey(_portable(self.config), self._homes())
        place = self._places[task.subject]
        config, budget = self.config, self.config.budget
        if task.seconds is not None:
            budget = replace(budget, max_time=task.seconds)
        elif budget.max_time is not None:
            left = self._searched + budget.max_time - self._now
            if budget.max_cases is None:
                share = self._dispatch.workers / len(self._places)
                left = min(left, budget.max_time * share)
            budget = replace(budget, max_time=max(left, LEAST_SECONDS))
        replayed = config.replay and task.block == 0
        name = place.alias or place.name
        if name not in self._marks:
            self._marks[name] = tuple(self.corpus.marks(name))
        return Search(
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
            self._stored(name) if replayed else self._marks[name],
            self._calibration,
        )

    def _stored(self, name: str) -> tuple[Finding, ...]:
        entries = self.corpus.entries(name)
        return tuple(e.finding for e in entries if isinstance(e, Stored))

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
