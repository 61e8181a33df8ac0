"""The search of a candidate: the benchmarked shape first, then as for any kernel."""

import threading
import time
from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kfuzz.contracts.binding import BoundKernel
from kfuzz.core.budget import Depth, SizeBudget
from kfuzz.core.errors import KfuzzError
from kfuzz.core.event import Event, Notice
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CHARGED, CaseReport, State
from kfuzz.engine.config import RunConfig
from kfuzz.engine.search.campaign import Campaign
from kfuzz.engine.search.round import KernelSearch, Round
from kfuzz.engine.workers.backend import Backend
from kfuzz.evaluation.probes.second_call import is_due
from kfuzz.judge.candidate import EVALUATION, OTHER_WEIGHTS
from kfuzz.judge.case_judging import ENDS
from kfuzz.judge.kernelbench.operator import Reference
from kfuzz.judge.kernelbench.values import OWN, SCALED, SHIFTED
from kfuzz.judge.loading import JudgedKernel, budget_of
from kfuzz.judge.long_run import HUNDREDS, MOST
from kfuzz.judge.recording import FILE
from kfuzz.judge.tried import finite_of, is_finite
from kfuzz.store.entry import attach

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

# Values at the benchmarked shape, after the file's own: normal ones, zeros, and such as
# break shortcuts and narrow formats.
FAMILIES: Final = (
    "zeros", "randn", "negative", "tail_big", "expspread", "exact_int", "offset",
    "subnormal",
)  # fmt: skip
# Then such as hold NaN or infinities, where these have a meaning.
SPECIAL: Final = ("nan1", "infmix")
# Sizes elsewhere: at most this, or so many times the benchmarked one.
_NEAR: Final = 8192
_TIMES: Final = 16
# Parts of the time: for the benchmarked shape, and for all that is not confirming.
_OPENING: Final = 0.45
_SEARCHING: Final = 0.75
_HISTORY: Final = 0.12
_LONGEST_HISTORY: Final = 0.3
# Cases before a long run of calls, and its calls for each case where these are counted.
_BEFORE_HISTORY: Final = 3
_CALLS_A_CASE: Final = 8
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
        self._explain = config.reduce
        self._judged = loaded[0].judged
        self._reference = self._judged.reference
        self._only_there = benchmarked_only or not self._reference.shapes.free
        self._judged.benchmarked_only = self._only_there
        # Confirmed findings that rest on NaN or infinities: after one only numbers.
        self._not_numbers: set[str] = set()
        super().__init__(config, stop, backend, list(loaded), classes)
        self._judged.candidate.sandbox.until = lambda: self.clock.deadline
        self.clock.begin(self.clock.started)  # a judge has its time, start-up included
        for kernel in self.kernels:
            kernel.record.notices = {UNSEEN: False}

    def budget_of(self, kernel: BoundKernel) -> SizeBudget:
        """Return the limits on cases: those of small ones, unless none is as small."""
        return budget_of(self._reference, self.backend.name)

    def strategy(
        self, kernel: KernelSearch, without: Collection[str], *, tall: bool = False
    ) -> "SearchStrategy[Case] | None":
        """Return what cases are drawn from, with the file's own values among them."""
        made = super().strategy(kernel, without, tall=False)
        if made is None:
            return None
        made = made.filter(self._is_near)
        made = made.map(finite_of) if self._not_numbers else made
        made = made.map(self._reference.adapted)
        return made.map(self._reference.resized) if self._only_there else made

    def opening(self, kernel: KernelSearch) -> Iterator[Event]:
        """Judge the benchmarked shape: the file's own values first, then others."""
        limit = self.config.budget.max_time
        end = self.search_end()
        if limit is not None:
            now = time.monotonic()
            end = now + _OPENING * max(end - now, 0.0)
        this_round = Round(kernel, stop=self.stop, deadline=end)
        for number, case in enumerate(self._first_cases()):
            # The first one is judged however little time there is.
            most = self.config.budget.max_cases
            full = most is not None and kernel.record.cases >= most
            if number and (full or this_round.over or self.over()):
                break
            if self._not_numbers and not is_finite(case):
                continue
            began = time.monotonic()
            if not number:
                this_round = Round(kernel, stop=self.stop, deadline=self.search_end())
            this_round.judge(case)
            kernel.seconds += time.monotonic() - began
            for text in kernel.record.untold():
                yield Notice(kernel.node_id, text)
            if isinstance(this_round.error, KfuzzError):
                raise this_round.error
            if this_round.found is not None:
                yield from self.process(kernel, *this_round.found)
            if not number or this_round.found is not None:
                this_round = Round(kernel, stop=self.stop, deadline=end)
            if number + 1 == _BEFORE_HISTORY and self._explain:
                began = time.monotonic()
                yield from self._history(kernel)
                end = min(end + time.monotonic() - began, self.search_end())
                this_round = Round(kernel, stop=self.stop, deadline=end)
        if not self._explain and not self.over():
            yield from self._history(kernel)  # what one call shows is found sooner
        yield self.progress(kernel)

    def _history(self, kernel: KernelSearch) -> Iterator[Event]:
        """Make a long run of calls in the child that there is."""
        limit, most = self.config.budget.max_time, self.config.budget.max_cases
        begun = time.monotonic()

        def over(made: int) -> bool:
            if self.over() or limit is None:
                return self.over()
            share = (time.monotonic() - begun) / limit
            in_reach = made * _LONGEST_HISTORY >= HUNDREDS * share
            more = made < HUNDREDS and in_reach
            return share >= (_LONGEST_HISTORY if more else _HISTORY)

        calls = MOST if most is None else min(MOST, _CALLS_A_CASE * most)
        found = self._judged.history(self.config.seed, calls=calls, over=over)
        if found is None:
            return
        case, report = found
        assert report.failure is not None
        symptom = report.failure.signature(kernel.name).symptom
        states = {
            f.state for f in kernel.findings.values() if f.signature.symptom == symptom
        }
        # What was seen before and not confirmed is seen again here.
        if symptom not in kernel.shown or (states and not states & CHARGED):
            kernel.shown.add(symptom)
            yield from self.process(kernel, case, report)

    def _time_slice(self, kernel: KernelSearch) -> Iterator[Event]:
        """Give a kernel one round: every other one begins in a process of its own.

        There the first call is on any shape, and few calls come before a case.
        """
        if kernel.rounds % 2 == 0:
            self._judged.candidate.sandbox.fresh()
        yield from super()._time_slice(kernel)

    def _is_near(self, case: Case) -> bool:
        """Whether no dimension is so large that compilers of others gave up.

        A kernel that is benchmarked on rows of a thousand is mostly compiled for one
        block of a row, which takes minutes for rows of a million.
        """
        sizes = self._reference.shapes.sizes
        return all(
            n <= max(_NEAR, _TIMES * sizes.get(axis, 1))
            for spec in case.tensors.values()
            for axis, n in zip(spec.axes, spec.shape, strict=True)
        )

    def _first_cases(self) -> Iterator[Case]:
        """Yield cases at the benchmarked shape, what is worth most time first."""
        reference, seeds = self._reference, _seeds(self._reference, self.config.seed)
        asks = self._judged.kernel.declaration.nonfinite == "propagate"
        yield reference.case(OWN, next(seeds))
        if not reference.whole:
            yield reference.case(OWN, next(seeds), whole=True)
        yield (own := reference.case(OWN, next(seeds)))
        yield reference.case(SHIFTED, next(seeds))
        # What knows no other shape is found before all that takes more time.
        yield from self._judged.larger(own)[:1]
        if self._judged.takes_other_weights:
            yield replace(reference.case(OWN, next(seeds)), config=OTHER_WEIGHTS)
        if self._modeless:
            yield replace(reference.case(OWN, next(seeds)), config=EVALUATION)
        special = SPECIAL if asks else ()
        for family in (*list(SCALED)[1:], SHIFTED, *FAMILIES, *special):
            yield reference.case(family, next(seeds))

    def process(
        self, kernel: KernelSearch, case: Case, report: CaseReport
    ) -> Iterator[Event]:
        """Take a finding to its minimum, from a smaller shape where one shows it."""
        with self._judged.candidate.sandbox.phases.within("confirm"):
            yield from self._confirmed(kernel, case, report)

    def _confirmed(
        self, kernel: KernelSearch, case: Case, report: CaseReport
    ) -> Iterator[Event]:
        assert report.failure is not None
        wanted = report.failure.signature(kernel.name)
        outputs = self._reference.outputs
        recording = self._judged.candidate.recording
        recorded = recording.showing(report.failure, outputs)
        pinned = kernel.runner.pin(case)
        if self._explain and not pinned.pinned and not self.over():
            for small in self._judged.smaller(case):
                told = self._judged.judge(small, Depth.FULL)
                if told.failure is not None and told.shows(wanted):
                    case, report = small, told
                    recorded = recording.showing(told.failure, outputs)
                    break
        known = set(kernel.findings)
        yield from super().process(kernel, case, report)
        for id in set(kernel.findings) - known:
            finding = kernel.findings[id]
            if recorded is not None and finding.state is State.WITNESSED:
                attach(Path(kernel.paths[id]), FILE, recorded)
            if finding.state not in CHARGED and finding.failure.kind in ENDS:
                # A second time is a proof: let it show again.
                kernel.shown.discard(wanted.symptom)
                kernel.seen.discard(finding.signature)
        self._not_numbers = {
            f.id
            for f in kernel.findings.values()
            if f.state in CHARGED and self._judged.rests_on_nonfinite(f.case)
        }

    def count_findings(self) -> int:
        """Return how many findings are confirmed, but those about NaN alone.

        What a candidate makes of numbers is searched for as long as without them.
        """
        found = [f for k in self.kernels for f in k.findings.values()]
        return sum(f.state in CHARGED and f.id not in self._not_numbers for f in found)

    def search_end(self) -> float:
        """The moment after which no round begins: time to confirm is kept."""
        limit = self.config.budget.max_time
        end = super().search_end()
        if limit is None:
            return end
        return min(end, self.clock.started + _SEARCHING * limit)


def _seeds(reference: Reference, seed: int) -> Iterator[int]:
    """Return seeds; the first case gets a second call by its own."""
    every = count((seed * 7919) % (1 << 20))
    first = next(n for n in every if is_due(reference.case(OWN, n)))
    return count(first)
