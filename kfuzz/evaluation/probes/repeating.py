"""What a base run gives cause to: repeats, and a diagnosis of a miss."""

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from kfuzz.contracts.classes import ATTRIBUTION
from kfuzz.contracts.evidence import Evidence
from kfuzz.contracts.judge import judge
from kfuzz.contracts.language import Probe
from kfuzz.contracts.reading import ORDERS, accesses, agree, comparable, miss_of
from kfuzz.core.verdict import Failure, Verdict
from kfuzz.evaluation.case_calls import CaseCalls, Step
from kfuzz.evaluation.other_declarations import judge_explained
from kfuzz.evaluation.probes import under_load
from kfuzz.execution.calls.run import Manner
from kfuzz.execution.memory.poison import Poison

# What repeats alone tell of a failure, whatever the shape.
_TOLD: frozenset[str] = frozenset(c.id for c in ATTRIBUTION if c.by_repeats)


def with_repeats(evidence: Evidence, calls: CaseCalls) -> Evidence:
    """Return the evidence with what its base run gives cause to."""
    if evidence.acceptance is None or not evidence.base.comparable:
        return evidence
    missed = miss_of(evidence) is not None
    races = accesses(evidence, "race") and evidence.declaration.determinism != "none"
    if races:
        evidence = _with_orders(evidence, calls)
        if _is_told(judge(evidence, calls.classes)[1]):
            return evidence
    if not (missed or accesses(evidence, "unwritten")):
        return evidence
    runs = dict(evidence.runs)
    other = Poison.NAN if calls.poison is Poison.FINITE else Poison.FINITE
    if Probe.REPEAT not in runs:
        runs[Probe.REPEAT] = calls.again(evidence)
    runs[Probe.OTHER_POISON] = calls.again(evidence, poison=other)
    runs[Probe.OTHER_REPEAT] = calls.again(evidence, poison=other)
    if missed and calls.asks(Probe.ELSEWHERE):
        runs[Probe.ELSEWHERE] = calls.again(evidence, elsewhere=True)
    return replace(evidence, runs=runs)


def _is_told(failure: Failure | None) -> bool:
    """Whether a failure needs no further probe to be told from others."""
    return failure is not None and failure.contract in _TOLD


def _with_orders(evidence: Evidence, calls: CaseCalls) -> Evidence:
    """Return the evidence with other orders of programs, up to one that matters."""
    race = accesses(evidence, "race")[0]
    lasts = {Probe.ONE_LAST: race.program, Probe.OTHER_LAST: race.other}
    evidence = evidence.running({Probe.REPEAT: calls.again(evidence)})
    for probe in ORDERS:
        reverse = probe is Probe.REVERSED
        manner = Manner(reverse=reverse, last=lasts.get(probe))
        evidence = evidence.running({probe: calls.again(evidence, manner=manner)})
        # A program that waits for another makes some orders impossible.
        if comparable(evidence, probe) and not agree(evidence, Probe.BASE, probe):
            break
    return evidence


def _repeated(evidence: Evidence, calls: CaseCalls) -> Evidence:
    return under_load.ON_MISS(with_repeats(evidence, calls), calls)


STEP: Final = Step(
    (
        Probe.REPEAT,
        Probe.OTHER_POISON,
        Probe.OTHER_REPEAT,
        Probe.ELSEWHERE,
        *ORDERS,
        *under_load.ON_MISS.probes,
    ),
    _repeated,
    always=True,
)


def judge_repeated(
    evidence: Evidence,
    calls: CaseCalls,
    classes: Collection[str],
    *,
    repeat: bool = True,
    diagnose: bool = True,
) -> tuple[Evidence, dict[str, Verdict], Failure | None]:
    """Judge a case by its base run and what this gives cause to.

    Args:
        evidence: of the case, with its base run.
        calls: makes its further calls.
        classes: ids of the classes that judge it.
        repeat: whether to make repeats.
        diagnose: whether to find out what a miss depends on, where repeats do not
            tell; it is found out, too, where nothing is charged without.

    Returns:
        The evidence with all that was found; verdict per class; the failure.

    Raises:
        BindingError: if the operator's oracle or error model is malformed.
    """
    if repeat:
        evidence = STEP(evidence, calls)
    judged = judge_explained(evidence, classes)
    evidence, _, failure = judged
    # Where no class in force takes every miss, its cause says whether one takes this.
    diagnose = diagnose or failure is None
    if not diagnose or miss_of(evidence) is None or _is_told(failure):
        return judged
    diagnosis = calls.diagnosis
    return judge_explained(
        diagnosis.of(evidence, calls.derived),
        classes,
        diagnosis.arithmetic(calls.derived).of,
    )
