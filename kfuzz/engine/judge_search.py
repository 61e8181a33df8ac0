"""The search of a candidate: the benchmarked shape first, then as for any kernel."""

import threading
import time
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kfuzz.contracts.second_call import is_due
from kfuzz.core.budget import SIZE_BUDGETS, SizeBudget
from kfuzz.core.errors import KfuzzError
from kfuzz.core.event import Event, Notice
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CHARGED, CaseReport
from kfuzz.engine.backend import Backend
from kfuzz.engine.campaign import Campaign
from kfuzz.engine.config import RunConfig
from kfuzz.engine.round import KernelTurns, Round
from kfuzz.targets.candidate import EVALUATION
from kfuzz.targets.judged import JudgedKernel
from kfuzz.targets.kernelbench_operator import OWN, SCALED, Reference

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

# Values at the benchmarked shape, after the file's own: normal ones, zeros, and such as
# break shortcuts and narrow formats.
FAMILIES: Final = (
    "zeros", "randn", "nan1", "infmix", "negative", "tail_big", "expspread",
    "exact_int", "offset", "subnormal",
)  # fmt: skip
# A search elsewhere has small cases: most faults of shape show there.
_ELEMENTS: Final = {"cuda": 1 << 20, "cpu": 1 << 14, "interpret": 1 << 12}
# Parts of the time: for the benchmarked shape, and for all that is not confirming.
_OPENING: Final = 0.45
_SEARCHING: Final = 0.75
UNSEEN: Final = (
    "loads outside arguments go unseen: in the candidate's child nothing faults there"
)


class Search(Campaign):
    """A campaign that begins at the benchmarked shape."""

    def __init__(
        self,
        config: RunConfig,
        stop: threading.Event,
        backend: Backend,
        loaded: list[JudgedKernel],
        classes: frozenset[str],
        *,
        benchmarked_only: bool,
        modeless: bool,
    ) -> None:
        self._modeless = modeless
        self._judged = loaded[0].judged
        self._reference = self._judged.reference
        self._only_there = benchmarked_only or not self._reference.shapes.free
        super().__init__(config, stop, backend, list(loaded), classes)
        for kernel in self.kernels:
            kernel.record.notices = {UNSEEN: False}

    def budget_of(self) -> SizeBudget:
        """Return the limits on cases: those of small ones, unless none is as small."""
        return budget_of(self._reference, self.backend.name)

    def strategy(
        self, kernel: KernelTurns, without: Collection[str]
    ) -> "SearchStrategy[Case] | None":
        """Return what cases are drawn from, with the file's own values among them."""
        made = super().strategy(kernel, without)
        if made is None:
            return None
        if self._only_there:
            return made.map(self._at_home)
        return made.map(self._reference.adapted)

    def _at_home(self, case: Case) -> Case:
        """Return a drawn case at the benchmarked shape."""
        return self._reference.resized(self._reference.adapted(case))

    def opening(self, kernel: KernelTurns) -> Iterator[Event]:
        """Judge the benchmarked shape: the file's own values first, then others."""
        limit = self.config.budget.max_time
        end = self._search_end()
        if limit is not None:
            now = time.monotonic()
            end = now + _OPENING * max(end - now, 0.0)
        turn = Round(kernel, self.backend, stop=self.stop, deadline=end)
        for number, case in enumerate(self._first_cases()):
            # The first one is judged however little time there is.
            if number and (turn.over or self._over()):
                break
            began = time.monotonic()
            if not number:
                turn = Round(
                    kernel, self.backend, stop=self.stop, deadline=self._search_end()
                )
            turn.judge(case)
            kernel.seconds += time.monotonic() - began
            for text in kernel.record.untold():
                yield Notice(kernel.node_id, text)
            if isinstance(turn.error, KfuzzError):
                raise turn.error
            if turn.found is not None:
                yield from self._process(kernel, *turn.found)
            if not number and turn.found is None:
                self._judged.profile()
            if not number or turn.found is not None:
                turn = Round(kernel, self.backend, stop=self.stop, deadline=end)
        yield self._progress(kernel)

    def _first_cases(self) -> Iterator[Case]:
        seeds = _seeds(self._reference, self.config.seed)
        families = (OWN, OWN, *list(SCALED)[1:], *FAMILIES)
        for number, family in enumerate(families):
            if family == FAMILIES[0] and self._modeless:
                own = self._reference.case(OWN, next(seeds))
                yield replace(own, config=EVALUATION)
            yield self._reference.case(family, next(seeds))
            if not number and not self._reference.whole:
                yield self._reference.case(OWN, next(seeds), whole=True)

    def _process(
        self, kernel: KernelTurns, case: Case, report: CaseReport
    ) -> Iterator[Event]:
        """Take a finding to its minimum, from a smaller shape where one shows it."""
        assert report.failure is not None
        wanted = report.failure.signature(kernel.name)
        pinned = kernel.runner.pin(case)
        if not pinned.pinned and not self._over():
            for small in self._judged.smaller(case):
                told = self._judged.judge(small, "full")
                if told.failure is not None and told.shows(wanted):
                    case, report = small, told
                    break
        yield from super()._process(kernel, case, report)

    def count_findings(self) -> int:
        """Return how many findings are confirmed."""
        found = [f for k in self.kernels for f in k.findings.values()]
        return sum(f.state in CHARGED for f in found)

    def _search_end(self) -> float:
        limit = self.config.budget.max_time
        end = super()._search_end()
        return end if limit is None else min(end, self.start + _SEARCHING * limit)


def budget_of(reference: Reference, backend: str) -> SizeBudget:
    """Return the limits on cases, large enough for the least that the reference takes.

    Those of a search elsewhere are small: most faults of shape show there.
    """
    usual = SIZE_BUDGETS[backend]
    least = reference.least_elements
    elements, rows = max(_ELEMENTS[backend], least), max(usual.rows, least)
    return replace(usual, elements=elements, rows=rows, span=0)


def _seeds(reference: Reference, seed: int) -> Iterator[int]:
    """Yield seeds; the first case gets a second call by its own."""
    first = (seed * 7919) % (1 << 20)
    while not is_due(reference.case(OWN, first)):
        first += 1
    yield first
    number = first
    while True:
        number += 1
        yield number
