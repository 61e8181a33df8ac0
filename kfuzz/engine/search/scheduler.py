"""Whose time slice is next: kernels searched side by side share the time of a run."""

import math
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from kfuzz.engine.search.round import KernelSearch

# Between two looks whether the run is over, while other kernels have theirs.
_LOOK_SECONDS: Final = 0.2
# What a kernel may have at once of its share of the time.
_AT_ONCE: Final = 0.5


class Scheduler:
    """Gives kernels their time slices, each to one thread at a time.

    Args:
        kernels: all of the run.
        jobs: time slices at once; on several GPUs as many on each.
        timed: whether a time limit is what ends the run, of which all have the same
            share. Else kernels take turns.
        over: whether no more of them are to begin.
    """

    def __init__(
        self,
        kernels: Sequence[KernelSearch],
        *,
        jobs: int,
        timed: bool,
        over: Callable[[], bool],
    ) -> None:
        self._kernels = kernels
        self._timed = timed
        self._over = over
        self._changed = threading.Condition()
        # Node ids of those that wait and are put aside.
        self._aside: set[str] = set()
        self._most = math.ceil(jobs / max(len({k.device for k in kernels}), 1))
        self.jobs = jobs

    def take(self) -> KernelSearch | None:
        """Return the kernel that is next, None once there is none any more.

        It waits while others have theirs that may be the last ones.
        """
        with self._changed:
            while not self._over():
                kernel = self._next()
                if kernel is not None:
                    kernel.busy = True
                    return kernel
                if not self._aside and not any(k.busy for k in self._kernels):
                    break
                self._changed.wait(_LOOK_SECONDS)
            return None

    def give(self, kernel: KernelSearch) -> None:
        """Let a kernel have another time slice."""
        with self._changed:
            kernel.busy = False
            self._changed.notify_all()

    def charge(self, kernel: KernelSearch, seconds: float) -> None:
        """Count a time slice."""
        with self._changed:
            kernel.seconds += seconds

    def share(self, seconds: float, kernel: KernelSearch) -> float:
        """Return a kernel's share of the time that is left."""
        left = sum(not k.done or k is kernel for k in self._kernels)
        return seconds * min(self.jobs, left) / left

    def turn(self, seconds: float, kernel: KernelSearch) -> float:
        """Return how much of the time that is left a kernel may have at once.

        Half of its share where others wait: one slow round of a kernel, such as a
        gradient, must not take the time of another.
        """
        waiting = sum(not k.done for k in self._kernels) > self.jobs
        return self.share(seconds, kernel) * (_AT_ONCE if waiting else 1.0)

    @contextmanager
    def spared(self, most: int) -> Iterator[list[KernelSearch]]:
        """Yield kernels that wait for a time slice, all but `most` of them.

        They get none meanwhile.
        """
        with self._changed:
            idle = [k for k in self._kernels if self._waits(k)]
            spared = idle[: max(len(idle) - most, 0)]
            names = {k.node_id for k in spared}
            self._aside |= names
        try:
            yield spared
        finally:
            with self._changed:
                self._aside -= names
                self._changed.notify_all()

    def _waits(self, kernel: KernelSearch) -> bool:
        """Whether a kernel could have a time slice."""
        return not (kernel.done or kernel.busy or kernel.node_id in self._aside)

    def _next(self) -> KernelSearch | None:
        """Return the kernel that is next, None if none can be now.

        Under a time limit the one that has had the least of it.
        """
        busy = Counter(k.device for k in self._kernels if k.busy)
        free = [
            k for k in self._kernels if self._waits(k) and busy[k.device] < self._most
        ]
        if not free:
            return None
        return min(free, key=lambda k: k.seconds if self._timed else k.rounds)
