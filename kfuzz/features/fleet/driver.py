"""The driver of a search: the only writer of the corpus and of events."""

import itertools
import math
import re
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import add, attrgetter
from typing import Any, Final, NamedTuple, TypeVar

from kfuzz.core.errors import BackendError, HarnessError, StorageError, UsageError
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
from kfuzz.core.finding import Finding, Target, case_key
from kfuzz.core.random_streams import Purpose, hashed, stream
from kfuzz.core.verdict import ATTRIBUTED, FAILING, Compared, State, Verdict
from kfuzz.engine.config import RunConfig
from kfuzz.engine.search.found import FiledFinding
from kfuzz.features.fleet.worker import (
    Begun,
    Cluster,
    Ended,
    Place,
    Rejected,
    Search,
    Survey,
    Surveyed,
    Work,
)
from kfuzz.store.corpus import Corpus, Stored
from kfuzz.store.life import utc_now

# Findings of many units in one corpus: each is kept once, and reported once.
#
# Of a kernel a finding is known by its first case, then by its bucket. A unit that is
# done again finds the same again, and nothing is reported of it.


class Filing:
    """The corpus of a run, whose only writer this is.

    Args:
        corpus: where findings are kept.
    """

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus
        # By kernel and first case; the ids that were reported, and the new ones.
        self._entries: dict[str, dict[str, FiledFinding]] = defaultdict(dict)
        self._reported: set[str] = set()
        self._new: set[str] = set()

    def file(self, event: FindingSaved) -> FindingSaved | None:
        """Keep what a unit reports of a finding.

        Args:
            event: as the unit's own campaign has it.

        Returns:
            What is to be reported; None where that was reported already.

        Raises:
            StorageError: if it cannot be kept.
        """
        entries, key = self._entries[event.kernel], case_key(event.finding.first)
        entry = entries.get(key)
        if event.stage == "found":
            if entry is not None:
                return None
            entry = entries[key] = FiledFinding(self._corpus, event.finding)
            final, is_new = entry.finding, not entry.is_known
        else:
            if entry is None:
                entry = entries[key] = FiledFinding(self._corpus, event.finding)
            else:
                entry.save(event.finding)
            final = entry.settle()
            if final.id in self._reported:
                return None
            is_new = event.is_new and entry.is_new
            self._reported.add(final.id)
            self._new |= {final.id} if is_new else set()
        return replace(event, finding=final, path=str(entry.path), is_new=is_new)

    def of(self, kernel: str) -> tuple[Finding, ...]:
        """Return the findings of a kernel."""
        entries = self._entries[kernel].values()
        return tuple({e.finding.id: e.finding for e in entries}.values())

    def paths(self, kernel: str) -> dict[str, str]:
        """Return the folders of the findings of a kernel, by id."""
        return {e.finding.id: str(e.path) for e in self._entries[kernel].values()}

    def confirmed(self) -> int:
        """Return how many new findings are confirmed."""
        kept = [f for kernel in list(self._entries) for f in self.of(kernel)]
        return sum(f.state in FAILING and f.id in self._new for f in kept)

    def unknown(self, kernel: str) -> int:
        """Return how many findings of a kernel nobody knew of."""
        return sum(
            f.state is not State.KNOWN
            and (f.id in self._new or f.id not in self._reported)
            for f in self.of(kernel)
        )


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
    compared = _together(_compared(one), _compared(other))
    uncompared = _uncompared(compared, one.uncompared or other.uncompared)
    tried = _added(
        [p.tried for p in parts if p.tried is not None], "__class__",
        cases=add, structures=max, once=min,
    )  # fmt: skip
    searched = _added(
        [*one.searched, *other.searched], "most",
        cases=add, structures=max, once=min, seconds=add, above=max,
        lacks=lambda one, other: one and other,
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
        searched=tuple(sorted(searched, key=lambda each: each.most or math.inf)),
        largest={
            name: max(p.largest.get(name, 0) for p in parts)
            for name in {**one.largest, **other.largest}
        },
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
        if any(state in ATTRIBUTED for state in states):
            verdict = Verdict.VIOLATES
        elif verdict is Verdict.VIOLATES or (states and verdict is Verdict.CONFORMS):
            # Not confirmed, or not on another device: the question is open.
            verdict = Verdict.UNDER_SPECIFIED
        contracts[name] = replace(tally, verdict=verdict)
    confirmed = any(f.state in ATTRIBUTED for f in findings)
    # A unit that found something has no reason, and what it found may not count.
    why = made.uncompared or _uncompared(
        _compared(result), "what was found of it does not count"
    )
    return replace(made, contracts=contracts, uncompared="" if confirmed else why)


def _compared(part: KernelFinished) -> Compared:
    return part.compared or Compared(decided=not part.uncompared)


def _together(one: Compared, other: Compared) -> Compared:
    """Return what was compared by one unit or another."""
    results = dict(one.results)
    for name, judged in other.results.items():
        results[name] = judged or results.get(name, False)
    return Compared(results, one.decided or other.decided)


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
"""Between two events of progress, however many units report theirs."""
UNIT_SECONDS: Final = 300.0
"""Of one unit under a time limit: start-up is some 3 % of it, and no more is lost."""
LEAST_SECONDS: Final = 5.0
"""What a unit of less would find is not worth its start-up."""
LATE_SECONDS: Final = 90.0
"""A unit's own limit does not count its start-up; what takes longer is ended."""
LEAVE_SECONDS: Final = 30.0
"""For units to report what came of them, once the run is to end."""
JOIN_SECONDS: Final = 180.0
"""A run in which no worker reports anything for so long ends: nodes come up in minutes,
or never."""
LOOK_SECONDS: Final = 0.2
SURVEY: Final = "targets"
_DIGITS: Final = re.compile(r"\d+")


class Task(NamedTuple):
    """A unit: its kernel, by node id; which seeds, 0 for the run's own."""

    subject: str
    block: int = 0
    again: bool = False


class Driver:
    """One run on a cluster.

    Args:
        config: of the run.
        cluster: does its units; whoever made it closes it.
        stop: set from outside to end the run cleanly.
    """

    def __init__(
        self, config: RunConfig, cluster: Cluster, stop: threading.Event
    ) -> None:
        self.config = config
        self.corpus = Corpus(config.corpus)
        self.corpus.require_writable()
        self.filing = Filing(self.corpus)
        self._cluster, self._stop = cluster, stop
        self._now = cluster.now
        self._began = self._searched = self._heard = cluster.now()
        self._halted: float | None = None
        self._queue: deque[Task] = deque([Task(SURVEY)])
        self._running: dict[int, Task] = {}
        self._begun: set[int] = set()
        self._counted: set[int] = set()
        self._rejected: list[Rejected] = []
        self._number = itertools.count(1).__next__
        self._surveyed: Surveyed | None = None
        self._places: dict[str, Place] = {}
        self._results: dict[str, KernelFinished] = {}
        self._cases = 0
        self._lost: dict[str, str] = {}
        self._shown: dict[int, Progress] = {}
        self._notices: set[tuple[str, str]] = set()
        self._calibration: bytes | None = None
        self._progressed = 0.0
        if config.calibration is not None:
            self._calibration = config.calibration.read_bytes()

    def events(self) -> Iterator[Event]:
        """Search, and yield what happens, ending with one `RunFinished`.

        Raises:
            KfuzzError: before the first event, on targets or settings that cannot be
                obeyed.
            StorageError: if a finding cannot be kept; what was reported before is.
        """
        yield from self._done()
        if self._surveyed is None:  # stopped before
            if not self._stop.is_set():
                why = self._lost.get(SURVEY, "no worker did it")
                raise HarnessError(f"the targets could not be listed: {why}")
            yield self._finished()
            return
        self._searched = self._now()
        yield RunStarted(
            self.config.seed,
            self._surveyed.backend,
            tuple(self._places),
            utc_now(),
            jobs=max(self._cluster.room(), 1),
            outside=dict(self._surveyed.outside),
        )
        self._queue = deque(map(Task, self._places))
        refused: StorageError | None = None
        try:
            yield from self._done()
        except StorageError as error:
            refused = error
        yield from self._endings()
        yield self._finished()
        if refused is not None:
            raise refused

    # Units: which one begins, and what becomes of it.

    def _done(self) -> Iterator[Event]:
        """Have units done until there are no more, and yield what happens.

        Raises:
            KfuzzError: what is wrong with what was asked.
            BackendError: if no worker does them.
        """
        # Units under a time limit end by themselves, and report what came of them.
        late = 0.0 if self._by_cases else LATE_SECONDS
        while True:
            self._submit()
            if not self._running:
                if self._halted is not None or not self._queue:
                    return
                self._require_workers()
            now = self._now()
            if self._left() + late <= 0 or self._stop.is_set():
                self._end()
            if self._halted is not None and now - self._halted > LEAVE_SECONDS:
                return
            if now - self._heard > JOIN_SECONDS:
                raise BackendError(
                    f"no worker reported anything in {JOIN_SECONDS:.0f} s",
                    where=self._cluster.title,
                    fix="`ray status` prints what the cluster has, and what is asked "
                    "of it",
                )
            for number, item in self._cluster.receive(LOOK_SECONDS):
                self._heard = self._now()
                if task := self._running.get(number):
                    yield from self._reported(number, task, item)

    def _end(self) -> None:
        """Begin nothing more, and have what runs end soon."""
        if self._halted is None:
            self._halted = self._now()
            self._cluster.end()

    def _left(self) -> float:
        """Return the seconds that the run may still search."""
        limit = self.config.budget.max_time if self._surveyed else None
        return math.inf if limit is None else self._searched + limit - self._now()

    @property
    def _by_cases(self) -> bool:
        """Whether the seed alone says which cases there are: a kernel is one unit."""
        budget = self.config.budget
        return budget.max_cases is not None or budget.max_time is None

    def _submit(self) -> None:
        """Begin as many units as there is room for, each kernel's in turn."""
        room = self._cluster.room() - len(self._rejected)
        while self._queue and self._halted is None and len(self._running) < room:
            task = self._queue.popleft()
            if task.block and self._left() < LEAST_SECONDS:
                continue
            if self._surveyed and not self._by_cases and not task.again:
                self._queue.append(Task(task.subject, task.block + 1))
            number = self._number()
            self._running[number] = task
            self._cluster.submit(number, self._work_of(task))

    def _reported(self, number: int, task: Task, item: Any) -> Iterator[Event]:
        match item:
            case Begun():
                if number in self._begun:
                    text = "a unit was lost, or failed; it is done anew"
                    yield from self._notice(task.subject, text)
                self._begun.add(number)
            case Rejected():
                # It keeps its place, and another worker does the unit.
                del self._running[number]
                self._rejected.append(item)
                self._queue.appendleft(task._replace(again=True))
                yield from self._notice("", f"{item.why}: it does no more of this run")
            case Surveyed():
                self._surveyed = item
                self._places = {p.node_id: p for p in item.places}
            case Ended(error):
                del self._running[number]
                self._shown.pop(number, None)
                if error is not None:
                    if not isinstance(error, HarnessError):
                        raise error
                    why = str(error).partition("\n")[0]
                    self._lost.setdefault(task.subject, why)
                    self._forget(task.subject)
                    if self._surveyed:
                        yield from self._notice(task.subject, f"given up: {why}")
                yield from self._progress(task.subject)
            case (event, finding):
                yield from self._happened(number, task, event, finding)

    def _forget(self, kernel: str) -> None:
        """Begin no further unit of a kernel."""
        self._queue = deque(task for task in self._queue if task.subject != kernel)

    def _require_workers(self) -> None:
        """Raise an error where all workers that there are do no unit."""
        if self._rejected and self._cluster.room() <= len(self._rejected):
            every = "; ".join(dict.fromkeys(each.why for each in self._rejected))
            raise UsageError(
                f"every worker is rejected: {every}",
                where=self._cluster.title,
                fix="install the same versions on all machines",
            )

    def _happened(
        self, number: int, task: Task, event: Event, finding: Finding | None
    ) -> Iterator[Event]:
        match event:
            case FindingSaved():
                filed = self.filing.file(event)
                if filed is not None:
                    yield filed
                most = self.config.budget.max_findings
                if most is not None and self.filing.confirmed() >= most:
                    self._end()
            case FindingReplayed():
                folder = event.id if finding is None else finding.folder
                place = self.config.corpus / folder
                yield replace(event, path=str(place))
            case Notice():
                yield from self._notice(
                    event.kernel, event.message, event.about, event.trace
                )
            case KernelFinished() if number not in self._counted:
                self._counted.add(number)  # a worker may be lost right after it
                before = self._results.get(task.subject)
                self._results[task.subject] = added(before, event) if before else event
                self._cases += event.cases
                if self._is_exhausted(task.subject, event):
                    self._forget(task.subject)
            case Progress():
                self._shown[number] = event
                yield from self._progress(task.subject)
            case _:  # that a unit begins and ends is no event of the run
                pass

    def _is_exhausted(self, kernel: str, last: KernelFinished) -> bool:
        """Whether a kernel needs no further unit, as a campaign's would not."""
        if self.filing.unknown(kernel) >= FINDINGS_PER_KERNEL:
            return True
        if not last.cases or last.needs_gpu:
            return True
        return any(t.verdict is Verdict.ERROR for t in last.contracts.values())

    # Events of the run.

    def _endings(self) -> Iterator[Event]:
        for kernel in self._places:
            findings, paths = self.filing.of(kernel), self.filing.paths(kernel)
            why = self._lost.get(kernel) or "the run ended before its search did"
            made = self._results.get(kernel)
            if made is None:  # no unit came to its end
                made = KernelFinished(kernel, "", 0, 0.0, {}, uncompared=why)
            yield closed(made, findings, paths)

    def _finished(self) -> RunFinished:
        now = self._now()
        return RunFinished(
            now - self._began,
            self._stop.is_set(),
            self.config.seed,
            self._surveyed.backend if self._surveyed else "",
            (self._searched if self._surveyed else now) - self._began,
        )

    def _progress(self, kernel: str) -> Iterator[Event]:
        now = self._now()
        if kernel == SURVEY or now - self._progressed < PROGRESS_SECONDS:
            return
        self._progressed = now
        running = list(self._shown.values())
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
        """Yield a notice, unless another unit has reported the same."""
        key = (kernel, _DIGITS.sub("#", message))  # units differ in their counts
        if key not in self._notices:
            self._notices.add(key)
            yield Notice(kernel if kernel != SURVEY else "", message, about, trace)

    # What a unit is.

    def _work_of(self, task: Task) -> Work:
        if self._surveyed is None:
            return Survey(self.config, self._homes())
        place = self._places[task.subject]
        config, budget = self.config, self.config.budget
        if (limit := budget.max_time) is not None:
            seconds = self._left()
            if not self._by_cases:
                fair = limit * self._cluster.room() / len(self._places)
                fair = min(fair, limit, UNIT_SECONDS)
                seconds = min(fair, seconds) if task.block else fair
            budget = replace(budget, max_time=max(seconds, LEAST_SECONDS))
        replayed = config.replay and task.block == 0
        name = place.alias or place.name
        return Search(
            replace(
                config,
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
            self._stored(name) if replayed else tuple(self.corpus.marks(name)),
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
