"""What reducing gets of a run's time: a little at first, more once all is searched."""

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from kfuzz.core.finding import Finding
from kfuzz.core.verdict import FAILING, Kind
from kfuzz.engine.confirm.lifecycle import CONFIRMATIONS
from kfuzz.engine.search.clock import RunClock
from kfuzz.engine.search.filed import FiledFinding
from kfuzz.engine.search.round import KernelSearch
from kfuzz.engine.workers.asking import HANG_SECONDS

# Seconds given to reduce and explain one finding while others are searched for, and
# once nothing else is.
FIRST_SECONDS: Final = 5.0
MORE_SECONDS: Final = 45.0
UNLIMITED_SECONDS: Final = 600.0
# Of the time of a run at most so much goes to findings as they come, and as much is
# kept back at its end for what had to stop: half of it is for the search.
SHARE: Final = 0.25
# Kept back for each finding that had to stop.
KEPT_SECONDS: Final = 10.0
# Kept back from the run's time for one confirmation: so long, as long as the longest
# one so far took, or as the case under way and fresh children for it take; and no more
# than this share of the run.
RESERVE_SECONDS: Final = 1.5
RESERVE_SHARE: Final = 0.2
CALLS_TO_CONFIRM: Final = 1 + CONFIRMATIONS
# The last candidate, three forks, and the full limit.
CONFIRM_HANG_SECONDS: Final = HANG_SECONDS + 4.0


class Reductions:
    """Shares out the time in which findings are taken to their minimum.

    Without a time limit each gets what it takes, so that the clock has no part in what
    comes out. Under one a finding that had to stop waits until the search is done.

    Args:
        clock: of the run.
        jobs: findings reduced at once.
        predicted: seconds that the slowest case under way is expected to take.
        reduces: whether any time is given at all.
    """

    def __init__(
        self,
        clock: RunClock,
        *,
        jobs: int,
        predicted: Callable[[], float] = lambda: 0.0,
        reduces: bool = True,
    ) -> None:
        self._clock, self._limit, self._jobs = clock, clock.limit, jobs
        self._predicted = predicted
        self._reduces = reduces
        self._lock = threading.Lock()
        # Seconds of all jobs that findings have taken as they came.
        self._taken = 0.0
        self._confirming = RESERVE_SECONDS
        # Symptoms that were reduced, by node id.
        self._reduced: set[tuple[object, ...]] = set()
        self._waiting: dict[str, tuple[KernelSearch, dict[str, FiledFinding]]] = {}

    def seconds(
        self, kernel: KernelSearch, finding: Finding, *, share: float, last: bool
    ) -> float:
        """Return how long a finding that is confirmed may be reduced and explained.

        Args:
            kernel: whose finding it is.
            finding: as it was found.
            share: the seconds that its kernel may have at once.
            last: whether the search ends with it.
        """
        if not self._reduces:
            return 0.0
        if self._limit is None:
            return UNLIMITED_SECONDS  # evaluations bound it
        left = self._left()
        hangs = finding.signature.kind is Kind.HANG
        fair = min(left / 2, share)  # its minimum is to be confirmed as well
        most = FIRST_SECONDS
        if hangs:
            # That is under the full limit, and so not twice.
            fair, most = left - CONFIRM_HANG_SECONDS, MORE_SECONDS
        if last:
            return min(MORE_SECONDS, max(fair, 0.0))
        key = (kernel.node_id, *finding.signature.symptom)
        with self._lock:
            # One that shows like another may be the same: it takes what is left over.
            earned = self._clock.run_s if key in self._reduced else self._limit
            self._reduced.add(key)
            account = SHARE * earned * self._jobs - self._taken
        return max(min(most, fair, account), 0.0)

    @contextmanager
    def counted(self) -> Iterator[Callable[[], None]]:
        """Count the time that the block takes as a finding's.

        Yields:
            What is to be called once the finding is confirmed.
        """
        began = time.monotonic()

        def confirmed() -> None:
            with self._lock:
                seconds = time.monotonic() - began
                self._confirming = max(self._confirming, seconds)

        try:
            yield confirmed
        finally:
            with self._lock:
                self._taken += time.monotonic() - began

    def waiting_room(
        self, kernel: KernelSearch, finding: Finding
    ) -> Callable[[FiledFinding], None] | None:
        """Return what takes a finding that time has stopped; None if that ends it."""
        hangs = finding.signature.kind is Kind.HANG
        if self._limit is None or hangs or not self._reduces:
            return None
        return partial(self._wait, kernel)

    def _wait(self, kernel: KernelSearch, entry: FiledFinding) -> None:
        """Have a finding wait for more time, if that is what it was short of."""
        finding = entry.finding
        if finding.state not in FAILING or not finding.is_cut_short:
            return
        with self._lock:
            _, entries = self._waiting.setdefault(kernel.node_id, (kernel, {}))
            entries[finding.id] = entry

    @property
    def search_end(self) -> float:
        """The moment after which no round begins.

        A confirmation is kept back, and time for findings that wait.
        """
        if self._limit is None:
            return math.inf
        return self._clock.deadline - self._reserve - self.kept_back

    @property
    def kept_back(self) -> float:
        """Seconds at the end of the run that belong to the findings that wait."""
        if self._limit is None:
            return 0.0
        waiting = self._count()
        return min(SHARE * self._limit, KEPT_SECONDS * waiting / self._jobs)

    def take(self) -> tuple[KernelSearch, list[FiledFinding]] | None:
        """Return a kernel and its findings that wait, None once there are none."""
        with self._lock:
            if not self._waiting:
                return None
            kernel, entries = self._waiting.pop(next(iter(self._waiting)))
            return kernel, list(entries.values())

    def more(self, here: int) -> float:
        """Return how long a finding that has waited may be reduced further.

        Args:
            here: how many of its kernel wait, this one included.
        """
        each = self._left() / max(here, math.ceil((here + self._count()) / self._jobs))
        # Its minimum is confirmed as well.
        return min(MORE_SECONDS, max(each - self._confirming, 0.0))

    @property
    def _reserve(self) -> float:
        """Seconds kept back for one confirmation."""
        assert self._limit is not None
        wanted = max(self._confirming, CALLS_TO_CONFIRM * self._predicted())
        return min(wanted, RESERVE_SHARE * self._limit)

    def _left(self) -> float:
        """Return how many seconds are left, but for one confirmation."""
        return self._clock.deadline - time.monotonic() - self._reserve

    def _count(self) -> int:
        """Return how many findings wait."""
        with self._lock:
            return sum(len(entries) for _, entries in self._waiting.values())
