"""A round of batches: many items of each structure are prefiltered, suspects judged.

While a child runs one batch the next one is drawn. Nothing is reported for what a
prefilter says: a suspect becomes a case like any other, and a batch that ends its child
is judged item by item.
"""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from hypothesis.strategies import SearchStrategy

from kfuzz.core.burst import MEMBERS, Burst, Screened, Suspect
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CaseReport, Kind
from kfuzz.engine.search.case_drawing import batches_of, groups_of, search_round
from kfuzz.engine.search.guidance import wanted
from kfuzz.engine.search.round import KernelSearch, Round
from kfuzz.engine.workers.asking import ENDS_CHILD
from kfuzz.engine.workers.backend import runs_on
from kfuzz.engine.workers.served import CompilesLong
from kfuzz.evaluation.prefilter import declined, member_case
from kfuzz.execution.calls.batches import UNCHECKED
from kfuzz.execution.device.backend import Batches
from kfuzz.strategies.value_choice import allowed_families

# How often the batches of a kernel's round double, from those of its first one.
DOUBLINGS: Final = 4

# Where the number of cases is limited, nothing is prefiltered before this many: so few
# are better judged in full. Half of those after it are items of batches.
JUDGED_FIRST: Final = 400

# Suspects of one batch that are judged: a broken kernel breaks in every item, and
# shows how in the first; a rare one has few.
JUDGED: Final = 4
# Suspects of one kind that were judged and showed nothing new, after which one of that
# kind is judged in each batch, and the others count as failing alike: what the kernel
# often does wrong must not hide the rest, nor take its time.
KNOWN: Final = 8
# Batches in a row of which most items are suspect and nothing new comes, after which
# a round ends: cases of their own show as much.
STALE: Final = 8
# Batches that end their child, or fail for an error of kfuzz's, after which it ends.
FAILED: Final = 3
# How what ends a child shows, a load beside a page that faults included.
_FATAL: Final = ENDS_CHILD | {Kind.READ_OUTSIDE}
# Rounds in a row in which nothing could be prefiltered, after which nothing is tried.
GIVEN_UP: Final = 2


def items_of(case: Case, batches: Batches, most: int) -> int:
    """Return how many items a batch of a structure has; it depends on nothing else.

    Args:
        case: the structure.
        batches: how the backend batches cases.
        most: limit set by the user.
    """
    room = batches.elements // max(case.elements, 1)
    return max(min(most, MEMBERS, room), 1)


def share_of(
    kernel: KernelSearch, batches: Batches, limit: int | None
) -> tuple[int, int]:
    """Return how many batches a kernel's round has, and how many items at most.

    Args:
        kernel: before this round is counted.
        batches: how the backend batches cases.
        limit: cases of the kernel in the whole run, None for no limit.
    """
    count = batches.first << min(kernel.rounds, DOUBLINGS)
    if limit is None:
        return count, count * MEMBERS
    cases = kernel.record.cases
    if limit <= JUDGED_FIRST or cases < JUDGED_FIRST // 2:
        return 0, 0
    most = max((limit - cases) // 2, 0)
    return min(count, most), most


def prefilter_round(
    kernel: KernelSearch,
    this_round: Round,
    strategy: SearchStrategy[Case],
    *,
    backend: str,
    members: int,
    limit: int | None,
    seed_value: int,
) -> None:
    """Draw and prefilter the batches of a kernel's round.

    Args:
        kernel: the kernel.
        this_round: its round so far; takes what is found.
        strategy: of the kernel's cases.
        backend: name of the run's backend.
        members: most items of a batch; 1 for no batches.
        limit: cases of the kernel in the whole run, None for no limit.
        seed_value: everything drawn depends on it.
    """
    batches = runs_on(kernel.loaded.kernel, backend).limits.batches
    if batches is None:
        return
    count, most = share_of(kernel, batches, limit)
    if not count or members == 1 or kernel.unfiltered >= GIVEN_UP:
        return
    made = BatchRound(kernel, this_round, most=most)
    before = kernel.record.batches
    admitted = allowed_families(kernel.loaded.kernel.declaration)
    items = partial(items_of, batches=batches, most=members)
    families = partial(wanted, kernel.ledger, among=admitted)
    if kernel.pace is not None:
        groups = groups_of(kernel.loaded.kernel)
        for case in kernel.pace.compiled():
            made.take_drawn(groups.burst(case, items(case), case.seed, families(case)))
    drawn = batches_of(kernel.loaded.kernel, strategy, members=items, wanted=families)
    search_round(drawn, made.take_drawn, cases=count, seed_value=seed_value)
    made.collect()
    done = kernel.record.batches > before or made.waiting
    kernel.unfiltered = 0 if done else kernel.unfiltered + 1


class BatchRound:
    """The batches of one round of one kernel.

    Attributes:
        items: items prefiltered or judged so far.
        waiting: whether a batch was drawn that waits for another round.
    """

    def __init__(self, kernel: KernelSearch, this_round: Round, *, most: int) -> None:
        """Begin a round.

        Args:
            kernel: whose round it is.
            this_round: judges the suspects, and knows when all is over.
            most: items after which no more are prefiltered.
        """
        self.items = 0
        self.waiting = False
        self._kernel = kernel
        self._round = this_round
        self._most = most
        self._pending: Burst | None = None
        # The pending one as it was drawn.
        self._drawn: Burst | None = None
        self._stale = self._failed = 0

    @property
    def left(self) -> int:
        """How many more items may be prefiltered."""
        pending = self._pending.members if self._pending else 0
        return self._most - self.items - pending

    def is_over(self) -> bool:
        """Return whether nothing more is to be prefiltered."""
        idle = self._stale >= STALE or self._failed >= FAILED
        return self._round.over or idle or self.left <= 0

    def take_drawn(self, batch: Burst) -> None:
        """Submit a batch that was drawn, or have it wait and submit what has waited."""
        pace = self._kernel.pace
        if pace is None or self.is_over():
            self.take(batch)
            return
        if declined(self._kernel.loaded.kernel, batch.case):
            return
        if pace.batches.is_quick(batch):
            self.take(batch)
        else:
            self.waiting = True
        while not self.is_over() and (other := pace.batches.due()) is not None:
            self.take(other)

    def take(self, batch: Burst) -> None:
        """Submit a burst once the one before is back; never raises."""
        if self.is_over() or declined(self._kernel.loaded.kernel, batch.case):
            return
        self.collect()
        if self.is_over():
            return
        drawn, batch = batch, replace(batch, members=min(batch.members, self.left))
        with self._round.guarded():
            self._kernel.runner.submit(batch)
            self._pending, self._drawn = batch, drawn

    def collect(self) -> None:
        """Take what the pending burst says, if one is; judge its suspects."""
        batch, self._pending = self._pending, None
        if batch is None:
            return
        with self._round.guarded():
            start = time.perf_counter()
            try:
                made = self._prefiltered()
            except CompilesLong as given_up:
                self._put_off(given_up.seconds)
                return
            self._learn_cost(batch, made, time.perf_counter() - start)
            self._take(batch, made)

    def _prefiltered(self) -> Screened:
        """Return what the batch under way gives, unless it compiles for too long."""
        pace, drawn = self._kernel.pace, self._drawn
        if pace is None or drawn is None:
            return self._kernel.runner.prefiltered()
        return self._kernel.runner.prefiltered(patience=pace.batches.patience(drawn))

    def _put_off(self, seconds: float) -> None:
        """Have the batch wait that was given up."""
        assert self._kernel.pace is not None
        assert self._drawn is not None
        self._kernel.pace.batches.put_off(self._drawn, seconds)
        self.waiting = True

    def _learn_cost(self, batch: Burst, made: Screened, waited: float) -> None:
        """Count what a batch cost, by its child, or by the wait for it."""
        pace = self._kernel.pace
        if pace is None or self._drawn is None:
            return
        spending = self._kernel.runner.spending
        seconds = waited if spending is None else spending.total
        pace.costs.take(
            batch.case, spending, seconds, max(batch.members, 2), ran=made.passed > 0
        )
        pace.batches.ran(self._drawn, seconds)

    def _take(self, batch: Burst, made: Screened) -> None:
        self._kernel.learn_batch(batch, made)
        self.items += made.passed
        if made.error:
            self._kernel.record.notice(
                f"a batch could not be prefiltered: {made.error}"
            )
            self._failed += 1
        if 2 * made.passed >= batch.members:
            self._stale = 0
        if made.lost:
            self._judge(batch, made.lost)
        elif made.suspects:
            self._judge_suspects(batch, made)

    def _judge(self, batch: Burst, why: str) -> None:
        """Judge items one by one until one of them ends its process as well."""
        for number in range(batch.members):
            self.items += 1
            case = member_case(self._kernel.loaded.kernel, batch, number)
            report = self._round.judge(case, suspect=True)
            if report is None or self._round.found is not None:
                return
            if report.failure is not None and report.failure.kind in _FATAL:
                break
        else:
            self._kernel.record.note(f"in a batch, not alone: {why}")
        self._failed += 1

    def _judge_suspects(self, batch: Burst, made: Screened) -> None:
        """Judge some suspects, each kind of reason first."""
        self.items += len(made.suspects)
        refused = True
        chosen = self._chosen(made.suspects)
        for suspect in chosen:
            case = member_case(self._kernel.loaded.kernel, batch, suspect.member)
            report = self._round.judge(case, suspect=True)
            refused = refused and report is not None and report.refusal is not None
            if report is not None and _is_clean(report):
                report = self._judge_pinned(case)
                if report is not None and _is_clean(report):
                    self._kernel.record.note(f"in a batch, not alone: {suspect.why}")
            if report is None or self._round.found is not None:
                return
            kind = _kind(suspect)
            self._kernel.known[kind] = self._kernel.known[kind].after(report)
        self._count_alike(batch.case, [s for s in made.suspects if s not in chosen])
        # What is refused is one structure; another one may not be.
        if 2 * made.passed < batch.members and not refused:
            self._stale += 1

    def _count_alike(self, case: Case, suspects: Sequence[Suspect]) -> None:
        """Count suspects that were not judged, where their kind has shown one thing."""
        for kind, count in Counter(map(_kind, suspects)).items():
            known = self._kernel.known[kind]
            if known.failure is not None and known.alike >= KNOWN:
                self._kernel.record.take_alike(case, count, known.failure)

    def _chosen(self, suspects: Sequence[Suspect]) -> list[Suspect]:
        """Return whom to judge: one of each kind, then a few more.

        Of a kind of which enough are known it is one, each time at another place.
        """
        kinds: dict[str, list[Suspect]] = {}
        for suspect in suspects:
            kinds.setdefault(_kind(suspect), []).append(suspect)
        first: list[Suspect] = []
        more: list[Suspect] = []
        for kind, alike in kinds.items():
            times = self._kernel.known[kind].times
            one = times % len(alike)
            first.append(alike[one])
            if times < KNOWN:
                more += alike[:one] + alike[one + 1 :]
        if any(kind.startswith(UNCHECKED) for kind in kinds):
            # Which call left a failed launch behind is not known: any of them.
            return [*first, *(s for s in suspects if s not in first)]
        return [*first, *more[: max(JUDGED - len(first), 0)]]

    def _judge_pinned(self, case: Case) -> CaseReport | None:
        """Judge a case away from pages that fault, with all that is sampled."""
        report: CaseReport | None = None
        with self._round.guarded():
            report = self._round.judge(self._kernel.runner.pin(case), suspect=True)
        return report


def _kind(suspect: Suspect) -> str:
    """Return why an item is suspect, without what depends on its data or its shape."""
    return suspect.why.partition(":")[0]


def _is_clean(report: CaseReport) -> bool:
    """Whether a case was judged and nothing is wrong with it."""
    failed = report.failure or report.refusal or report.error or report.unsupported
    return not failed
