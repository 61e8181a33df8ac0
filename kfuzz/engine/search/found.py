"""What a round has found, taken to its minimum, kept, and traced to its line."""

import json
import threading
import time
from collections.abc import (
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from itertools import count, zip_longest
from pathlib import Path
from typing import Any, Final

from kfuzz.contracts.classes import ATTRIBUTION
from kfuzz.core.budget import Depth
from kfuzz.core.codec import encode
from kfuzz.core.errors import KfuzzError, StorageError
from kfuzz.core.event import Event, FindingSaved, Notice
from kfuzz.core.finding import SHOWS, Finding, Line, Patch, Severity
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import (
    ATTRIBUTED,
    FAILING,
    MASK_KINDS,
    UNCONFIRMED,
    VALUE_KINDS,
    CaseReport,
    Feature,
    Kind,
    State,
)
from kfuzz.engine import confirm
from kfuzz.engine.config import ReplayConfig, ReplayResult, RunConfig
from kfuzz.engine.explain import CLASS_OF, with_ordinary_numbers
from kfuzz.engine.replay import locate as load_kernel
from kfuzz.engine.replay import replay
from kfuzz.engine.search.round import KernelSearch
from kfuzz.engine.workers.jobs import Stopped, fair_share, streamed
from kfuzz.engine.workers.runner import (
    ENDS_CHILD,
    GRACE_SECONDS,
    HANG_SECONDS,
    runner_of,
)
from kfuzz.engine.workers.zygotes import Backend, budget_for
from kfuzz.evaluation.drawing import search_round, strategy_of
from kfuzz.evaluation.locating import Located
from kfuzz.execution.device.backends import BACKENDS
from kfuzz.store.corpus import Corpus, Problem, ProblemKind, Stored
from kfuzz.store.life import covering, enter, merged, under
from kfuzz.targets.load import LoadedKernel

# A finding's place in the corpus, while a run changes the finding.


class FiledFinding:
    """A finding's place in the corpus, as the finding changes.

    Attributes:
        corpus: where it is kept.
        finding: as stored last.
        own: the same without what the corpus held before.
        path: its folder.
        is_new: whether the corpus did not hold its bucket before.
        is_known: whether a mark of its whole signature made it known when it was
            found.
    """

    def __init__(self, corpus: Corpus, finding: Finding) -> None:
        self.corpus = corpus
        # What earlier runs and people recorded of the very same case, where it was not
        # explained: nothing of it is lost because it is found again.
        self._held: Finding | None = None

        def join(held: Finding | None) -> Finding:
            self._held = held
            return self._joined(finding)

        marks = corpus.marks(finding.signature.kernel)
        self.is_known = covering(marks, finding) is not None
        stored = corpus.change(finding, join)
        assert stored is not None
        self.own, self.finding = finding, stored
        self.path = corpus.root / stored.folder
        self.is_new = self._held is None

    def save(self, finding: Finding) -> Finding:
        """Store the finding in place of its earlier form, and return it as it is."""
        if finding.id != self.finding.id:
            self.is_new = self.corpus.get(finding) is None
        self.own, stored = finding, self._joined(finding)
        self.path = self.corpus.replace(self.finding, stored)
        self.finding = stored
        return finding

    def _joined(self, finding: Finding) -> Finding:
        """Return a form of the finding with what its entry held when it was found."""
        held = self._held
        if held is None or held.id != finding.id:
            return finding
        if held.signature != finding.signature:
            return finding  # the case fails another way: a mark does not hold for it
        return merged(held, finding)

    def settle(self) -> Finding:
        """Return the finding as the corpus holds it, merged with what it held.

        A finding that the mark of a known one covers is known too.
        """
        marks = self.corpus.marks(self.finding.signature.kernel)

        def settled(stored: Finding | None) -> Finding:
            final = stored or self.finding
            known = covering(marks, final)
            return final if known is None else under(known, final)

        final = self.corpus.change(self.finding, settled)
        assert final is not None
        self.finding = final
        return final


def first_finding(
    kernel: KernelSearch, case: Case, report: CaseReport, *, seed: int
) -> Finding:
    """Return the finding of a case that fails, as it was found."""
    assert report.failure is not None
    finding = Finding(
        signature=report.failure.signature(kernel.name),
        target=kernel.loaded.target,
        operator=kernel.loaded.kernel.operator.name_in_contracts,
        device=kernel.runner.place.backend,
        case=case,
        first=case,
        failure=report.failure,
        declaration=kernel.loaded.kernel.declaration,
        fingerprint=kernel.runner.fingerprint(),
        seed=seed,
        first_errors=report.failure.errors,
    )
    return enter(finding, State.NEW, "found")


def taken_to_minimum(
    kernel: KernelSearch,
    finding: Finding,
    corpus: Corpus,
    *,
    seconds: Callable[[], float],
    stopped: Callable[[], bool],
    further: bool = False,
) -> Generator[Event, None, FiledFinding | None]:
    """Save, confirm, reduce, confirm, explain; what cannot be saved is printed.

    Args:
        kernel: whose finding it is; gets it as it is stored in the end.
        finding: as found.
        corpus: where it is kept.
        seconds: how long it may still be reduced and explained.
        stopped: whether the run is over.
        further: whether there is time for it later, if that did not suffice.

    Returns:
        The finding, if it is to be taken further; else it is done.

    Raises:
        StorageError: if it cannot be kept; what was reported as saved is still there.
    """
    if kernel.has_seen(finding.signature.symptom):
        # Its class is another than that of a finding that shows alike.
        kernel.seen.add(finding.signature)
    try:
        entry = FiledFinding(corpus, finding)
    except StorageError:
        kernel.findings[finding.id] = finding  # reported at the end, with no path
        # What is known of a finding that no disk holds: its case is a recipe.
        what = f"{finding.signature.contract}: {finding.failure.message}"
        case = json.dumps(encode(finding.case))
        text = f"found, and NOT SAVED: {what}; seed {finding.seed}, case {case}"
        yield Notice(kernel.node_id, text)
        raise
    path, is_new = str(entry.path), not entry.is_known
    yield FindingSaved(kernel.node_id, finding, path, is_new, "found")
    return (
        yield from reduced(
            kernel, entry, seconds=seconds, stopped=stopped, further=further
        )
    )


def reduced(
    kernel: KernelSearch,
    entry: FiledFinding,
    *,
    seconds: Callable[[], float],
    stopped: Callable[[], bool],
    further: bool = False,
) -> Generator[Event, None, FiledFinding | None]:
    """Take a stored finding further; arguments as of `taken_to_minimum`."""
    before = entry.finding
    kernel.quiet = True
    try:
        confirm.process(
            kernel.runner,
            replace(entry.own, case=kernel.runner.pin(entry.own.case)),
            seconds=seconds,
            stopped=stopped,
            save=entry.save,
            confirmed=entry.own.state is State.CONFIRMED,
        )
    except Stopped:
        if not further:
            last = entry.finding
            if last.state is State.NEW and kernel.runner.records_count:
                entry.save(confirm.recorded(last) or last)
            text = f"{entry.finding.id} is saved as it stood when the run ended"
            yield Notice(kernel.node_id, text)
    except Exception:
        kernel.keep(entry.finding, entry.path)  # it has been reported
        raise
    finally:
        kernel.quiet = False
    if further and _is_open(entry.own):
        kernel.keep(entry.finding, entry.path)
        kernel.seen.add(entry.finding.signature)
        return entry
    ordinary = _with_ordinary_numbers(kernel, entry.own, entry.own.case)
    # What is wrong of other numbers comes first, be it another fault.
    plain = ordinary or _with_ordinary_numbers(kernel, entry.own, entry.own.first)
    if further and plain is not None and kernel.is_open(plain.signature):
        kernel.keep(entry.finding, entry.path)
        return entry
    if plain is not None:
        until, symptom = kernel.until or 0.0, plain.signature.symptom
        while symptom in kernel.reducing and time.monotonic() < until and not stopped():
            time.sleep(0.05)  # another worker is at it
        if not kernel.has_seen(symptom) and not stopped():
            kernel.shown.add(symptom)
            kernel.until = max(until, time.monotonic() + FIRST_SECONDS)
            yield from taken_to_minimum(
                kernel, plain, entry.corpus, stopped=stopped,
                seconds=lambda: max(seconds(), FIRST_SECONDS),
            )  # fmt: skip
    kernel.drop(before)
    with kernel.record.lock:
        kernel.seen.add(entry.own.signature)
        same = _same_fault(kernel, entry.own, ordinary)
        if same is not None:
            entry.save(replace(same, also=(*same.also, *entry.own.signatures)))
        final = entry.settle()
        kernel.seen.add(final.signature)
        if final.state in UNCONFIRMED:  # another case may show it each time
            kernel.seen -= {final.signature, entry.own.signature}
            kernel.shown.discard(final.signature.symptom)
        is_new = entry.is_new and final.id not in kernel.findings
        kernel.keep(final, entry.path)
    yield FindingSaved(kernel.node_id, final, str(entry.path), is_new, "done")
    return None


# Which of a kernel's findings are one fault: the one that was explained first is shown.

_LAYOUT: Final = frozenset({Feature.NON_CONTIGUOUS, Feature.MISALIGNED})
_OF_CHANGED_DATA: Final = frozenset(c.id for c in ATTRIBUTION if c.changed_data)
_COMMON: Final = {Feature.MAGNITUDE, *CLASS_OF.values()}
# New numbers that are tried at a minimum: where rounding decides, some of them pass.
_SAMPLES: Final = 16
# How it shows that elements are sought where they do not lie.
_ADDRESSING: Final = VALUE_KINDS | {Kind.READ_OUTSIDE, Kind.WRITE_OUTSIDE}


def _same_fault(
    kernel: KernelSearch, finding: Finding, ordinary: Finding | None
) -> Finding | None:
    """Return an earlier finding of a kernel that is the same fault, if there is one.

    Args:
        kernel: the kernel.
        finding: taken to its minimum, and explained.
        ordinary: how that fails with ordinary numbers, if it does and needs others.
    """
    symptom = ordinary and ordinary.signature.symptom
    alike = (
        other
        for other in kernel.findings.values()
        if other.is_explained
        and other.state in FAILING
        and other.id != finding.id
        and (
            symptom in {s.symptom for s in other.signatures}
            or (finding.is_explained and needs_alike(other, finding))
            or _is_same_input(finding, other)
            or _is_of_changed_data(finding, other)
        )
    )
    return next(alike, None) if finding.state in FAILING else None


def _is_same_input(finding: Finding, other: Finding) -> bool:
    """Whether two findings show alike on one input, whatever memory held around it."""
    one, before = finding.case, other.case
    same = (one.tensors, one.scalars) == (before.tensors, before.scalars)
    return same and finding.signature == other.signature


def _is_of_changed_data(finding: Finding, other: Finding) -> bool:
    """Whether a case that was changed is wrong as what another finding is about.

    It was judged as a case of its own, and missed: the order, or the scale, is a
    matter of its own only where nothing else is wrong in that result.
    """
    one, plain = finding.signature, other.signature
    return (
        one.contract in _OF_CHANGED_DATA
        and not one.detail
        and plain.contract not in _OF_CHANGED_DATA
        and plain.kind is Kind.VALUE
        and one.output == plain.output
    )


def needs_alike(one: Finding, other: Finding) -> bool:
    """Whether two explained findings have the same need, which makes them one fault.

    That contiguous tensors mend them, and nothing else does, wherever elements were
    then sought; or one result is wrong, as NaN or as a number, under one condition, to
    which one of them may add another. What no need is known of may be another fault.
    So may what needs no more than a class of formats or a magnitude: many faults do.
    """
    needed, both = one.features, (one.signature, other.signature)
    kinds, outputs = {s.kind for s in both}, {s.output for s in both}
    if needed and needed == other.features and _LAYOUT.issuperset(needed):
        return kinds <= _ADDRESSING
    alike = len(outputs) == 1 and kinds <= VALUE_KINDS
    fewer, more = sorted((_needs(one), _needs(other)), key=len)
    return alike and fewer <= more and not fewer <= _COMMON


def _needs(finding: Finding) -> set[str]:
    """Return what a finding is known to need: features, and conditions in words.

    Each value of a scalar with which it passes is one.
    """
    assert finding.explanation is not None
    needs: set[str] = {*finding.features}
    for line in (line.partition(":")[0] for line in finding.explanation.lines):
        if line.startswith(SHOWS):
            what, _, values = line.partition(" = ")
            several = values and line.startswith("passes with ")
            every = values.split(" and ") if several else ()
            needs |= {f"{what} = {value}" for value in every} or {line}
    return needs


def _with_ordinary_numbers(
    kernel: KernelSearch, finding: Finding, case: Case
) -> Finding | None:
    """Return how a case of a finding fails otherwise with ordinary numbers.

    Asked where NaN or infinities are in its data, or come out. Structure and scalars
    stay. None where it passes then, or fails alike.
    """
    special = finding.signature.kind in MASK_KINDS
    nonfinite = finding.severity is Severity.NONFINITE
    if not (special or nonfinite) or finding.explanation is None or case.large:
        return None
    accepts = confirm.domain_of(kernel.runner, finding.case)
    samples = _SAMPLES if case is finding.case else 1
    for ordinary in with_ordinary_numbers(kernel.runner.pin(case), samples):
        case = confirm.fitted(kernel.loaded.kernel.operator, ordinary)
        with suppress(Stopped):
            report = kernel.runner.judge(case, Depth.SEARCH) if accepts(case) else None
            if report and report.failure and report.failure.kind in VALUE_KINDS:
                made = first_finding(kernel, case, report, seed=finding.seed)
                if made.signature.symptom != finding.signature.symptom:
                    return made
    return None


def _is_open(finding: Finding) -> bool:
    """Whether more time may bring more to light."""
    if finding.state is not State.CONFIRMED:
        return finding.state is State.NEW
    reduction, explanation = finding.reduction, finding.explanation
    if reduction is None or explanation is None or reduction.stopped == "time":
        return True
    return not explanation.complete and reduction.stopped != confirm.LARGE


# How long findings may take: little while others are searched for, the rest after it.

# Seconds of a finding as it comes, if not this part of what is left of the search.
FIRST_SECONDS: Final = 5.0
FIRST_SHARE: Final = 0.1
# As it comes a slow one gets so many at most; none waits to be confirmed any longer.
SLOW_SECONDS: Final = 15.0
# Seconds of each that is not done once the search is over, and of all together at
# least, where the search was not longer.
AFTER_SECONDS: Final = 20.0
UNLIMITED_SECONDS: Final = 600.0
# Kept back of these for one confirmation: so long, or as the case under way and fresh
# children for it take; and no more than this share.
RESERVE_SECONDS: Final = 1.5
RESERVE_SHARE: Final = 0.4
CALLS_TO_CONFIRM: Final = 1 + confirm.CONFIRMATIONS
# The last candidate, three forks, and the full limit.
CONFIRM_HANG_SECONDS: Final = HANG_SECONDS + 4.0


def to_confirm(kernel: KernelSearch, finding: Finding) -> float:
    """Return how long confirming the minimum of a finding may take."""
    if finding.signature.kind is Kind.HANG:
        return CONFIRM_HANG_SECONDS
    return max(RESERVE_SECONDS, CALLS_TO_CONFIRM * kernel.runner.predicted)


def first_seconds(kernel: KernelSearch, finding: Finding, left: float) -> float:
    """Return how long a finding may take as it comes, if the search has so much left.

    A large case is made no smaller: it gets all that confirming it takes.
    """
    most = left if finding.case.large else SLOW_SECONDS
    each = most if finding.signature.kind in ENDS_CHILD else to_confirm(kernel, finding)
    slow = min(2 * each, most)
    return min(max(FIRST_SECONDS, FIRST_SHARE * left, slow), left)


def after_seconds(kernel: KernelSearch, finding: Finding) -> float:
    """Return how long a finding may take once the search is over."""
    return max(AFTER_SECONDS, 2 * to_confirm(kernel, finding))


def to_reduce(kernel: KernelSearch, finding: Finding, left: float) -> float:
    """Return how much of some seconds a finding may be reduced."""
    reserve = to_confirm(kernel, finding)
    if finding.signature.kind is not Kind.HANG:
        reserve = min(reserve, RESERVE_SHARE * left)
    return max(left - reserve, 0.0)


# The findings stored for a run's kernels, run again before anything is searched.

REPLAYING_SHARE: Final = 0.5
"""The part of a run's time that replaying may take."""


def replay_first(
    kernels: Sequence[KernelSearch],
    config: RunConfig,
    backend: Backend,
    *,
    classes: Collection[str],
    stop: threading.Event,
    end: float,
) -> Iterator[Event]:
    """Replay what is stored of kernels, and keep with each what still fails.

    Findings of another device are left to a run there. Where the time does not suffice
    for all, the seed says with which of them it begins, so that all have their night.

    Args:
        kernels: of the run.
        config: of the run.
        backend: where it runs.
        classes: ids of the contract classes in force.
        stop: set from outside to end after the current findings.
        end: `time.monotonic()` at which the search ends; infinite for no limit.

    Yields:
        An event for each finding replayed, one for each that is to be a finding of
        this run, and notices of what was left out.
    """
    corpus = Corpus(config.corpus)
    stored, elsewhere = _stored(kernels, corpus, classes, backend.name)
    if elsewhere:
        text = f"{_findings(elsewhere)} of other devices not replayed on {backend.name}"
        yield Notice("", text)
    first = config.seed % max(len(stored), 1)
    stored = stored[first:] + stored[:first]
    now = time.monotonic()
    asked = ReplayConfig(
        root=config.root,
        corpus=config.corpus,
        isolate=config.isolate,
        until=now + REPLAYING_SHARE * max(end - now, 0.0),
    )
    owners = {entry.path: kernel for kernel, entry in stored}
    entries = [entry for _, entry in stored]
    done = 0
    loaded = {kernel.name: kernel.loaded for kernel in kernels}
    for result in replay(entries, asked, stop=stop, backend=backend, loaded=loaded):
        done += 1
        yield from _replayed(owners[result.path], result)
    if done < len(entries) and not stop.is_set():
        left = _findings(len(entries) - done)
        yield Notice("", f"{left} not replayed: that may take half of the time")


def _stored(
    kernels: Sequence[KernelSearch],
    corpus: Corpus,
    classes: Collection[str],
    device: str,
) -> tuple[list[tuple[KernelSearch, Stored | Problem]], int]:
    """Return what is stored of each kernel, and how much of it is of other devices."""
    found: list[tuple[KernelSearch, Stored | Problem]] = []
    elsewhere = 0
    for kernel in kernels:
        for entry in corpus.entries(kernel.name):
            if isinstance(entry, Stored):
                if entry.finding.target != kernel.loaded.target:
                    continue  # another kernel of this name
                if entry.finding.signature.contract not in classes:
                    continue
                if entry.finding.device != device:
                    elsewhere += 1
                    continue
            elif entry.kind is ProblemKind.FORMAT:
                continue  # another version's; `kfuzz corpus check` tells of it
            found.append((kernel, entry))
    return found, elsewhere


def _replayed(kernel: KernelSearch, result: ReplayResult) -> Iterator[Event]:
    """Yield what came of one finding; keep it with its kernel if it still fails."""
    finding, path = result.finding, str(result.path)
    yield replace(result.event(), kernel=kernel.node_id)
    if finding is not None:
        kernel.watch(finding.case)
    if finding is not None and result.reproduces and result.failures:
        kernel.stored.add(finding.id)
        kernel.keep(finding, result.path)
        yield FindingSaved(kernel.node_id, finding, path, is_new=False, stage="done")


def _findings(n: int) -> str:
    return "1 stored finding" if n == 1 else f"{n} stored findings"


# The line of source that a finding comes from, asked of a child of its own.
#
# It runs on the CPU, in Triton's interpreter: a finding of a GPU that does not show
# there has no line.

SECONDS: Final = 20.0
"""Of each finding of a run at most."""
LONG_SECONDS: Final = 180.0
"""Where a person waits for one."""
# Drawn beside the minimum: the most elements of a tensor, and how many of each.
_DRAWN: Final = (1 << 12, 1 << 8, 1 << 6)
_EACH: Final = 50
INTERPRET: Final = "interpret"


def unfit(finding: Finding) -> str:
    """Return why no changed kernel can be held against a finding, "" if one can."""
    if finding.target.reference:
        return "a candidate that nobody vouches for runs in its sandbox only"
    if not finding.operator:
        return "it was seen in a program, and is no case of a bound kernel"
    if finding.case.large or not finding.case.pinned:
        return "the values of its smallest case are not explicit"
    if confirm.is_by_chance(finding.signature):
        return "chance decides whether it shows"
    if finding.signature.kind in ENDS_CHILD:
        return "it ends the process that it shows in"
    return "" if finding.state in ATTRIBUTED else f"its state is {finding.state}"


def drawn(loaded: LoadedKernel) -> list[Case]:
    """Return cases of a kernel's domain that a change is held against, of all sizes."""
    made: list[list[Case]] = []
    budget = budget_for(loaded.kernel, INTERPRET)
    for elements in _DRAWN:
        few = replace(budget, elements=min(elements, budget.elements))
        of_size: list[Case] = []
        made.append(of_size)
        with suppress(KfuzzError):  # no shape of the domain is so small
            strategy = strategy_of(loaded.kernel, few)
            if strategy is not None:
                search_round(strategy, of_size.append, cases=_EACH, seed_value=elements)
    return [case for each in zip_longest(*made) for case in each if case is not None]


def line_of(
    loaded: LoadedKernel,
    finding: Finding,
    backend: Backend,
    *,
    root: Path,
    seconds: float,
    stopped: Callable[[], bool],
    others: Sequence[Case] = (),
    repair: bool = False,
) -> Located:
    """Return the line that a finding comes from, and what mends it.

    Args:
        loaded: its kernel.
        finding: the finding, confirmed.
        backend: where Triton kernels are interpreted.
        root: the project.
        seconds: how long that may take.
        stopped: whether a signal asks to stop.
        others: further cases that a change is held against.
        repair: whether changes are returned that mend it.
    """
    end = time.monotonic() + seconds
    runner = runner_of(
        loaded, backend, root=root, quiet=lambda: True,
        expired=lambda: stopped() or time.monotonic() >= end,
    )  # fmt: skip
    with closing(runner), suppress(Stopped, KfuzzError):
        is_reduced = finding.case.elements < finding.first.elements
        first = [finding.first] if is_reduced else []
        cases = [finding.case, *first, *others, *drawn(loaded)]
        # The last call may end late, and what is known by then has to arrive.
        until = end - min(GRACE_SECONDS, seconds / 10)
        return runner.line_of(cases, finding.signature, until, repair)
    return Located(why="there was no time for it")


def located(
    kernels: Iterable[Any],
    backend: Backend,
    corpus: Corpus,
    *,
    root: Path,
    jobs: int,
    seconds: float,
    stopped: Callable[[], bool],
) -> Iterator[Event]:
    """Name the lines of what a campaign has found.

    Args:
        kernels: its searches, which get the findings as they are stored.
        backend: where it ran.
        corpus: where they are kept.
        root: the project.
        jobs: kernels whose lines are sought at once.
        seconds: how long that may take in all.
        stopped: whether a signal asks to stop.
    """

    def of_kernel(kernel: Any, findings: list[Finding]) -> Iterator[Event]:
        for finding in findings:
            fair = fair_share(end, total - next(done), jobs)
            if stopped() or fair <= 0:
                return
            line, _, why = line_of(
                kernel.loaded, finding, used, root=root, seconds=min(fair, SECONDS),
                stopped=stopped,
            )  # fmt: skip
            if why:
                yield Notice(kernel.node_id, f"no line of {finding.id}: {why}")
            if line is not None:
                yield _with_line(kernel, finding, line, corpus)

    each = [(k, [f for f in k.findings.values() if _without(f)]) for k in kernels]
    total, done = sum(len(findings) for _, findings in each), count()
    end = time.monotonic() + seconds
    own = total > 0 and not BACKENDS[backend.name].has.on_host
    used = Backend(INTERPRET, isolate="process") if own else backend
    with closing(used) if own else nullcontext():
        pieces = iter([of_kernel(*pair) for pair in each])
        yield from streamed(lambda: next(pieces, None), min(jobs, total))


def _without(finding: Finding) -> bool:
    """Whether a line is sought of a finding."""
    return not finding.line and finding.state in FAILING and not unfit(finding)


def _with_line(kernel: Any, finding: Finding, line: Line, corpus: Corpus) -> Event:
    """Keep a finding with its line, and as one with what the same change mends."""
    made, path = kept(corpus, finding, line)
    same = [
        f
        for f in kernel.findings.values()
        if f.id != made.id
        and f.state in FAILING
        and line.change
        and f.line
        and f.line.change == line.change
    ]
    if same:  # it mends both: they are one fault
        first, second = sorted((same[0], made), key=lambda f: f.severity)
        also = (*first.also, *second.signatures)
        kernel.drop(kernel.findings[second.id])
        made = replace(first, also=also)
        path = corpus.replace(second, made)
    kernel.keep(made, path)
    new = made.id not in kernel.stored
    merged = second.id if same else ""
    return FindingSaved(kernel.node_id, made, str(path), new, "done", merged)


def locate_stored(
    stored: Stored, config: ReplayConfig, *, stopped: Callable[[], bool]
) -> tuple[Stored, str]:
    """Return a stored finding with its line, stored too, or why it has none.

    Raises:
        KfuzzError: if the entry's kernel cannot be loaded.
    """
    finding = replace(stored.finding, line=None)
    if why := unfit(finding):
        return stored, why
    loaded = load_kernel(finding, config)
    with closing(Backend(INTERPRET, isolate=config.isolate)) as backend:
        found = line_of(
            loaded, finding, backend, root=config.root, seconds=LONG_SECONDS,
            stopped=stopped,
        )  # fmt: skip
    if found.line is None:
        return stored, found.why or "no change of one expression lets its case pass"
    return Stored(*kept(Corpus(config.corpus), finding, found.line)), ""


def kept(
    corpus: Corpus, finding: Finding, line: Line, patches: tuple[Patch, ...] = ()
) -> tuple[Finding, Path]:
    """Store the line of a finding, and return it as it is stored, and where."""

    def with_line(stored: Finding | None) -> Finding:
        return replace(stored or finding, line=line, patches=patches)

    made = corpus.change(finding, with_line)
    assert made is not None
    return made, corpus.root / made.folder
