"""One round of one kernel: its cases are judged until one shows something new."""

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Final

from kfuzz.core.budget import MEMBERS, Burst, Depth, Screened, SizeBudget, Suspect
from kfuzz.core.errors import BindingError, HarnessError, KfuzzError
from kfuzz.core.finding import Finding
from kfuzz.core.random_streams import Purpose
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CaseReport, Failure, Kind, Signature, State, Verdict
from kfuzz.engine.config import RunConfig
from kfuzz.engine.confirm import CONFIRMATIONS
from kfuzz.engine.reduce import nearer
from kfuzz.engine.search.record import DIAGNOSABLE, Record
from kfuzz.engine.workers.children import CompilesLong
from kfuzz.engine.workers.jobs import Halt, Stopped
from kfuzz.engine.workers.runner import ENDS_CHILD, Runner, attributed, is_fault
from kfuzz.engine.workers.zygotes import runs_on
from kfuzz.evaluation.drawing import BOUNDS, round_seed
from kfuzz.evaluation.prefilter import declined, member_case
from kfuzz.execution.calls.batches import UNCHECKED
from kfuzz.execution.device.backends import Batches
from kfuzz.execution.processes.wire import VARIABLE as MEMORY
from kfuzz.targets.load import LoadedKernel

WATCHED: Final = 400
"""Structures of a kernel's cases whose launches are held against its premises."""
UNFENCED: Final = "loads outside arguments go unseen"
# One symptom can have several causes, but a broken kernel shows its one cause in
# every case: these occurrences, then each power of two, are diagnosed.
DIAGNOSED: Final = 4
# Of the time left to a round one diagnosis gets so much at most.
_DIAGNOSING: Final = 0.25
# Structures that one round compiles for other GPUs, and of a kernel's time the share
# that this may take where time is short.
_BUILDS: Final = 4
_BUILDING: Final = 0.2
_OFFSETS: Final = 'offsets="int32" (offsets="int64" makes it a contract)'
# A call that a run's end cuts off is worth a notice after so many seconds, and after so
# many times what calls took before.
_LONG_SECONDS: Final = 5.0
_LONG_FACTOR: Final = 10.0


# Which sizes a kernel's next round draws: classes share a kernel's time equally.
#
# What a case of some size costs is known once it has run, and one slow call says
# nothing of the next. So nothing is estimated: the class that has had the least time
# draws next, and what takes too long is cut short where it happens.

# The first round of a class is short, so that a gross fault shows in a second; later
# ones are longer, but none than this. Those for which
# there is little time are shorter: Hypothesis begins each with the simplest case, and
# one of ten cases and more with a tenth of nearly simplest ones.
FIRST_ROUND: Final = 25
LONGEST_ROUND: Final = 200
SHORTEST_ROUND: Final = 9
# Where time is limited a round draws for so much of what is left to the kernel: half
# of that cases, half batches.
QUANTUM: Final = 1 / 8
QUANTUM_SECONDS: Final = (0.2, 2.0)
"""The least and the most."""
DRAWING: Final = 1 / 4
"""The part of either half that drawing itself may take."""


@dataclass
class SizeClass:
    """The cases of up to a number of elements.

    Attributes:
        budget: limits of their sizes.
        cases: how many its next round draws.
        rounds: given to it.
        seconds: that these took.
    """

    budget: SizeBudget
    cases: int = FIRST_ROUND
    rounds: int = 0
    seconds: float = 0.0

    def count(self, seconds: float, *, cut_at: int | None) -> None:
        """Count a round.

        Args:
            seconds: that it took.
            cut_at: for how many cases there was time; None where that was enough.
        """
        self.rounds += 1
        self.seconds += seconds
        if cut_at is None:
            self.cases = min(2 * self.cases, LONGEST_ROUND)
        else:
            self.cases = max(cut_at, SHORTEST_ROUND)


def size_classes(
    budget: SizeBudget, is_possible: Callable[[SizeBudget], object]
) -> list[SizeClass]:
    """Return the classes within a budget, the one of all sizes first.

    Args:
        budget: of the kernel.
        is_possible: raises `BindingError` where no case is within a budget.
    """
    made = [SizeClass(budget)]
    for bound in reversed(BOUNDS):
        if bound < budget.elements:
            smaller = replace(budget, elements=bound)
            try:
                is_possible(smaller)
            except BindingError:
                break
            made.append(SizeClass(smaller))
    return made


BYTES_EACH: Final = 1 << 10
"""Memory for each element of the largest tensor: twice what judging took at most."""


def above(budget: SizeBudget, largest: SizeBudget, free: int) -> list[SizeClass]:
    """Return the class of larger sizes than a budget has, none if memory lacks.

    Args:
        budget: of the kernel.
        largest: what the backend has time for.
        free: bytes on the device that one worker may take.
    """
    elements = min(free // BYTES_EACH, largest.elements)
    if elements <= budget.elements:
        return []
    power = 1 << (elements.bit_length() - 1)
    return [SizeClass(replace(largest, elements=power))]


def due(classes: Sequence[SizeClass]) -> SizeClass:
    """Return the class that has had the least time."""
    return min(classes, key=lambda each: each.seconds)


def quantum(left: float) -> float:
    """Return the seconds for which a round draws, of those left to its kernel."""
    least, most = QUANTUM_SECONDS
    return min(max(QUANTUM * left, least), most)


@dataclass
class KernelSearch:
    """One kernel's search over a run, as one worker of it sees it.

    Workers of one kernel share what they know of it. Each has a runner, rounds and time
    of its own.

    Attributes:
        workers: all that search this kernel, itself among them.
        reducing: symptoms of findings that are being taken to their minimum.
        rounds: rounds given.
        unfiltered: rounds of batches in a row in which none could be prefiltered.
        seconds: time spent.
        marked: `time.monotonic()` when its last case was judged, or its round began.
        symptoms: occurrences of each symptom, as its child showed it.
        known: how many suspects of batches were judged, by why they were suspect.
        shown: symptoms that led to a finding, as their child showed them.
        undiagnosed: those of which a repeated one took too long to be attributed.
        seen: signatures that are findings already.
        findings: by id.
        paths: their folders, by id.
        stored: ids of those that the corpus held, and that fail still when replayed.
        numbers: of rounds, over all workers; number: of the present one.
        done: whether it gets no more time slices.
        busy: whether it has one.
        quiet: whether what its children print is dropped: while a finding is reduced,
            a crash would print the same stack a hundred times.
        until: `time.monotonic()` after which its runner waits for nothing, while a
            finding is taken to its minimum; else the end of the search.
        built: structures whose launches were compiled for other GPUs.
        building: seconds that this took.
        tried: a case of each structure that was run, the first `WATCHED` of them.
        sizes: the classes of sizes that share its time; one alone where the seed says
            which cases there are.
        patience: seconds that compiling for one case may take, once any was judged.
        longest: those that it took at most for one that was judged.
        given_up: structures that took longer: none of them is tried again.
        large: whether billions of elements are what it is searched with.
        overflow: else where one was first seen, in words; "" if none was.
    """

    loaded: LoadedKernel
    runner: Runner
    budget: SizeBudget
    record: Record
    rounds: int = 0
    unfiltered: int = 0
    seconds: float = 0.0
    marked: float = field(default_factory=time.monotonic)
    symptoms: Counter[tuple[object, ...]] = field(default_factory=Counter)
    known: Counter[str] = field(default_factory=Counter)
    shown: set[tuple[object, ...]] = field(default_factory=set)
    undiagnosed: set[tuple[object, ...]] = field(default_factory=set)
    seen: set[Signature] = field(default_factory=set)
    findings: dict[str, Finding] = field(default_factory=dict)
    paths: dict[str, str] = field(default_factory=dict)
    stored: set[str] = field(default_factory=set)
    done: bool = False
    busy: bool = False
    quiet: bool = False
    until: float | None = None
    built: set[object] = field(default_factory=set)
    building: float = 0.0
    tried: dict[object, Case] = field(default_factory=dict)
    sizes: Sequence[SizeClass] = ()
    patience: float = math.inf
    longest: float = 0.0
    given_up: set[object] = field(default_factory=set)
    large: bool = False
    overflow: str = ""
    workers: list["KernelSearch"] = field(default_factory=list)
    reducing: set[tuple[object, ...]] = field(default_factory=set)
    numbers: Iterator[int] = field(default_factory=count)
    number: int = 0

    def __post_init__(self) -> None:
        self.workers.append(self)

    def joined(self, runner: Runner) -> "KernelSearch":
        """Return another worker that searches this kernel."""
        made = replace(self, runner=runner)
        turn = (len(self.workers) - 1) % max(len(self.sizes), 1)
        # They begin with different classes of sizes.
        made.sizes = [replace(s) for s in (*self.sizes[turn:], *self.sizes[:turn])]
        return made

    @contextmanager
    def taking(self, symptom: tuple[object, ...], until: float) -> Iterator[None]:
        """Have other workers leave what shows alike to this one, in the block.

        Args:
            symptom: what shows.
            until: `time.monotonic()` after which its runner waits for nothing.
        """
        self.reducing.add(symptom)
        self.until = until
        try:
            yield
        finally:
            self.until = None
            self.reducing.discard(symptom)

    def end(self) -> None:
        """Let no worker have another time slice."""
        for worker in self.workers:
            worker.done = True

    @property
    def node_id(self) -> str:
        """The one name of the kernel."""
        return self.loaded.node_id

    @property
    def device(self) -> str:
        """The device that it runs on, as the campaign calls it."""
        return self.runner.place.label

    @property
    def name(self) -> str:
        """The name that it is bound to."""
        return self.loaded.name

    @property
    def judges_offsets(self) -> bool:
        """Whether an overflow of 32-bit offsets is a failure, and no limit."""
        promised = "offsets" in self.loaded.kernel.explicit or self.large
        return promised or bool(self.loaded.target.reference)

    def learn(self, case: Case, report: CaseReport) -> None:
        """Count what a case showed."""
        with self.record.lock:
            self.watch(case)
            self.record.take(case, report, self._since_marked())

    def learn_batch(self, batch: Burst, made: Screened) -> None:
        """Count what the items of a batch showed that passed; suspects are cases."""
        with self.record.lock:
            self.watch(batch.case)
            self.record.take_batch(batch, made, self._since_marked())

    def _since_marked(self) -> float:
        """Return the seconds since the last case, or since the round began."""
        before, self.marked = self.marked, time.monotonic()
        return self.marked - before

    def watch(self, case: Case) -> None:
        """Have the launches of a case held against the premises of a proof."""
        if len(self.tried) < WATCHED:
            self.tried.setdefault(case.structure, case)

    @property
    def compiling_limit(self) -> float:
        """Seconds after which compiling for a case is given up.

        All that a kernel launches may take long: twice what it took is no reason.
        """
        longest = 2 * self.longest if self.record.cases else math.inf
        return max(self.patience, longest)

    def give_up(self, case: Case, seconds: float) -> None:
        """Try no case of this structure again: it takes too long to compile."""
        self.given_up.add(case.structure)
        self.record.note(f"not judged: compiling took more than {seconds:.0f} s")

    def drop(self, finding: Finding) -> None:
        """Count a finding no more in an earlier form."""
        with self.record.lock:
            if self.findings.get(finding.id) is finding:
                del self.findings[finding.id], self.paths[finding.id]

    def keep(self, finding: Finding, path: Path) -> None:
        """Count a finding that is stored among those of the run."""
        self.findings[finding.id] = finding
        self.paths[finding.id] = str(path)

    def has_seen(self, symptom: tuple[object, ...]) -> bool:
        """Whether some finding shows so."""
        return any(signature.symptom == symptom for signature in list(self.seen))

    def is_open(self, signature: Signature) -> bool:
        """Whether a finding that shows alike has not been attributed."""
        return any(
            f.signature.symptom == signature.symptom and not f.is_explained
            for f in list(self.findings.values())
        )

    def count(self, of: Callable[[State], bool]) -> int:
        """Return how many findings of some states nobody knew of before this run."""
        # A copy: the thread that has the kernel may add one meanwhile.
        found = list(self.findings.values())
        return sum(of(f.state) for f in found if f.id not in self.stored)


class Round:
    """The cases of one round of one kernel.

    Attributes:
        found: the case and report that ended it, if one did.
        error: what kept kfuzz from judging, if anything did.
        cases: how many it has judged; the record counts those of other workers too.
    """

    def __init__(
        self, kernel: KernelSearch, *, stop: threading.Event | Halt, deadline: float
    ) -> None:
        self._kernel = kernel
        self._stop = stop
        self._deadline = deadline
        self.found: tuple[Case, CaseReport] | None = None
        self.error: KfuzzError | None = None
        self.cases = 0

    @property
    def over(self) -> bool:
        """Whether nothing more is to be judged."""
        ended = self.found is not None or self.error is not None
        return ended or self._stop.is_set() or time.monotonic() >= self._deadline

    def judge(
        self, case: Case, *, suspect: bool = False, settled: bool = False
    ) -> CaseReport | None:
        """Judge a case, or return None once the round is over; never raises.

        Args:
            case: the case.
            suspect: whether a batch pointed to it. Its symptoms are counted apart:
                they take no diagnosis from those that are found without.
            settled: whether no fresh child is asked about what the case suspects.
        """
        if self.over or case.structure in self._kernel.given_up:
            return None
        judged: CaseReport | None = None
        with self.guarded():
            judged = self._judged(case, suspect=suspect, settled=settled)
        return judged

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Have an error end the round that the block belongs to, not the run."""
        try:
            yield
        except Stopped:
            pass  # whoever asks next sees that the run is over
        except KfuzzError as error:
            self.error = error

    def _judged(self, case: Case, *, suspect: bool, settled: bool) -> CaseReport | None:
        """Judge a case, see `judge`; raises what keeps kfuzz from judging it."""
        runner, limit = self._kernel.runner, self._kernel.compiling_limit
        try:
            report = runner.judge(case, Depth.SEARCH, patience=limit)
        except CompilesLong as long:
            self._kernel.give_up(case, long.seconds)
            return None
        except Stopped as stopped:
            self._note_open_call(case, stopped.calling)
            raise
        self._kernel.longest = max(self._kernel.longest, runner.compiled)
        if report.unsupported is not None:
            self._kernel.given_up.add(case.structure)
        if why := runner.children.unfenced:
            self._kernel.record.notice(f"{UNFENCED}: {why}")
        suspected = None if settled else self._suspected(report)
        alone = None
        if suspected is not None:
            try:
                alone = runner.conforms_alone(suspected)
            except Stopped:
                self._is_known(case, report.confirmed())  # nobody knows better any more
                raise
        if alone:
            report = report.confirmed()
        if report.failure is not None and not self._kernel.judges_offsets:
            report = self._limited(case, report, report.failure)
        failure = report.failure
        due = failure is not None and self._is_due(
            failure, *(["in a batch"] if suspect else [])
        )
        # What is new is stored before anything is asked that may take long.
        known = due and self._is_known(case, report)
        if known and is_fault(report):
            case, report = self._located(case, report)
        self.learn(case, report)
        if self._kernel.record.hoards:
            raise HarnessError(
                "memory runs out in most cases, so that no more are judged",
                fix=f"{MEMORY}=MiB gives a child more than half of what is free",
            )
        if known:
            report = self._diagnosed(case, report)
        if suspected is not None and alone is False and report.failure is None:
            self.judge(suspected, settled=True)  # wrong by itself: a case like others
        return report

    def _limited(self, case: Case, report: CaseReport, failure: Failure) -> CaseReport:
        """Return the report of a case that fails for 32-bit offsets alone as a limit.

        It spans 2^31 elements or more, and passes with less between the same elements.
        """
        near = nearer(case)
        if near == case:
            return report
        other = self._kernel.runner.judge(near, Depth.SEARCH)
        if Verdict.CONFORMS not in other.verdicts.values() or other.failure:
            return report
        line = next((f" at {a.line}" for a in failure.accesses if a.line), "")
        text = f"offsets overflow 32 bits beyond 2^31 elements{line}"
        first = self._kernel.workers[0]  # for all of them it is one limit
        first.overflow = first.overflow or text
        return CaseReport({}, refusal=first.overflow, limit=(first.overflow, _OFFSETS))

    def _note_open_call(self, case: Case, seconds: float) -> None:
        """Have it printed that a call was cut off that may hang.

        Time was too short to know: a call that takes long and one that never returns
        look alike until the limit for a hang has passed.
        """
        runner = self._kernel.runner
        if seconds < max(_LONG_SECONDS, _LONG_FACTOR * runner.predicted):
            return
        shapes = (f"{n} {s.dtype}{[*s.shape]}" for n, s in case.tensors.items())
        self._kernel.record.notice(
            f"a call had not returned after {seconds:.0f} s when the run ended, at "
            f"{', '.join(shapes)}: it may hang; use a longer `--max-time` to find out"
        )

    def judge_builds(self, targets: tuple[str, ...]) -> None:
        """Judge some structures once more, compiled for other GPUs as well.

        Args:
            targets: these GPUs; one that something does not build for is left out.
        """
        kernel = self._kernel
        if "K-BLD-01" not in kernel.record.classes:
            return
        failed = {s.detail for s in kernel.seen if s.contract == "K-BLD-01"}
        targets = tuple(t for t in targets if t not in failed)
        began, done = time.monotonic(), 0
        fresh = [s for s in kernel.tried if s not in kernel.built]
        for structure in fresh if targets else ():
            spent = kernel.building + time.monotonic() - began
            if kernel.patience == math.inf:
                full = done >= _BUILDS
            else:
                full = done > 0 and spent > _BUILDING * (kernel.seconds + spent)
            if full or self.over or self.found is not None:
                break
            kernel.built.add(structure)
            case = replace(kernel.tried[structure], targets=targets)
            if not case.large:
                self.judge(case)
                done += 1
        kernel.building += time.monotonic() - began
        if self.found is not None:
            case, report = self.found
            if report.failure is not None and report.failure.contract == "K-BLD-01":
                # The smaller ones are to fail for the same GPU.
                self.found = replace(case, targets=(report.failure.detail,)), report

    def _suspected(self, report: CaseReport) -> Case | None:
        """Return the call that a report suspects, if a fresh child is to be asked.

        As seldom as one symptom is diagnosed: a child costs more than most cases.
        """
        if report.suspicion is None:
            return None
        due = self._is_due(report.suspicion.failure, "suspected")
        return report.suspicion.case if due else None

    def _is_due(self, failure: Failure, *apart: str) -> bool:
        """Count an occurrence of a symptom and return whether it is diagnosed.

        `apart` tells apart what is counted by itself.
        """
        symptom = (*failure.signature(self._kernel.name).symptom, *apart)
        with self._kernel.record.lock:
            self._kernel.symptoms[symptom] += 1
            return is_diagnosed(self._kernel.symptoms[symptom])

    def learn(self, case: Case, report: CaseReport) -> None:
        """Count what a case teaches."""
        self.cases += 1
        self._kernel.learn(case, report)

    def _located(self, case: Case, report: CaseReport) -> tuple[Case, CaseReport]:
        """Return a case that died of a fault, and its report, as what they are."""
        self._kernel.quiet = True  # its stack has been printed once
        found = self._kernel.runner.locate(case)
        if found is None:
            return case, report
        located, failure = found
        # A recipe still, but beside that one fence.
        return replace(case, edge=located.edge), attributed(report, failure)

    def _is_known(self, case: Case, report: CaseReport) -> bool:
        """Whether a failure shows as one before; a new one ends the round.

        What another worker takes to its minimum is neither.
        """
        kernel = self._kernel
        assert report.failure is not None
        symptom = report.failure.signature(kernel.name).symptom
        with kernel.record.lock:
            if symptom in kernel.shown or kernel.has_seen(symptom):
                return symptom not in kernel.reducing
            kernel.shown.add(symptom)
        kernel.runner.prepare(CONFIRMATIONS)
        self.found = (case, report)
        return False

    def _diagnosed(self, case: Case, report: CaseReport) -> CaseReport:
        """Tell the classes apart, and keep a failure of another one than its like."""
        kernel = self._kernel
        assert report.failure is not None
        signature = report.failure.signature(kernel.name)
        if report.failure.contract in DIAGNOSABLE:
            if kernel.is_open(signature) or signature.symptom in kernel.undiagnosed:
                return (
                    report  # it may be the same, and that is found out, or takes long
                )
            if signature not in kernel.seen:
                kernel.runner.prepare(CONFIRMATIONS)  # they will confirm it
            left = _DIAGNOSING * (self._deadline - time.monotonic())
            full = kernel.runner.diagnose(case, left, fresh=False)
            if full is None:
                kernel.undiagnosed.add(signature.symptom)
                return report
            report = full if full.failure is not None else report
        assert report.failure is not None
        if report.failure.signature(kernel.name) not in kernel.seen:
            self.found = (case, report)
        return report


def is_diagnosed(times: int) -> bool:
    """Whether an occurrence of a symptom, counted from 1, is diagnosed."""
    return times <= DIAGNOSED or times & (times - 1) == 0


# A round of batches: many items of each structure are prefiltered, suspects judged.
#
# While a child runs one batch the next one is drawn. Nothing is reported for what a
# prefilter says: a suspect becomes a case like any other, and a batch that ends its
# child is judged item by item.

# How often the batches of a kernel's round double, from those of its first one.
DOUBLINGS: Final = 4

# Where the number of cases is limited, nothing is prefiltered before this many: so few
# are better judged in full. Half of those after it are items of batches.
JUDGED_FIRST: Final = 400

# Suspects of one batch that are judged: a broken kernel breaks in every item, and
# shows how in the first; a rare one has few.
JUDGED: Final = 4
# Suspects of one kind that were judged and showed nothing new, after which one of that
# kind is judged in each batch, and the others count as failing alike: what the kernel
# often does wrong must not hide the rest, nor take its time.
KNOWN: Final = 8
# Batches that end their child, or fail for an error of kfuzz's, after which it ends.
FAILED: Final = 3
# For which the members of a batch are called at least: most take milliseconds in all.
LEAST_SECONDS: Final = 0.5
_CUT_SHORT: Final = "not called: a batch of like cases took too long"
# How what ends a child shows, a load beside a page that faults included.
_FATAL: Final = ENDS_CHILD | {Kind.READ_OUTSIDE}
# Rounds in a row in which nothing could be prefiltered, after which nothing is tried.
GIVEN_UP: Final = 2


def share_of(
    kernel: KernelSearch, batches: Batches, limit: int | None
) -> tuple[int, int]:
    """Return how many batches a kernel's round has, and how many items at most.

    Args:
        kernel: before this round is counted.
        batches: how the backend batches cases.
        limit: cases of the kernel in the whole run, None for no limit.
    """
    count = batches.first << min(kernel.rounds, DOUBLINGS)
    if limit is None:
        return count, count * MEMBERS
    cases = kernel.record.cases
    if limit <= JUDGED_FIRST or cases < JUDGED_FIRST // 2:
        return 0, 0
    most = max((limit - cases) // 2, 0)
    return min(count, most), most


def prefilter_round(
    kernel: KernelSearch,
    this_round: Round,
    draw: Callable[..., Sequence[Burst]],
    config: RunConfig,
    *,
    end: float,
) -> None:
    """Draw and prefilter the batches of a kernel's round.

    Args:
        kernel: the kernel.
        this_round: its round so far; takes what is found.
        draw: returns batches of the kernel's cases.
        config: of the run.
        end: `time.monotonic()` after which none is submitted.
    """
    batches = runs_on(kernel.loaded.kernel, kernel.runner.place.backend).limits.batches
    if batches is None:
        return
    count, most = share_of(kernel, batches, config.budget.max_cases)
    if not count or config.burst == 1 or kernel.unfiltered >= GIVEN_UP:
        return
    made = BatchRound(kernel, this_round, most=most, end=end)
    for batch in draw(
        cases=count,
        seed_value=round_seed(config.seed, kernel.name, kernel.number, Purpose.BATCHES),
        simplest=not kernel.rounds or end == math.inf,
        batches=(batches, config.burst),
    ):
        if made.is_over() or time.monotonic() >= end:
            break
        made.take(batch)
    made.collect()
    done = made.items > 0 or kernel.given_up
    kernel.unfiltered = 0 if done else kernel.unfiltered + 1


class BatchRound:
    """The batches of one round of one kernel.

    Attributes:
        items: items prefiltered or judged so far.
    """

    def __init__(
        self, kernel: KernelSearch, this_round: Round, *, most: int,
        end: float = math.inf,
    ) -> None:  # fmt: skip
        """Begin a round.

        Args:
            kernel: whose round it is.
            this_round: judges the suspects, and knows when all is over.
            most: items after which no more are prefiltered.
            end: `time.monotonic()` after which a batch is cut short.
        """
        self.items = 0
        self._kernel = kernel
        self._round = this_round
        self._most = most
        self._end = end
        self._pending: Burst | None = None
        self._failed = 0

    @property
    def left(self) -> int:
        """How many more items may be prefiltered."""
        pending = self._pending.members if self._pending else 0
        return self._most - self.items - pending

    def is_over(self) -> bool:
        """Return whether nothing more is to be prefiltered."""
        return self._round.over or self._failed >= FAILED or self.left <= 0

    def take(self, batch: Burst) -> None:
        """Submit a batch once the one before is back; never raises."""
        if self.is_over() or batch.case.structure in self._kernel.given_up:
            return
        if declined(self._kernel.loaded.kernel, batch.case):
            return
        self.collect()
        if self.is_over():
            return
        seconds = max(self._end - time.monotonic(), LEAST_SECONDS)
        members = min(batch.members, self.left)
        batch = replace(batch, members=members, seconds=seconds)
        with self._round.guarded():
            self._kernel.runner.submit(batch)
            self._pending = batch

    def collect(self) -> None:
        """Take what the pending batch shows, if one is; judge its suspects."""
        batch, self._pending = self._pending, None
        if batch is None:
            return
        with self._round.guarded():
            try:
                limit = self._kernel.compiling_limit
                made = self._kernel.runner.prefiltered(patience=limit)
            except CompilesLong as long:
                self._kernel.give_up(batch.case, long.seconds)
                return
            self._take(batch, made)

    def _take(self, batch: Burst, made: Screened) -> None:
        self._kernel.learn_batch(batch, made)
        self.items += made.passed
        if made.dropped:
            self._kernel.record.note(_CUT_SHORT, made.dropped)
        if made.error:
            self._kernel.record.notice(
                f"a batch could not be prefiltered: {made.error}"
            )
            self._failed += 1
        if made.lost:
            self._judge(batch, made.lost)
        elif made.suspects:
            self._judge_suspects(batch, made)

    def _judge(self, batch: Burst, why: str) -> None:
        """Judge items one by one until one of them ends its process as well."""
        for number in range(batch.members):
            self.items += 1
            case = member_case(self._kernel.loaded.kernel, batch, number)
            report = self._round.judge(case, suspect=True)
            if report is None or self._round.found is not None:
                return
            if report.failure is not None and report.failure.kind in _FATAL:
                break
        else:
            self._kernel.record.note(f"in a batch, not alone: {why}")
        self._failed += 1

    def _judge_suspects(self, batch: Burst, made: Screened) -> None:
        """Judge some suspects, each kind of reason first."""
        self.items += len(made.suspects)
        for suspect in self._chosen(made.suspects):
            case = member_case(self._kernel.loaded.kernel, batch, suspect.member)
            report = self._round.judge(case, suspect=True)
            if report is not None and _is_clean(report):
                # Away from pages that fault, with all that is sampled.
                report = None
                with self._round.guarded():
                    pinned = self._kernel.runner.pin(case)
                    report = self._round.judge(pinned, suspect=True)
                if report is not None and _is_clean(report):
                    self._kernel.record.note(f"in a batch, not alone: {suspect.why}")
            if report is None or self._round.found is not None:
                return
            self._kernel.known[_kind(suspect)] += 1

    def _chosen(self, suspects: Sequence[Suspect]) -> list[Suspect]:
        """Return whom to judge: one of each kind, then a few more.

        Of a kind of which enough are known it is one, each time at another place.
        """
        kinds: dict[str, list[Suspect]] = {}
        for suspect in suspects:
            kinds.setdefault(_kind(suspect), []).append(suspect)
        known = self._kernel.known
        first = [alike[known[kind] % len(alike)] for kind, alike in kinds.items()]
        others = [s for s in suspects if s not in first]
        if any(kind.startswith(UNCHECKED) for kind in kinds):
            # Which call left a failed launch behind is not known: any of them.
            return [*first, *others]
        more = [s for s in others if known[_kind(s)] < KNOWN]
        return [*first, *more[: max(JUDGED - len(first), 0)]]


def _kind(suspect: Suspect) -> str:
    """Return why an item is suspect, without what depends on its data or its shape."""
    return suspect.why.partition(":")[0]


def _is_clean(report: CaseReport) -> bool:
    """Whether a case was judged and nothing is wrong with it."""
    failed = report.failure or report.refusal or report.error or report.unsupported
    return not failed
