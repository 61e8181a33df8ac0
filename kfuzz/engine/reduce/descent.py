"""The state of one reduction: the smallest failing case so far, and what was tried.

Candidates go out several at a time; what comes back is the first of them that fails
alike, as if they were judged one after the other.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

from kfuzz.core.finding import case_key, short_hash
from kfuzz.core.recipe import Case

# Most reductions need fewer than 200; a kernel that fails at random needs a stop.
MAX_EVALUATIONS: Final = 1500
# The first request of a series holds so many candidates, each further one twice as
# many: what is made behind the one that fails is made in vain.
FIRST_TOGETHER: Final = 2
# Most candidates of a request, and the elements and seconds that they may take
# together: between two requests a reduction looks at the clock.
MOST_TOGETHER: Final = 32
ELEMENTS_TOGETHER: Final = 1 << 18
SECONDS_TOGETHER: Final = 0.5

FirstFailing = Callable[[Sequence[Case]], int | None]
"""Judges cases in order; the place of the first that shows the symptom, or None."""
Admits = Callable[[Case], bool]
Fitted = Callable[[Case], Case]

_Item = TypeVar("_Item")


class Spent(Exception):
    """The budget of a reduction is used up; its argument says which."""


class Descent:
    """Goes from a failing case to smaller ones.

    Every method raises `Spent` at the end of the budget.

    Attributes:
        best: the smallest failing case so far.
        evaluations: candidates judged.
    """

    def __init__(
        self,
        case: Case,
        first_failing: FirstFailing,
        admits: Admits,
        deadline: float,
        fitted: Fitted = lambda case: case,
    ) -> None:
        self.best = case
        self.evaluations = 0
        self._first_failing = first_failing
        self._admits = admits
        self._deadline = deadline
        self._fitted = fitted
        # Digests: the recipe of a large pinned case is megabytes of text.
        self._tried = {_digest(case)}
        self._seconds = 0.0

    def take(self, candidate: Case) -> bool:
        """Take a candidate if it is allowed, new, and fails alike."""
        return self.take_first([candidate])

    def take_first(self, candidates: Iterable[Case]) -> bool:
        """Take the first candidate that is allowed, new, and fails alike.

        Args:
            candidates: made from the best case, the most welcome first.
        """
        return self._take(enumerate(candidates)) is not None

    def take_each(
        self, items: Iterable[_Item], change: Callable[[Case, _Item], Case | None]
    ) -> None:
        """Make changes one after the other, keeping those that fail alike."""

        def offered(case: Case, item: _Item) -> Iterator[Case]:
            if (made := change(case, item)) is not None:
                yield made

        self.take_first_of_each(items, offered)

    def take_first_of_each(
        self, items: Iterable[_Item], offered: Callable[[Case, _Item], Iterable[Case]]
    ) -> None:
        """Do as `take_first` for each of several items, one after the other.

        Args:
            items: what to change.
            offered: yields the cases with one changed, the most welcome first.
        """
        left = list(items)
        while left:
            base = self.best
            # As if none was kept, which is true up to the first that is.
            kept = self._take(
                (i, case) for i, item in enumerate(left) for case in offered(base, item)
            )
            if kept is None:
                return
            left = left[kept + 1 :]

    def _take(self, offered: Iterator[tuple[int, Case]]) -> int | None:
        """Take the first candidate that fails and return its number."""
        most = FIRST_TOGETHER
        while batch := self._batch(offered, most):
            if time.monotonic() >= self._deadline:
                raise Spent("time")
            if self.evaluations >= MAX_EVALUATIONS:
                raise Spent("evaluations")
            batch = batch[: MAX_EVALUATIONS - self.evaluations]
            place = self._ask([case for _, case, _ in batch])
            judged = batch if place is None else batch[: place + 1]
            self._tried.update(digest for _, _, digest in judged)
            if place is not None:
                number, self.best, _ = batch[place]
                return number
            most = min(2 * most, MOST_TOGETHER)
        return None

    def _batch(
        self, offered: Iterator[tuple[int, Case]], most: int
    ) -> list[tuple[int, Case, str]]:
        """Return the next allowed candidates that are new, with their digests."""
        if self._seconds:
            most = min(most, max(int(SECONDS_TOGETHER / self._seconds), 1))
        batch: list[tuple[int, Case, str]] = []
        elements = 0
        for number, made in offered:
            case = self._fitted(made)
            digest = _digest(case)
            known = digest in self._tried or any(digest == d for _, _, d in batch)
            if known or not self._admits(case):
                continue
            batch.append((number, case, digest))
            elements += case.elements
            if len(batch) >= most or elements >= ELEMENTS_TOGETHER:
                break
        return batch

    def _ask(self, cases: Sequence[Case]) -> int | None:
        """Return which of the cases is the first to fail, and note what that took."""
        began = time.monotonic()
        place = self._first_failing(cases)
        judged = len(cases) if place is None else place + 1
        self._seconds = (time.monotonic() - began) / judged
        self.evaluations += judged
        return place


def _digest(case: Case) -> str:
    return short_hash(case_key(case))
