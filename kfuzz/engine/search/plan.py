"""Which of the structures drawn runs next: what may show most per second.

What is quick runs as it is drawn. What is not waits, and shares the time with it: half
of what such structures get goes to those that promise most per second, half to those
that have waited longest, so that none is left out for being slow. One that would take
too much of the kernel's time waits until it would not.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Generic, TypeVar

from kfuzz.core.budget import Spending
from kfuzz.core.burst import Burst
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CaseReport, Verdict
from kfuzz.engine.search.costs import (
    QUICK_SECONDS,
    Costs,
    Expected,
    Traits,
    traits_of,
)
from kfuzz.engine.search.strata import Ledger, Stratum, stratum_of

T = TypeVar("T", Case, Burst)

SHARE: Final = 0.05
"""The most of a kernel's time that one case may take, unless its sizes are small."""

# Structures that wait at most.
_MOST: Final = 64
# What a draw takes, and the part of what a structure costs that is spent on looking for
# quick ones before it runs out of turn.
_DRAWING_SECONDS: Final = 0.003
_LOOKING: Final = 0.1
# Draws in a row while nothing may run, after which the cheapest does all the same.
_STUCK: Final = 64
# A compilation is given up after so many times what it was expected or allowed to take.
_PATIENCE: Final = 2.0
_QUICK, _BEST, _OLDEST = "quick", "best", "oldest"


@dataclass(eq=False)
class Waiting(Generic[T]):
    """A structure that waits.

    Attributes:
        item: a case or a batch.
        case: its structure.
        traits: what its costs depend on.
        expected: what it is expected to cost.
        version: of the costs from which that follows.
        given_up: seconds after which compiling for it was given up; 0 if it was not.
    """

    item: T
    case: Case
    traits: Traits
    expected: Expected
    version: int
    given_up: float = 0.0

    @cached_property
    def stratum(self) -> Stratum:
        """What kind of case it is."""
        return stratum_of(self.case)

    def within(self, seconds: float) -> bool:
        """Whether it may run where a structure may take so long, or is small."""
        return self.traits.small or self.expected.total <= seconds

    def review(self, costs: Costs) -> None:
        """Work out anew what it is expected to cost."""
        self.expected, self.version = costs.expected(self.traits), costs.version
        if self.given_up and not costs.compilations.is_known(self.traits):
            longer = max(self.expected.compiling, _PATIENCE * self.given_up)
            self.expected = Expected(longer, self.expected.running)


class Plan(Generic[T]):
    """The cases of one kernel that are not run as they are drawn, or its batches.

    Args:
        costs: of the kernel.
        ledger: of what its search has visited.
        limit: returns the seconds that one case may take.

    Attributes:
        waiting: in the order in which they were drawn.
    """

    def __init__(
        self, costs: Costs, ledger: Ledger, limit: Callable[[], float]
    ) -> None:
        self.waiting: list[Waiting[T]] = []
        self._costs = costs
        self._ledger = ledger
        self._limit = limit
        self._seconds = dict.fromkeys((_QUICK, _BEST, _OLDEST), 0.0)
        # What runs, and what it was counted for.
        self._running: dict[int, tuple[str, float]] = {}
        self._reviewed = -1
        # Draws since anything ran.
        self._in_vain = 0

    def is_quick(self, item: T) -> bool:
        """Whether to run what was drawn at once; else it waits from now on."""
        case, members = _structure(item)
        traits = traits_of(case, members)
        expected = self._costs.expected(traits)
        if self._costs.is_quick(traits, expected):
            self._begin(item, _QUICK, expected)
            return True
        made = Waiting(item, case, traits, expected, self._costs.version)
        self.waiting.append(made)
        self._in_vain += 1
        if len(self.waiting) > _MOST:
            self._drop()
        return False

    def due(self) -> T | None:
        """Return what has waited and is to run now, None if nothing is."""
        if not self.waiting:
            return None
        if self._reviewed != self._costs.version:
            self._review()
            for each in self.waiting:
                if self._costs.is_quick(each.traits, each.expected):
                    return self._chosen(each, _QUICK)
            self._reviewed = self._costs.version
        slow = self._seconds[_BEST] + self._seconds[_OLDEST]
        is_turn = slow <= self._seconds[_QUICK]
        if not (is_turn or self._in_vain):
            return None
        most = self._most()
        admitted = [w for w in self.waiting if w.within(most)]
        if not admitted:
            return self._cheapest() if self._in_vain >= _STUCK else None
        kind, chosen = _OLDEST, admitted[0]
        if self._seconds[_OLDEST] > self._seconds[_BEST]:
            kind, chosen = _BEST, max(admitted, key=self._worth)
        looked = self._in_vain * _DRAWING_SECONDS
        if not is_turn and looked < _LOOKING * chosen.expected.total:
            return None
        return self._chosen(chosen, kind)

    def put_off(self, item: T, seconds: float) -> None:
        """Have something wait that was given up, for it took too long to compile.

        Args:
            item: what was to run.
            seconds: after which it was given up.
        """
        self.ran(item, seconds)
        case, members = _structure(item)
        traits = traits_of(case, members)
        self._costs.take_given_up(traits, seconds)
        made = Waiting(item, case, traits, Expected(seconds, 0.0), -1, seconds)
        made.review(self._costs)
        self.waiting.append(made)

    def patience(self, item: T) -> float:
        """Return the seconds after which compiling for something is given up.

        What a case may cost is known before it runs as a guess alone: one that compiles
        for half a minute would take the time of thousands.
        """
        traits, compilations = traits_of(*_structure(item)), self._costs.compilations
        if traits.small or not compilations.measured:
            return math.inf
        expected = compilations.expected(traits)
        return _PATIENCE * max(self._limit(), compilations.ordinary, expected)

    def ran(self, item: T, seconds: float) -> None:
        """Count what something that was to run took."""
        kind, counted = self._running.pop(id(item), (_QUICK, 0.0))
        self._seconds[kind] += seconds - counted

    def _most(self) -> float:
        """Return the seconds that a structure may take, unless its sizes are small.

        Where there is little time for a kernel, ordinary compilations are not left out.
        """
        return max(self._limit(), self._costs.compilations.ordinary)

    def _drop(self) -> None:
        """Forget the newest of those that may run, or of those that may not.

        Of whichever there are more, so that neither keeps the other out.
        """
        most = self._most()
        parts: dict[bool, list[Waiting[T]]] = {True: [], False: []}
        for each in self.waiting:
            parts[each.within(most)].append(each)
        self.waiting.remove(max(parts.values(), key=len)[-1])

    def _worth(self, one: Waiting[T]) -> float:
        """Return what a structure may show per second."""
        shows = (
            self._ledger.novelty(one.stratum)
            + self._costs.compilations.is_new(one.traits) / 2
        )
        return shows / max(one.expected.total, QUICK_SECONDS / 10)

    def _cheapest(self) -> T:
        """Return what costs least, where all that is drawn costs too much."""
        least = min(self.waiting, key=lambda w: w.expected.total)
        return self._chosen(least, _OLDEST)

    def _chosen(self, one: Waiting[T], kind: str) -> T:
        self.waiting.remove(one)
        self._begin(one.item, kind, one.expected)
        return one.item

    def _begin(self, item: T, kind: str, expected: Expected) -> None:
        self._in_vain = 0
        self._running[id(item)] = kind, expected.total
        self._seconds[kind] += expected.total

    def _review(self) -> None:
        """Work out anew what the structures that wait are expected to cost."""
        for each in self.waiting:
            if each.version != self._costs.version:
                each.review(self._costs)

    def told(self) -> str:
        """Return what is tried late, in words; "" if nothing is."""
        self._review()
        most = self._most()
        late = [w for w in self.waiting if not w.within(most)]
        if not late:
            return ""
        least = min(late, key=lambda w: w.expected.total)
        if least.expected.compiling <= least.expected.running:
            return (
                f"cases of about {least.case.elements:,} elements and more are tried "
                f"late: one takes about {least.expected.running:.1f} s"
            )
        row, compilations = least.traits.row, self._costs.compilations
        if not compilations.measured:
            return ""
        return (
            f"rows above {1 << max(row - 1, 0):,} elements are tried late: compiling "
            f"for one takes about {compilations.seconds(least.traits):.1f} s"
        )


class Pace:
    """What the search of one kernel knows of its costs, and plans by them.

    Args:
        ledger: of what it has visited.
        compiles: as for `Costs`.

    Attributes:
        limit: seconds that one case may take.
        costs: what was measured of them.
        cases: those that wait.
        batches: those that wait.
    """

    def __init__(self, ledger: Ledger, *, compiles: bool) -> None:
        self.limit = math.inf
        self.costs = Costs(compiles=compiles)
        self.cases: Plan[Case] = Plan(self.costs, ledger, lambda: self.limit)
        self.batches: Plan[Burst] = Plan(self.costs, ledger, lambda: self.limit)
        # What the compiler ran for, in cases that conform.
        self._compiled: deque[Case] = deque(maxlen=_MOST)

    def take(self, case: Case, report: CaseReport, spending: Spending | None) -> None:
        """Take it that a case has run; what was compiled for it may serve more.

        Args:
            case: the case.
            report: what it showed.
            spending: what it took; None where that is unknown.
        """
        conforms = report.verdicts.get("K-VAL-01") is Verdict.CONFORMS
        if conforms and spending is not None and spending.compiling > QUICK_SECONDS:
            self._compiled.append(case)

    def compiled(self) -> Iterator[Case]:
        """Yield each structure once for which a case has waited for a compilation.

        Many more inputs of it can run for a fraction of what that took.
        """
        while self._compiled:
            yield self._compiled.popleft()

    def told(self) -> str:
        """Return what is tried late, in words; "" if nothing is."""
        return self.cases.told() or self.batches.told()


def _structure(item: Case | Burst) -> tuple[Case, int]:
    """Return the structure of a case or a batch, and how many calls it makes."""
    if isinstance(item, Burst):
        return item.case, max(item.members, 2)
    return item, 1
