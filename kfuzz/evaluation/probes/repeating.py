"""Repeats of a base run that gives cause to them: a miss, a race, a stale load."""

from collections.abc import Collection
from dataclasses import replace
from typing import Protocol

from kfuzz.contracts.classes import ATTRIBUTION
from kfuzz.contracts.evidence import Evidence
from kfuzz.contracts.judge import judge
from kfuzz.contracts.language import Probe
from kfuzz.contracts.reading import ORDERS, accesses, agree, comparable, miss_of
from kfuzz.core.verdict import Failure
from kfuzz.numerics.run import Run

# What repeats alone tell of a failure, whatever the shape.
_TOLD: frozenset[str] = frozenset(c.id for c in ATTRIBUTION if c.by_repeats)


class Repeat(Protocol):
    """Runs the case again."""

    def __call__(
        self,
        *,
        other_poison: bool = False,
        elsewhere: bool = False,
        reverse: bool = False,
        last: tuple[int, int, int] | None = None,
    ) -> Run:
        """Run it under the other poison, in other memory, or in another order."""


def with_repeats(
    evidence: Evidence, repeat: Repeat, classes: Collection[str]
) -> Evidence:
    """Return the evidence with what its base run gives cause to.

    Args:
        evidence: a case with its base run.
        repeat: runs the case again.
        classes: ids of the classes in force.
    """
    if evidence.acceptance is None or not evidence.base.comparable:
        return evidence
    missed = miss_of(evidence) is not None
    races = accesses(evidence, "race") and evidence.declaration.determinism != "none"
    if races:
        evidence = _with_orders(evidence, repeat)
        if is_told(judge(evidence, classes)[1]):
            return evidence
    if not (missed or accesses(evidence, "unwritten")):
        return evidence
    runs = dict(evidence.runs)
    if Probe.REPEAT not in runs:
        runs[Probe.REPEAT] = repeat()
    runs[Probe.OTHER_POISON] = repeat(other_poison=True)
    runs[Probe.OTHER_REPEAT] = repeat(other_poison=True)
    if missed and "K-REF-01" in classes:
        runs[Probe.ELSEWHERE] = repeat(elsewhere=True)
    return replace(evidence, runs=runs)


def is_told(failure: Failure | None) -> bool:
    """Whether a failure needs no further probe to be told from others."""
    return failure is not None and failure.contract in _TOLD


def _with_orders(evidence: Evidence, repeat: Repeat) -> Evidence:
    """Return the evidence with other orders of programs, up to one that matters."""
    race = accesses(evidence, "race")[0]
    lasts = {Probe.ONE_LAST: race.program, Probe.OTHER_LAST: race.other}
    evidence = replace(evidence, runs={**evidence.runs, Probe.REPEAT: repeat()})
    for probe in ORDERS:
        reverse = probe is Probe.REVERSED
        run = repeat(reverse=reverse, last=lasts.get(probe))
        evidence = replace(evidence, runs={**evidence.runs, probe: run})
        # A program that waits for another makes some orders impossible.
        if comparable(evidence, probe) and not agree(evidence, Probe.BASE, probe):
            break
    return evidence
