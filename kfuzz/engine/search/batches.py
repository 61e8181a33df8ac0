"""A round of bursts: many members of each structure are screened, suspects judged.

While a child runs one burst the next one is drawn. Nothing is charged for what the
prefilter says: a suspect becomes a case like any other, and a burst that ends its child
is judged member by member.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kfuzz.core.burst import MEMBERS, Burst, Screened, Suspect
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CaseReport, Kind
from kfuzz.engine.search.drawing import bursts_of, search_round
from kfuzz.engine.search.round import KernelTurns, Round
from kfuzz.engine.workers.backend import runs_on
from kfuzz.engine.workers.runner import ENDS_CHILD
from kfuzz.evaluation.prefilter import declined, member_case
from kfuzz.execution.calls.batches import UNCHECKED
from kfuzz.execution.device.backend import Batches
from kfuzz.strategies.values import allowed_families

# How often the bursts of a kernel's round double, from those of its first one.
DOUBLINGS: Final = 4

# Where the number of cases is limited, nothing is screened before this many: so few are
# better judged in full. Half of those after it are members of bursts.
JUDGED_FIRST: Final = 400

# Suspects of one burst that are judged: a broken kernel breaks in every member, and
# shows how in the first; a rare one has few.
JUDGED: Final = 4
# Suspects of one kind that showed nothing new in a round, after which one of that kind
# is judged in each burst: what the kernel often does wrong must not hide the rest.
KNOWN: Final = 8
# Bursts in a row of which most members are suspect and nothing new comes, after which
# a round ends: cases of their own show as much.
STALE: Final = 8
# Bursts that end their child, or cannot be screened for an error, after which it ends.
FAILED: Final = 3
# How what ends a child shows, a load beside a page that faults included.
_FATAL: Final = ENDS_CHILD | {Kind.READ_OUTSIDE}
# Rounds in a row in which nothing could be screened, after which nothing is tried.
GIVEN_UP: Final = 2

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


def members_of(case: Case, batches: Batches, most: int) -> int:
    """Return how many members a burst of a structure has; it depends on nothing else.

    Args:
        case: the structure.
        batches: how the backend batches cases.
        most: limit set by the user.
    """
    room = batches.elements // max(case.elements, 1)
    return max(min(most, MEMBERS, room), 1)


def share_of(
    kernel: KernelTurns, batches: Batches, limit: int | None
) -> tuple[int, int]:
    """Return how many bursts a kernel's round has, and how many members at most.

    Args:
        kernel: before this round is counted.
        batches: how the backend batches cases.
        limit: cases of the kernel in the whole run, None for no limit.
    """
    bursts = batches.first << min(kernel.rounds, DOUBLINGS)
    if limit is None:
        return bursts, bursts * MEMBERS
    cases = kernel.record.cases
    if limit <= JUDGED_FIRST or cases < JUDGED_FIRST // 2:
        return 0, 0
    most = max((limit - cases) // 2, 0)
    return min(bursts, most), most


def screen_round(
    kernel: KernelTurns,
    turn: Round,
    strategy: "SearchStrategy[Case]",
    *,
    backend: str,
    members: int,
    limit: int | None,
    seed_value: int,
) -> None:
    """Draw and screen the bursts of a kernel's round.

    Args:
        kernel: the kernel.
        turn: its round so far; takes what is found.
        strategy: of the kernel's cases.
        backend: name of the run's backend.
        members: most members of a burst; 1 for no bursts.
        limit: cases of the kernel in the whole run, None for no limit.
        seed_value: everything drawn depends on it.
    """
    batches = runs_on(kernel.loaded.kernel, backend).limits.batches
    if batches is None:
        return
    count, most = share_of(kernel, batches, limit)
    if not count or members == 1 or kernel.unscreened >= GIVEN_UP:
        return
    made = BurstRound(kernel, turn, most=most)
    before = kernel.record.bursts
    admitted = allowed_families(kernel.loaded.kernel.declaration)
    drawn = bursts_of(
        kernel.loaded.kernel,
        strategy,
        members=lambda case: members_of(case, batches, members),
        wanted=lambda case: kernel.discovery.wanted(case, admitted),
    )
    search_round(drawn, made.take, cases=count, seed_value=seed_value)
    made.collect()
    screened = kernel.record.bursts > before
    kernel.unscreened = 0 if screened else kernel.unscreened + 1


class BurstRound:
    """The bursts of one round of one kernel.

    Attributes:
        members: members screened or judged so far.
    """

    def __init__(self, kernel: KernelTurns, turn: Round, *, most: int) -> None:
        """Begin a round.

        Args:
            kernel: whose round it is.
            turn: judges the suspects, and knows when all is over.
            most: members after which nothing more is screened.
        """
        self.members = 0
        self._kernel = kernel
        self._turn = turn
        self._most = most
        self._pending: Burst | None = None
        self._stale = self._failed = 0
        # Suspects judged that showed nothing new, by kind.
        self._known: Counter[str] = Counter()

    @property
    def left(self) -> int:
        """How many more members may be screened."""
        pending = self._pending.members if self._pending else 0
        return self._most - self.members - pending

    def is_over(self) -> bool:
        """Return whether nothing more is to be screened."""
        idle = self._stale >= STALE or self._failed >= FAILED
        return self._turn.over or idle or self.left <= 0

    def take(self, burst: Burst) -> None:
        """Submit a burst once the one before is back; never raises."""
        if self.is_over() or declined(self._kernel.loaded.kernel, burst.case):
            return
        self.collect()
        if self.is_over():
            return
        burst = replace(burst, members=min(burst.members, self.left))
        with self._turn.guarded():
            self._kernel.runner.submit(burst)
            self._pending = burst

    def collect(self) -> None:
        """Take what the pending burst says, if one is; judge its suspects."""
        burst, self._pending = self._pending, None
        if burst is None:
            return
        with self._turn.guarded():
            self._take(burst, self._kernel.runner.screened())

    def _take(self, burst: Burst, made: Screened) -> None:
        self._kernel.learn_batch(burst, made)
        self.members += made.passed
        if made.error:
            self._kernel.record.notice(f"a burst could not be screened: {made.error}")
            self._failed += 1
        if 2 * made.passed >= burst.members:
            self._stale = 0
        if made.lost:
            self._judge(burst, made.lost)
        elif made.suspects:
            self._judge_suspects(burst, made)

    def _judge(self, burst: Burst, why: str) -> None:
        """Judge members one by one until one of them ends its process as well."""
        for number in range(burst.members):
            self.members += 1
            case = member_case(self._kernel.loaded.kernel, burst, number)
            report = self._turn.judge(case, suspect=True)
            if report is None or self._turn.found is not None:
                return
            if report.failure is not None and report.failure.kind in _FATAL:
                break
        else:
            self._kernel.record.note(f"in a burst, not alone: {why}")
        self._failed += 1

    def _judge_suspects(self, burst: Burst, made: Screened) -> None:
        """Judge some suspects, each kind of reason first."""
        self.members += len(made.suspects)
        refused = True
        for suspect in self._chosen(made.suspects):
            case = member_case(self._kernel.loaded.kernel, burst, suspect.member)
            report = self._turn.judge(case, suspect=True)
            refused = refused and report is not None and report.refusal is not None
            if report is not None and _is_clean(report):
                report = self._judge_pinned(case)
                if report is not None and _is_clean(report):
                    self._kernel.record.note(f"in a burst, not alone: {suspect.why}")
            if report is None or self._turn.found is not None:
                return
            self._known[_kind(suspect)] += 1
        # What is refused is one structure; another one may not be.
        if 2 * made.passed < burst.members and not refused:
            self._stale += 1

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
            times = self._known[kind]
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
        with self._turn.guarded():
            report = self._turn.judge(self._kernel.runner.pin(case), suspect=True)
        return report


def _kind(suspect: Suspect) -> str:
    """Return why a member is suspect, without what depends on its data or its shape."""
    return suspect.why.partition(":")[0]


def _is_clean(report: CaseReport) -> bool:
    """Whether a case was judged and nothing is wrong with it."""
    failed = report.failure or report.refusal or report.error or report.unsupported
    return not failed
