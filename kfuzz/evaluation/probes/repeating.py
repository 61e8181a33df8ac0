"""Repeats of a base run that gives cause to them: a miss, a race, a stale load."""

from collections.abc import Collection
from dataclasses import replace
from typing import Protocol

from kfuzz.contracts.classes import ATTRIBUTION
from kfuzz.contracts.judge import judge
from kfuzz.contracts.language import Probe
from kfuzz.contracts.repeats import ORDERS, accesses, agree, comparable
from kfuzz.contracts.view import View
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


def with_repeats(view: View, repeat: Repeat, classes: Collection[str]) -> View:
    """Return the view with what its base run gives cause to.

    Args:
        view: a case with its base run.
        repeat: runs the case again.
        classes: ids of the classes in force.
    """
    if view.acceptance is None or not view.base.comparable:
        return view
    missed = view.miss is not None
    races = accesses(view, "race") and view.declaration.determinism != "none"
    if races:
        view = _with_orders(view, repeat)
        if is_told(judge(view, classes)[1]):
            return view
    if not (missed or accesses(view, "unwritten")):
        return view
    runs = dict(view.runs)
    if Probe.REPEAT not in runs:
        runs[Probe.REPEAT] = repeat()
    runs[Probe.OTHER_POISON] = repeat(other_poison=True)
    runs[Probe.OTHER_REPEAT] = repeat(other_poison=True)
    if missed and "K-REF-01" in classes:
        runs[Probe.ELSEWHERE] = repeat(elsewhere=True)
    return replace(view, runs=runs)


def is_told(failure: Failure | None) -> bool:
    """Whether a failure needs no further probe to be told from others."""
    return failure is not None and failure.contract in _TOLD


def _with_orders(view: View, repeat: Repeat) -> View:
    """Return the view with other orders of programs, up to one that matters."""
    race = accesses(view, "race")[0]
    lasts = {Probe.ONE_LAST: race.program, Probe.OTHER_LAST: race.other}
    view = replace(view, runs={**view.runs, Probe.REPEAT: repeat()})
    for probe in ORDERS:
        reverse = probe is Probe.REVERSED
        run = repeat(reverse=reverse, last=lasts.get(probe))
        view = replace(view, runs={**view.runs, probe: run})
        # A program that waits for another makes some orders impossible.
        if comparable(view, probe) and not agree(view, Probe.BASE, probe):
            break
    return view
