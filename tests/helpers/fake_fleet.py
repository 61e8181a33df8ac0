"""A cluster that is made up: what units report comes at the times they would.

The driver is the real one. Time is simulated, so that a night passes in moments.
"""

import heapq
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from kfuzz.core.errors import HarnessError
from kfuzz.features.fleet.worker import (
    RETRIES,
    Begun,
    Cluster,
    Ended,
    Rejected,
    Search,
    Survey,
    Work,
)

Script = Iterator[tuple[float, Any]]
"""What a unit reports, after how many seconds each. An `Exception` ends an attempt;
those of what was asked end the unit."""


class FakeCluster(Cluster):
    """Units that follow scripts, done again as often as Ray would.

    Args:
        room: units at once.
        script: returns what a piece of work reports; by work and attempt, from 0.
    """

    title = "the fake cluster"

    def __init__(self, room: int, script: Callable[[Work, int], Script]) -> None:
        self._room, self._script = room, script
        self._time = 0.0
        self._order = itertools.count()
        self._due: list[tuple[float, int, int, Any]] = []
        self._scripts: dict[int, Script] = {}
        self._attempts: dict[int, int] = {}
        self.submitted: dict[int, Work] = {}
        self.ended = False

    def now(self) -> float:
        return self._time

    def room(self) -> int:
        return self._room

    def submit(self, number: int, work: Work) -> None:
        self.submitted[number] = work
        self._begin(number)

    def receive(self, seconds: float) -> list[tuple[int, Any]]:
        if not self._due or self._due[0][0] > self._time + seconds:
            self._time += seconds
            return []
        when, _, number, item = heapq.heappop(self._due)
        self._time = max(self._time, when)
        if isinstance(item, HarnessError) and self._attempts[number] <= RETRIES:
            return self._begin(number)
        if isinstance(item, Exception):
            item = Ended(item)
        if not isinstance(item, Ended | Rejected):
            self._step(number)
        return [(number, item)]

    def end(self) -> None:
        self.ended = True
        self._due = [
            (self._time + 1.0, next(self._order), n, Ended(None)) for n in self._scripts
        ]

    def _begin(self, number: int) -> list[tuple[int, Any]]:
        attempt = self._attempts.get(number, 0)
        self._attempts[number] = attempt + 1
        self._scripts[number] = self._script(self.submitted[number], attempt)
        heapq.heappush(self._due, (self._time, next(self._order), number, Begun()))
        return []

    def _step(self, number: int) -> None:
        seconds, item = next(self._scripts[number], (0.0, Ended(None)))
        due = self._time + seconds
        heapq.heappush(self._due, (due, next(self._order), number, item))


def survey_or(
    surveyed: Any, of: Callable[[Search, int], Script]
) -> Callable[[Work, int], Script]:
    """Return scripts of a run: the survey's, those of searches by `of`."""

    def script(work: Work, attempt: int) -> Script:
        match work:
            case Survey():
                return iter([(1.0, surveyed)])
            case Search():
                return of(work, attempt)
        raise AssertionError(work)

    return script
