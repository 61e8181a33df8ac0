"""A wrong result that was recorded and need not show again: `witnessed`.

Its inputs and what came back for them are known as bytes, and no rounding explains the
miss. A fresh process that is right about the same inputs then proves one thing more:
the result depends on something else than they.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from kfuzz.contracts.classes import CLASSES, LATER
from kfuzz.contracts.operator import Operator
from kfuzz.core.budget import Depth
from kfuzz.core.errors import HarnessError
from kfuzz.core.finding import Explanation, Finding, Reduction, contract_of
from kfuzz.core.recipe import NOWHERE, Case
from kfuzz.core.verdict import VALUE_KINDS, CaseReport, Failure, Kind, Signature, State
from kfuzz.engine.explain import Outcome, explain, is_tiled, offset_lines
from kfuzz.engine.reduce import Spent, kept, reduce_case
from kfuzz.engine.workers.jobs import Stopped
from kfuzz.engine.workers.runner import (
    ENDS_CHILD,
    Runner,
    is_beside_page,
    is_fault,
    is_flush,
)
from kfuzz.execution.values.fills import HOST, in_domain, pinned, refitted
from kfuzz.execution.values.items import is_shared
from kfuzz.store.life import enter
from kfuzz.strategies.parameters import ScalarParameter, may_be_drawn

DETERMINISM: Final = "C-ORD-02"
"""What is broken where the same inputs gave a right result at another time."""

_IN_BYTES: Final = frozenset(
    {
        Kind.VALUE, Kind.NAN_MISSING, Kind.NAN_UNEXPECTED, Kind.INF_MISSING,
        Kind.INF_UNEXPECTED, Kind.INF_SIGN, Kind.UNWRITTEN, Kind.STALE_RESULT,
        Kind.INPUT_MODIFIED, Kind.WRITE_OUTSIDE, Kind.ALIASES_INPUT,
        Kind.ALIASES_OUTPUT, Kind.WRONG_TYPE, Kind.WRONG_SHAPE, Kind.WRONG_DTYPE,
        Kind.WRONG_DEVICE,
    }
)  # fmt: skip
# Changed after its call had returned: the two readings are the record.
_LATE: Final = "late"
# Once may be the machine's doing; what two processes show is the kernel's.
_SEEN_TWICE: Final = frozenset({Kind.RAISES, Kind.CRASH, Kind.OVERLAP_DEPENDENT})


def recorded(
    finding: Finding, *, right: str = "", again: bool = False
) -> Finding | None:
    """Return a finding that does not reproduce as witnessed; None if nothing proves it.

    Args:
        finding: as it was found.
        right: in how many fresh processes the same inputs failed, in words; "" where
            none was asked.
        again: whether it showed in one of them at least, or more than once before.
    """
    failure, kind = finding.failure, finding.failure.kind
    # Results that follow a seed are a record where one of them is wrong.
    in_bytes = kind in _IN_BYTES or (
        kind is Kind.SEED_DEPENDENT and failure.got is not None
    )
    proven = in_bytes or failure.detail == _LATE
    if not (proven or (again and kind in _SEEN_TWICE)):
        return None
    if not right:
        note = "recorded as it was found; the run ended before it was asked for again"
        return enter(finding, State.WITNESSED, note)
    if in_bytes and kind is not Kind.STALE_RESULT:
        what = f"right on the same input at another time: {failure.message}"
        failure = replace(
            failure, contract=DETERMINISM, kind=Kind.NONDETERMINISTIC, message=what,
            cause="",
        )  # fmt: skip
    finding = replace(
        finding, failure=failure, signature=failure.signature(finding.signature.kernel)
    )
    return enter(finding, State.WITNESSED, f"recorded as it was found; {right}")


# Details of K-GRD-01: how gradients are asked for.
_WAYS: Final = ("alone", "twice", "later", "again", "overwritten")

# The life of a finding within a run: confirm, reduce, confirm, explain.

# A contract that is confirmed by `reproduces` means runs in fresh children.
CONFIRMATIONS: Final = 3
# What follows from chance is `witnessed`: it shows in so many of at most so many.
WITNESSES: Final = 2
WITNESS_CHILDREN: Final = 20
# Children that get ready on a device while others are asked, where each question
# takes a fresh one, or may end the one that stays.
AHEAD: Final = 3
# The class of what is right in parts of a large case by themselves.
_BY_SHAPE: Final = "C-CMP-03"
# A case that takes longer is made small before fresh children are asked.
SLOW_SECONDS: Final = 1.0
# Elements of a case that fails and is held against what is found of the minimum.
SMALL: Final = 1 << 11
# Given to tell the classes apart, and to explain, however long reducing took.
LEAST_SECONDS: Final = 1.0
UNLIKE: Final = (
    "did not fail in every fresh process: not in the one that was to explain it"
)
LARGE: Final = "a large case is kept as it was found"

# Kinds in which what a child called before may have a part.
_OF_HISTORY: Final = frozenset({Kind.STALE_RESULT, Kind.ALIASES_OUTPUT})


@dataclass(frozen=True)
class Confirmation:
    """What repeating a case in fresh children showed.

    Attributes:
        state: CONFIRMED, FLAKY or UNREPRODUCED.
        failure: the failure as attributed now, None if it did not show.
        note: in how many children it showed.
        instead: a failure by chance, for what calls leave behind, or of another way to
            ask for gradients, that showed in place of the one looked for.
    """

    state: State
    failure: Failure | None
    note: str = ""
    instead: Failure | None = None


def confirm(runner: Runner, case: Case, signature: Signature) -> Confirmation:
    """Run a case in fresh children and compare the symptom.

    The classes are told apart afterwards, see `Runner.diagnose`: that takes many calls,
    and a confirmation few. Where they are not, a verdict alone is wanted, which one
    child confirms: what it shows was seen twice.
    """
    if is_by_chance(signature):
        return _witnessed(runner, case, signature)
    later = runner.distinguishes or signature.kind in LATER
    depth = Depth.SEARCH if later else Depth.BASE
    enough = CONFIRMATIONS if runner.distinguishes else 1
    reports = runner.judge_fresh(case, [depth] * enough)
    if enough < CONFIRMATIONS and not reports[0].shows(signature):
        reports += runner.judge_fresh(case, [depth] * (CONFIRMATIONS - enough))
    same = [r for r in reports if r.shows(signature)]
    note = f"{len(same)} of {len(reports)} fresh processes"
    if len(same) == len(reports):
        return Confirmation(State.CONFIRMED, same[0].failure, note=note)
    failures = [r.failure for r in reports if r.failure is not None]
    if same:  # what shows at times is not another way
        failures = [f for f in failures if not takes_way(f)]
    return Confirmation(
        State.FLAKY if same else State.UNREPRODUCED,
        same[0].failure if same else None,
        note=note,
        instead=next(filter(_is_deeper, failures), None),
    )


def _is_deeper(failure: Failure) -> bool:
    """Whether a failure may have shown as another one where the case was found."""
    by_chance = failure.kind in CLASSES[failure.contract].by_chance
    return by_chance or failure.kind is Kind.STALE_RESULT or takes_way(failure)


def _witnessed(runner: Runner, case: Case, signature: Signature) -> Confirmation:
    """Run a case in pairs of fresh children until chance has shown it often enough."""
    same: list[CaseReport] = []
    tried = 0
    while tried < WITNESS_CHILDREN and len(same) < WITNESSES:
        reports = runner.judge_fresh(case, [Depth.FULL, Depth.FULL])
        tried += len(reports)
        same += [r for r in reports if r.shows(signature)]
    note = f"{len(same)} of {tried} fresh processes"
    if len(same) >= WITNESSES:
        first = same[0]
        return Confirmation(State.CONFIRMED, first.failure, note)
    state = State.FLAKY if same else State.UNREPRODUCED
    return Confirmation(state, same[0].failure if same else None, note=note)


def is_by_chance(signature: Signature) -> bool:
    """Whether chance decides if a fault of this kind shows."""
    return signature.kind in CLASSES[signature.contract].by_chance


def process(
    runner: Runner,
    finding: Finding,
    *,
    seconds: Callable[[], float],
    stopped: Callable[[], bool],
    save: Callable[[Finding], Finding],
    confirmed: bool = False,
) -> Finding:
    """Take a new finding to its minimum and explain it.

    Args:
        runner: of its kernel.
        finding: as first found, pinned; already saved.
        seconds: how long reduction and explanation may still take, asked as they
            begin; with none it stays as found.
        stopped: whether a signal asks to stop.
        save: stores the finding in place of the last one and returns it.
        confirmed: whether that was done before, and the rest is to be.

    Returns:
        The finding with its state, minimum and explanation.
    """
    hangs = finding.signature.kind is Kind.HANG
    if hangs or confirmed:
        # The runner calls nothing a hang that two fresh children did not show.
        first = Confirmation(State.CONFIRMED, finding.failure)
    else:
        finding = _located(runner, finding, save)
        finding, first = _confirmed(runner, finding, seconds(), stopped, save)
        if first.state is not State.CONFIRMED and first.instead is not None:
            # Found as a wrong value; it is wrong at times only, or after other calls.
            # Of gradients a case of the search is asked for fewer.
            signature = first.instead.signature(finding.signature.kernel)
            finding = replace(finding, signature=signature, failure=first.instead)
            first = confirm(runner, finding.case, signature)
    if first.state is not State.CONFIRMED or first.failure is None:
        return save(_unconfirmed(runner, finding, first))
    if not confirmed:
        note = "2 of 2 fresh processes" if hangs else first.note
        finding = enter(finding, State.CONFIRMED, note)
        if is_by_chance(finding.signature):
            finding = _attributed(finding, first.failure)
        finding = save(finding)
    allowed = seconds()
    deadline = time.monotonic() + allowed
    # Where its values are not at hand each run takes seconds.
    if finding.case.large or not finding.case.pinned:
        told = None
        if allowed > 0:
            told = _distinguished(runner, finding, math.inf)
        if told is not None and told.failure is not None:
            finding = _attributed(finding, told.failure)
        return save(_as_found(finding, LARGE))
    if allowed <= 0:
        return save(_as_found(finding, "time"))
    runner.hanging = hangs
    if is_beside_page(finding):
        runner.fault = first.failure
    try:
        return _minimise(runner, finding, first, deadline, stopped, save)
    finally:
        runner.hanging = False
        runner.fault = None


def _confirmed(
    runner: Runner,
    finding: Finding,
    seconds: float,
    stopped: Callable[[], bool],
    save: Callable[[Finding], Finding],
) -> tuple[Finding, Confirmation]:
    """Confirm a finding, of a case that takes long at smaller sizes, if that shows it.

    Returns:
        The finding, and what fresh children show of it.
    """
    signature, large = finding.signature, finding.case.large or not finding.case.pinned
    slow = runner.predicted > SLOW_SECONDS and not large
    if slow and not is_by_chance(signature) and not is_beside_page(finding):
        shown = _Shown(runner, signature, stopped, takes_way(finding.failure))
        small, _ = _reduced(shown, finding.case, time.monotonic() + seconds)
        smaller = save(replace(finding, case=small))
        first = confirm(runner, small, signature)
        if first.state is State.CONFIRMED and first.failure is not None:
            return _attributed(smaller, first.failure), first
        if small == finding.case:
            return finding, first
    return finding, confirm(runner, finding.case, signature)


def _reduced(shown: "_Shown", case: Case, deadline: float) -> tuple[Case, Reduction]:
    """Return the smallest case that shows alike, and how it was reached."""
    runner, kind = shown.runner, shown.signature.kind
    runner.sought = kind if kind in LATER else None
    try:
        return reduce_case(
            case,
            shown.fails,
            domain_of(runner, case),
            deadline=deadline,
            fitted=partial(fitted, runner.loaded.kernel.operator),
        )
    finally:
        runner.sought = None  # what an explanation says to pass conforms throughout


def _unconfirmed(runner: Runner, finding: Finding, tried: Confirmation) -> Finding:
    """Return a finding that fresh children did not all show."""
    note = f"did not fail in every fresh process: {tried.note}"
    if runner.records_count:
        again = tried.state is State.FLAKY or runner.seen_often(finding.failure)
        told = recorded(finding, right=note, again=again)
        if told is not None:
            return told
    return enter(finding, tried.state, note)


def _located(
    runner: Runner, finding: Finding, save: Callable[[Finding], Finding]
) -> Finding:
    """Return a finding that died of a fault as what it is beside a fence, saved."""
    if not is_fault(CaseReport({}, failure=finding.failure)):
        return finding
    found = runner.locate(finding.case)
    if found is None:
        return finding
    case, failure = found
    # The rest of the case stays what it was, beside that one fence.
    return save(
        replace(
            finding,
            case=replace(finding.case, edge=case.edge),
            failure=replace(failure, trace=finding.failure.trace),
            signature=failure.signature(finding.signature.kernel),
        )
    )


def _distinguished(
    runner: Runner, finding: Finding, deadline: float, *, sizes: bool = True
) -> CaseReport | None:
    """Return what tells which class a confirmed finding breaks.

    Args:
        runner: of its kernel.
        finding: confirmed.
        deadline: `time.monotonic()` after which nothing is asked; a second is given in
            any case.
        sizes: whether these may be why it fails.

    Returns:
        A report with the failure, none in it where another one or none showed; None
        where nothing came in time.
    """
    signature = finding.signature
    ends = signature.kind in ENDS_CHILD or is_beside_page(finding)
    if ends or is_by_chance(signature):
        return CaseReport({}, failure=finding.failure)
    left = max(deadline - time.monotonic(), LEAST_SECONDS)
    fresh = not finding.case.large
    told = runner.diagnose(finding.case, left, fresh=fresh, sizes=sizes)
    if told is None or told.error or told.unsupported:
        return None
    return told if told.shows(signature) else replace(told, failure=None)


def _as_found(finding: Finding, why: str) -> Finding:
    """Return a finding that is neither reduced nor explained."""
    kept = replace(finding, reduction=Reduction(0, why))
    alone = finding.case.large and finding.signature.contract == _BY_SHAPE
    lines = offset_lines(kept, apart=alone)
    return replace(kept, explanation=Explanation(lines=lines, complete=False))


def _minimise(
    runner: Runner,
    finding: Finding,
    first: Confirmation,
    deadline: float,
    stopped: Callable[[], bool],
    save: Callable[[Finding], Finding],
) -> Finding:
    kernel = runner.loaded.kernel
    signature = finding.signature
    if signature.kind is not Kind.HANG:
        runner.prepare(CONFIRMATIONS + 1)  # and one that tells the classes apart
    shown = _Shown(runner, signature, stopped, takes_way(finding.failure))
    shown.failing.append(finding.case)
    minimum, reduction = _reduced(shown, finding.case, deadline)
    is_reduced = minimum != finding.case or finding.reduction is not None
    if minimum.destinations:
        minimum = runner.pin(minimum)  # their shapes followed those of the arguments
    if minimum != finding.case:
        settled = confirm(runner, minimum, signature)
        if settled.state is State.CONFIRMED and settled.failure is not None:
            finding = _attributed(replace(finding, case=minimum), settled.failure)
            # What follows only explains it, and may be cut short.
            finding = save(replace(finding, reduction=reduction))
        else:
            # Keep what is known to reproduce rather than a smaller guess.
            reduction = replace(reduction, stopped="the minimum did not reproduce")
    finding = replace(finding, reduction=reduction)
    # What shows at whole tiles is no matter of size.
    sizes = not any(map(is_tiled, shown.failing))
    told = _distinguished(runner, finding, deadline, sizes=sizes)
    if told is not None and told.failure is None:
        state = State.WITNESSED if runner.records_count else State.FLAKY
        return save(enter(finding, state, UNLIKE))
    if told is not None and told.failure is not None:
        finding = _attributed(finding, told.failure)
    if stopped() or told is None:
        return save(replace(finding, explanation=Explanation(complete=False)))
    accepts, operator = domain_of(runner, finding.case), kernel.operator

    def outcome(case: Case) -> Outcome:
        made = fitted(operator, case)
        return shown.outcome(made) if accepts(made) else Outcome.UNKNOWN

    explained = explain(
        finding.case,
        outcome,
        dtypes=kernel.declaration.dtypes,
        deadline=max(deadline, time.monotonic() + LEAST_SECONDS),
        failing=shown.failing,
        exact=signature.kind not in VALUE_KINDS,
        few=shown.takes_children,
        settled=operator.settled,
        scalars={
            name: dict.fromkeys((p.default, *p.domain))
            for name, p in operator.inputs.items()
            if type(p) is ScalarParameter
        },
    )
    # Nearer strides come first in a reduction: those that stayed far are needed.
    offsets = offset_lines(finding, apart=reduction.stopped == "minimal")
    drifted = _other_cause(runner, finding, deadline) if is_reduced else ()
    lines = (*drifted, *offsets, *explained.lines)
    return save(replace(finding, explanation=replace(explained, lines=lines)))


def _class_of(failure: Failure) -> str:
    """Return the class that a failure breaks; of a gradient the one it names."""
    return contract_of(failure.signature(""), failure.message)


def _other_cause(runner: Runner, finding: Finding, deadline: float) -> tuple[str, ...]:
    """Return that the input as first found has another cause than the minimum, if so.

    A reduction keeps the symptom, not the cause: it may end at another fault.
    """
    now, left = finding.failure, deadline - time.monotonic()
    if not CLASSES[now.contract].provisional:
        return ()
    told = runner.diagnose(finding.first, max(left, LEAST_SECONDS), fresh=True)
    if told is None or told.failure is None or not told.shows(finding.signature):
        return ()
    before = told.failure
    classes = {_class_of(before), _class_of(now)}
    if len(classes) == 1 or _BY_SHAPE in classes:
        return ()  # whether it is a matter of shape the minimum shows best
    return (
        f"shrinking changed the failure: it was found as {_caused(before)}, and the "
        f"smallest input shows {_caused(now)}",
    )


def _caused(failure: Failure) -> str:
    return f"{failure.contract}" + (f" ({failure.cause})" if failure.cause else "")


def domain_of(runner: Runner, found: Case) -> Callable[[Case], bool]:
    """Return whether what is made of a case may be judged in its place.

    Of a case that strategies may draw only others that they may draw: for the rest the
    kernel promises nothing. A live call, or what a file makes, may be none of these.
    """
    kernel = runner.loaded.kernel
    drawn = partial(may_be_drawn, kernel.operator.inputs, kernel.declaration)
    if not drawn(found):
        return runner.accepts
    return lambda case: (
        runner.accepts(case)
        and drawn(case)
        and all(in_domain(case, name) for name in case.tensors)
    )


@dataclass(frozen=True)
class _Shown:
    """Whether cases show the symptom of a finding that is being reduced.

    Attributes:
        runner: of its kernel.
        signature: with the symptom.
        stopped: whether a signal asks to stop.
        deep: whether the base probe alone does not show it, whatever its kind.
        failing: cases that show it, but for larger ones.
    """

    runner: Runner
    signature: Signature
    stopped: Callable[[], bool]
    deep: bool
    failing: list[Case] = field(default_factory=list)

    def outcome(self, case: Case) -> Outcome:
        """Return what the kernel does on a case."""
        if self.stopped():
            return Outcome.UNKNOWN
        if self.takes_children:
            self.runner.prepare(AHEAD)
        if self.signature.kind in _OF_HISTORY:
            # What a child called before may be why: a minimum has to fail alone.
            [report] = self.runner.judge_fresh(case, [self._depth])
        else:
            report = self.runner.judge(case, self._depth)
        return self._outcome_of(case, report)

    def fails(self, case: Case) -> bool:
        """Whether a case shows the symptom.

        Raises:
            Spent: once the runner's time is over.
        """
        try:
            shows = self.outcome(case) is Outcome.FAILS
        except Stopped:
            raise Spent("time") from None
        if shows and case.elements <= SMALL:
            self.failing.append(case)
        return shows

    @property
    def takes_children(self) -> bool:
        """Whether a candidate takes a fresh child, or may end the one that stays."""
        of_child = _OF_HISTORY | ENDS_CHILD
        return self.signature.kind in of_child or self.runner.fault is not None

    @property
    def _depth(self) -> Depth:
        later = self.deep or self.signature.kind in LATER
        return Depth.SEARCH if later else Depth.BASE

    def _outcome_of(self, case: Case, report: CaseReport) -> Outcome:
        if report.error or report.unsupported or report.refusal:
            return Outcome.UNKNOWN
        fault = self.runner.fault
        if fault and not report.failure and not _is_flush(self.runner, case):
            return Outcome.UNKNOWN
        if report.failure is None:
            return Outcome.PASSES
        return Outcome.FAILS if report.shows(self.signature) else Outcome.OTHERWISE


def takes_way(failure: Failure) -> bool:
    """Whether gradients are wrong only where autograd is asked in another way."""
    return failure.contract == "K-GRD-01" and failure.detail in _WAYS


def _is_flush(runner: Runner, case: Case) -> bool:
    """Whether a case without a fault says that nothing is touched outside."""
    alignment = runner.loaded.kernel.declaration.alignment
    if case.destinations:
        case = runner.pin(case)
    return case.edge in (None, NOWHERE) or is_flush(case, alignment)


def _attributed(finding: Finding, failure: Failure) -> Finding:
    """Return the finding under the contract that the failure breaks now."""
    signature = failure.signature(finding.signature.kernel)
    if signature.symptom != finding.signature.symptom:
        raise HarnessError("a confirmation changed the symptom")
    # A smaller case may be nearer than the one that was found.
    near = failure.near and finding.failure.near
    failure = replace(failure, near=near)
    return replace(finding, failure=failure, signature=signature)


def fitted(operator: Operator, case: Case) -> Case:
    """Return a pinned case with what follows from its sizes and values.

    Dimensions that the shape class computes get smaller with those that they follow
    from, values are put back into their domains, and scalars are what follows.
    """
    for axis, n in operator.settled(case.dims, case).items():
        if 0 < n < case.dims[axis]:
            case = kept(case, axis, range(n))
    case = refitted(case)
    values = {n: pinned(s, HOST) for n, s in case.tensors.items() if is_shared(s)}
    return replace(case, scalars={**case.scalars, **operator.following(case, values)})
