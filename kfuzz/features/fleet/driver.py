"""The driver of a search: the only writer of the corpus and of events."""

import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import add, attrgetter
from typing import Any, Final, TypeVar

from kfuzz.core.errors import HarnessError, StorageError
from kfuzz.core.event import (
    ContractTally,
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
from kfuzz.core.verdict import CHARGED, FAILING, Compared, State, Verdict
from kfuzz.engine.config import RunConfig
from kfuzz.engine.search.found import FiledFinding
from kfuzz.features.fleet.worker import (
    LEAST_SECONDS,
    Dispatch,
    Fleet,
    Place,
    Search,
    Survey,
    Surveyed,
    Task,
    Work,
    key_of,
)
from kfuzz.store.corpus import Corpus, Stored
from kfuzz.store.life import utc_now

# Findings of many workers in one corpus: each is kept once, and told once.
#
# A finding is known by its content: before it is reduced by its first case, then by its
# bucket. A unit that is done anew finds the same again, and nothing is said of it.


class Filing:
    """The corpus of a run, whose only writer this is.

    Args:
        corpus: where findings are kept.
    """

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus
        # By the first case; by the unit that reduces it; by the id that was told.
        self._begun: dict[str, FiledFinding] = {}
        self._open: dict[int, FiledFinding] = {}
        self._told: dict[str, FiledFinding] = {}
        # Findings of the run by kernel and id, and their folders.
        self._kept: dict[str, dict[str, Finding]] = {}
        self._paths: dict[str, str] = {}
        self._stored: set[str] = set()

    def file(self, unit: int, event: FindingSaved) -> FindingSaved | None:
        """Keep what a unit tells of a finding.

        Args:
            unit: its number, the same when it is done anew.
            event: as the unit's own campaign told it.

        Returns:
            What is to be told; None where that was told already.

        Raises:
            StorageError: if it cannot be kept.
        """
        key = key_of(event.finding)
        if event.stage != "found":
            return self._done(unit, event)
        if (entry := self._begun.get(key)) is not None:
            self._open[unit] = entry
            return None
        entry = FiledFinding(self._corpus, event.finding)
        self._begun[key] = self._open[unit] = entry
        self._keep(event.kernel, entry)
        path = str(entry.path)
        return replace(
            event, finding=entry.finding, path=path, is_new=not entry.is_known
        )

    def of(self, kernel: str) -> tuple[Finding, ...]:
        """Return the findings of a kernel."""
        return tuple(self._kept.get(kernel, {}).values())

    def paths(self, kernel: str) -> dict[str, str]:
        """Return the folders of the findings of a kernel, by id."""
        return {id: self._paths[id] for id in self._kept.get(kernel, {})}

    def confirmed(self) -> int:
        """Return how many new findings are confirmed."""
        kept = (f for found in self._kept.values() for f in found.values())
        return sum(f.state in FAILING and f.id not in self._stored for f in kept)

    def unknown(self, kernel: str) -> int:
        """Return how many findings of a kernel nobody knew of."""
        return sum(
            f.state is not State.KNOWN and f.id not in self._stored
            for f in self.of(kernel)
        )

    def _done(self, unit: int, event: FindingSaved) -> FindingSaved | None:
        finding = event.finding
        entry = self._open.pop(unit, None)
        entry = entry or self._begun.get(key_of(finding)) or self._told.get(finding.id)
        known = self._told.get(finding.id)
        if entry is None:
            entry = FiledFinding(self._corpus, finding)
        else:
            before = entry.finding.id
            if self._told.get(before, entry) is entry:  # no other entry has its id
                self._kept.get(event.kernel, {}).pop(before, None)
            entry.save(finding)
        final = entry.settle()
        told = known is not None or final.id in self._told
        is_new = event.is_new and entry.is_new and not told
        self._told[final.id] = entry
        if not event.is_new and not told:
            self._stored.add(final.id)
        self._keep(event.kernel, entry)
        if told:
            return None
        return replace(event, finding=final, path=str(entry.path), is_new=is_new)

    def _keep(self, kernel: str, entry: FiledFinding) -> None:
        self._kept.setdefault(kernel, {})[entry.finding.id] = entry.finding
        self._paths[entry.finding.id] = str(entry.path)


# What the units of one kernel come to together.

Item = TypeVar("Item")

# The first that a unit came to holds for the kernel.
_ORDER: Final = (
    Verdict.VIOLATES, Verdict.ERROR, Verdict.CONFORMS, Verdict.UNDER_SPECIFIED,
    Verdict.NOT_APPLICABLE,
)  # fmt: skip


def added(one: KernelFinished, other: KernelFinished) -> KernelFinished:
    """Return what two units of a kernel come to; see `closed` for their findings.

    What is counted is added up; kinds of cases, which units share, are at least as many
    as the unit with the most has.
    """
    parts = (one, other)
    seconds = sum(p.cases / p.cases_per_s for p in parts if p.cases_per_s)
    cases = one.cases + other.cases
    names = dict.fromkeys([*one.contracts, *other.contracts])
    compared = _compared(one) | _compared(other)
    uncompared = _uncompared(compared, one.uncompared or other.uncompared)
    tried = _added(
        [p.tried for p in parts if p.tried is not None], "__class__",
        cases=add, structures=max, once=min,
    )  # fmt: skip
    # Where a unit by itself left a verdict open for want of values alone.
    apart = all(p.uncompared and not p.findings for p in parts)
    return replace(
        one,
        operator=one.operator or other.operator,
        cases=cases,
        cases_per_s=cases / seconds if seconds else 0.0,
        contracts={
            name: _settled(
                [p.contracts[name] for p in parts if name in p.contracts],
                idle=bool(uncompared),
                apart=apart,
            )
            for name in names
        },
        refusals=_added([*one.refusals, *other.refusals], "reason remedy", cases=add),
        findings=(),
        paths={},
        worst_ratio=max(one.worst_ratio, other.worst_ratio),
        notes=_added([*one.notes, *other.notes], "note", cases=add),
        screened=one.screened + other.screened,
        bursts=one.bursts + other.bursts,
        fenced=all(p.fenced for p in parts if p.cases) and (one.fenced or other.fenced),
        needs_gpu=one.needs_gpu and other.needs_gpu,
        tried=tried[0] if tried else None,
        uncompared=uncompared,
        compared=compared,
        proof=one.proof or other.proof,
    )


def closed(
    result: KernelFinished, findings: Sequence[Finding], paths: Mapping[str, str]
) -> KernelFinished:
    """Return a kernel's result with its findings, which decide its contracts.

    Args:
        result: of its units.
        findings: of the kernel over the run, as the corpus holds them.
        paths: their folders, by id.
    """
    made = replace(result, findings=tuple(findings), paths=dict(paths))
    if {f.id for f in findings} == {f.id for f in result.findings} and findings:
        return made  # of one unit, which has judged with them
    contracts = {}
    for name, tally in result.contracts.items():
        states = [f.state for f in findings if f.signature.contract == name]
        verdict = tally.verdict
        if any(state in CHARGED for state in states):
            verdict = Verdict.VIOLATES
        elif verdict is Verdict.VIOLATES or (states and verdict is Verdict.CONFORMS):
            # Not confirmed, or not on another device: the question is open.
            verdict = Verdict.UNDER_SPECIFIED
        contracts[name] = replace(tally, verdict=verdict)
    charged = any(f.state in CHARGED for f in findings)
    # A unit that found something has no reason, and what it found may not count.
    why = made.uncompared or _uncompared(
        _compared(result), "what was found of it does not count"
    )
    return replace(made, contracts=contracts, uncompared="" if charged else why)


def _compared(part: KernelFinished) -> Compared:
    return part.compared or Compared(decided=not part.uncompared)


def _uncompared(compared: Compared, otherwise: str) -> str:
    """Return why no value was compared, "" if one of each result was."""
    return compared.lacking or ("" if compared.decided else otherwise)


def _settled(
    parts: Sequence[ContractTally], *, idle: bool, apart: bool
) -> ContractTally:
    """Return what units found of a contract, by whether all results were compared."""
    verdict = min((p.verdict for p in parts), key=_ORDER.index)
    decided, failed = sum(p.decided for p in parts), sum(p.failed for p in parts)
    if idle and verdict is Verdict.CONFORMS:
        verdict = Verdict.UNDER_SPECIFIED
    elif not idle and apart and verdict is Verdict.UNDER_SPECIFIED:
        verdict = Verdict.CONFORMS if decided and not failed else verdict
    return ContractTally(verdict, decided, sum(p.undecided for p in parts), failed)


def _added(
    every: Iterable[Item], key: str, **how: Callable[..., Any]
) -> tuple[Item, ...]:
    """Return items, those that agree in fields made one by a function for each other.

    Args:
        every: dataclasses of one kind.
        key: names of the fields, with blanks between them.
        how: by field, what makes one value of two.
    """
    made: dict[object, Item] = {}
    for one in every:
        place = attrgetter(*key.split())(one)
        held = made.get(place)
        if held is not None:
            changes = {n: f(getattr(held, n), getattr(one, n)) for n, f in how.items()}
            one = replace(held, **changes)  # type: ignore[type-var]
        made[place] = one
    return tuple(made.values())


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
                case (_, str() as why) if why and not self._dispatch.stop.is_set():
                    raise HarnessError(f"the targets could not be listed: {why}")

    def _searching(self, began: float) -> Iterator[Event]:
        budget = self.config.budget
        limit = budget.max_time
        # Units under a time limit end by themselves, and report what came of them.
        late = 0.0 if budget.max_cases is not None else LATE_SECONDS
        for reported in self._dispatch.run(self._work_of, self._is_exhausted):
            match reported:
                case (task, (event, finding)):
                    yield from self._happened(task, event, finding)
                case (task, str() as why):
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
            made = self._results.get(kernel)
            if made is None:  # no unit came to its end
                made = KernelFinished(kernel, "", 0, 0.0, {}, uncompared=why)
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
                chosen=(place.name, place.alias),
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
    return replace(config, started=None, calibration=None)
