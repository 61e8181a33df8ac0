"""The clock of a run: its time limit counts from the first case that can be judged."""

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kfuzz.engine.workers.templates import OPEN_SECONDS

# Start-up that a run does not count, at most: so long one child may take to open.
START_SECONDS: Final = OPEN_SECONDS


class RunClock:
    """Tells start-up from the run, and when the run ends.

    Start-up is what comes before the first case can be judged, then what each further
    kernel takes until it is open, divided by the kernels searched at once: importing
    its file, creating a device's context. The limit of a run does not count it.

    Args:
        limit: seconds of the run; None for no limit.
        jobs: kernels searched at once.
        started: `time.monotonic()` when the command began.
    """

    def __init__(self, limit: float | None, *, jobs: int, started: float) -> None:
        self.limit = limit
        self.started = started
        self._jobs = jobs
        self._lock = threading.Lock()
        self._begun: float | None = None
        self._added = 0.0

    def begin(self, at: float | None = None) -> None:
        """Say that a first case can be judged, now or at a moment; once is enough."""
        with self._lock:
            if self._begun is None:
                self._begun = time.monotonic() if at is None else at

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Count the time in which the block gets a kernel ready as start-up."""
        entered = time.monotonic()
        try:
            yield
        finally:
            self.begin()
            with self._lock:
                assert self._begun is not None
                late = time.monotonic() - max(entered, self._begun)
                self._added += max(late, 0.0) / self._jobs

    @property
    def startup_s(self) -> float:
        """Seconds that were start-up, so far."""
        begun = time.monotonic() if self._begun is None else self._begun
        return begun - self.started + self._added

    @property
    def elapsed_s(self) -> float:
        """Seconds since the command began, start-up included."""
        return time.monotonic() - self.started

    @property
    def run_s(self) -> float:
        """Seconds of the run so far; 0 before a case can be judged."""
        return self.elapsed_s - min(self.startup_s, START_SECONDS)

    @property
    def deadline(self) -> float:
        """`time.monotonic()` at which the run ends, as far as is known now."""
        if self.limit is None:
            return math.inf
        return self.started + min(self.startup_s, START_SECONDS) + self.limit
