"""The life of a finding within a run: confirm, reduce, confirm, explain."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from kfuzz.contracts.classes import CLASSES
from kfuzz.core.errors import HarnessError
from kfuzz.core.finding import Change, Explanation, Finding, Reduction
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CaseReport, Failure, Kind, Signature, State
from kfuzz.engine.explain import explain
from kfuzz.engine.faults import is_beside_page, is_flush
from kfuzz.engine.reduce import reduce_case
from kfuzz.engine.runner import Runner

# A contract that is confirmed by `reproduces` means runs in fresh children.
CONFIRMATIONS: Final = 3
# What follows from chance is `witnessed`: it shows in so many of at most so many.
WITNESSES: Final = 2
WITNESS_CHILDREN: Final = 20
LARGE: Final = "a large case is kept as it was found"
BASE: Final = "base"
SEARCH: Final = "search"
FULL: Final = "full"

# Kinds in which what a child called before may have a part.
_OF_HISTORY: Final = frozenset({Kind.STALE_RESULT, Kind.ALIASES_OUTPUT})
# Kinds that one call does not show: they need the other poison, the programs in
# reverse order, a second call, other batches, calls at once, an
# autotuner that measures, or changed data.
_BEYOND_BASE: Final = _OF_HISTORY | {
    Kind.SEED_DEPENDENT,
    Kind.UNWRITTEN,
    Kind.RACE,
    Kind.NONDETERMINISTIC,
    Kind.BATCH_DEPENDENT,
    Kind.OVERLAP_DEPENDENT,
    Kind.TUNING_DEPENDENT,
    Kind.SCALE_DEPENDENT,
    Kind.ORDER_DEPENDENT,
}


@dataclass(frozen=True)
class Confirmation:
    """What repeating a case in fresh children showed.

    Attributes:
        state: CONFIRMED, FLAKY or UNREPRODUCED.
        failure: the failure as attributed now, None if it did not show.
        friendly: whether it vanishes at friendly shapes, where probed.
        note: in how many children it showed.
        instead: a failure by chance that showed in place of the one looked for.
    """

    state: State
    failure: Failure | None
    friendly: str | None = None
    note: str = ""
    instead: Failure | None = None


def confirm(runner: Runner, case: Case, signature: Signature) -> Confirmation:
    """Run a case in fresh children and compare the symptom."""
    if _is_by_chance(signature):
        return _witnessed(runner, case, signature)
    depths = [FULL, *[SEARCH] * (CONFIRMATIONS - 1)]
    reports = runner.judge_fresh(case, depths)
    same = [r for r in reports if shows(r, signature)]
    note = f"{len(same)} of {len(reports)} fresh children"
    if len(same) == len(reports):
        # The first child told the classes apart.
        first = same[0]
        return Confirmation(State.CONFIRMED, first.failure, first.friendly, note)
    failures = [r.failure for r in reports if r.failure is not None]
    return Confirmation(
        State.FLAKY if same else State.UNREPRODUCED,
        same[0].failure if same else None,
        note=note,
        instead=next(
            (f for f in failures if _is_by_chance(f.signature(signature.kernel))), None
        ),
    )


def _witnessed(runner: Runner, case: Case, signature: Signature) -> Confirmation:
    """Run a case in pairs of fresh children until chance has shown it often enough."""
    same: list[CaseReport] = []
    tried = 0
    while tried < WITNESS_CHILDREN and len(same) < WITNESSES:
        reports = runner.judge_fresh(case, [FULL, FULL])
        tried += len(reports)
        same += [r for r in reports if shows(r, signature)]
    note = f"{len(same)} of {tried} fresh children"
    if len(same) >= WITNESSES:
        first = same[0]
        return Confirmation(State.CONFIRMED, first.failure, first.friendly, note)
    state = State.FLAKY if same else State.UNREPRODUCED
    return Confirmation(state, same[0].failure if same else None, note=note)


def _is_by_chance(signature: Signature) -> bool:
    """Whether chance decides if a fault of this kind shows."""
    protocol = CLASSES[signature.contract].protocol
    return signature.kind in protocol.by_chance


def shows(report: CaseReport, signature: Signature) -> bool:
    """Whether a report shows a signature's symptom."""
    failure = report.failure
    if failure is None:
        return False
    return failure.signature(signature.kernel).symptom == signature.symptom


def process(
    runner: Runner,
    finding: Finding,
    *,
    seconds: Callable[[], float],
    stopped: Callable[[], bool],
    save: Callable[[Finding], Finding],
) -> Finding:
    """Take a new finding to its minimum and explain it.

    Args:
        runner: of its kernel.
        finding: as first found, pinned; already saved.
        seconds: how long reduction and explanation may take, asked once the
            finding is confirmed.
        stopped: whether a signal asks to stop.
        save: stores the finding in place of the last one and returns it.

    Returns:
        The finding with its state, minimum and explanation.
    """
    hangs = finding.signature.kind is Kind.HANG
    if hangs:
        # The runner calls nothing a hang that two fresh children did not show.
        first = Confirmation(State.CONFIRMED, finding.failure)
    else:
        first = confirm(runner, finding.case, finding.signature)
        if first.state is not State.CONFIRMED and first.instead is not None:
            # Found as a wrong value; it is wrong at times only.
            signature = first.instead.signature(finding.signature.kernel)
            finding = replace(finding, signature=signature, failure=first.instead)
            first = confirm(runner, finding.case, signature)
    if first.state is not State.CONFIRMED or first.failure is None:
        note = f"did not fail in every fresh child: {first.note}"
        return save(enter(finding, first.state, note))
    note = "2 of 2 fresh children" if hangs else first.note
    finding = enter(finding, State.CONFIRMED, note)
    finding = save(_charged(finding, first.failure))
    if finding.case.large:  # its values are not at hand, and each run takes seconds
        kept = replace(finding, reduction=Reduction(0, LARGE))
        return save(replace(kept, explanation=Explanation(complete=False)))
    deadline = time.monotonic() + seconds()
    runner.hanging = hangs
    if is_beside_page(finding):
        runner.fault = first.failure
    try:
        return _minimise(runner, finding, first, deadline, stopped, save)
    finally:
        runner.hanging = False
        runner.fault = None


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
    depth = SEARCH if signature.kind in _BEYOND_BASE else BASE

    def fails(case: Case) -> bool | None:
        if stopped():
            return None
        if signature.kind in _OF_HISTORY:
            # What a child called before may be why: a minimum has to fail alone.
            [report] = runner.judge_fresh(case, [depth])
        else:
            report = runner.judge(case, depth)
        if report.error or report.unsupported or report.refusal:
            return None
        if runner.fault and not report.failure and not _is_flush(runner, case):
            return None
        return shows(report, signature)

    minimum, reduction = reduce_case(
        finding.case,
        lambda case: bool(fails(case)),
        lambda case: kernel.operator.admits(case, kernel.declaration),
        deadline=deadline,
    )
    settled = first
    if minimum.destinations:
        minimum = runner.pin(minimum)  # their shapes followed those of the arguments
    if minimum != finding.case:
        settled = confirm(runner, minimum, signature)
        if settled.state is State.CONFIRMED and settled.failure is not None:
            reduced = replace(finding, case=minimum, reduction=reduction)
            finding = _charged(reduced, settled.failure)
        else:
            # Keep what is known to reproduce rather than a smaller guess.
            settled = first
            kept = Reduction(reduction.evaluations, "the minimum did not reproduce")
            finding = replace(finding, reduction=kept)
    else:
        finding = replace(finding, reduction=reduction)
    if stopped():
        return save(replace(finding, explanation=Explanation(complete=False)))
    explained = explain(
        finding.case,
        lambda case: (
            fails(case) if kernel.operator.admits(case, kernel.declaration) else None
        ),
        dtypes=kernel.declaration.dtypes,
        friendly=settled.friendly,
        deadline=max(deadline, time.monotonic() + 1.0),
    )
    return save(replace(finding, explanation=explained))


def _is_flush(runner: Runner, case: Case) -> bool:
    """Whether a case without a fault says that nothing is touched outside."""
    alignment = runner.loaded.kernel.declaration.alignment
    if case.destinations:
        case = runner.pin(case)
    return case.edge is None or is_flush(case, alignment)


def enter(finding: Finding, state: State, note: str = "") -> Finding:
    """Return the finding in a state, with the change in its history."""
    when = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    change = Change(state, when, note)
    return replace(finding, state=state, history=(*finding.history, change))


def _charged(finding: Finding, failure: Failure) -> Finding:
    """Return the finding under the contract that the failure breaks now."""
    signature = failure.signature(finding.signature.kernel)
    if signature.symptom != finding.signature.symptom:
        raise HarnessError("a confirmation changed the symptom")
    return replace(finding, failure=failure, signature=signature)
