"""Children that compile what the next cases need, while another one judges.

What they compile lies in Triton's cache when the judging child looks for it. They judge
nothing: what they return says no more than that something was compiled, and for how
long; their deaths, hangs and exceptions are nobody's.
"""

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from kfuzz.core.budget import Spending
from kfuzz.core.codec import decode, encode
from kfuzz.core.errors import KfuzzError
from kfuzz.core.recipe import Case
from kfuzz.engine.workers.jobs import LOOK_SECONDS, Stopped
from kfuzz.engine.workers.processors import processors
from kfuzz.engine.workers.served import Served
from kfuzz.execution.calls.compiling import LONGEST_SECONDS
from kfuzz.execution.processes import ChildDied, ChildRaised, ChildTimeout

MOST: Final = 8
"""Such children of a run: each holds memory of the device and of the machine."""

_ROOM_BYTES: Final = 4 << 30
"""Memory of a device that is left to the child that judges."""

# After so long without work a child ends, and where another kernel wants one.
_IDLE_SECONDS: Final = 20.0
_WANTED_SECONDS: Final = 1.0


class Slots:
    """How many such children a run may have, over all of its kernels.

    Args:
        most: how many; none where no processor is idle.
    """

    def __init__(self, most: int) -> None:
        self._left = most
        self._lock = threading.Lock()
        self.wanted = False

    def take(self, *, first: bool) -> bool:
        """Return whether another child may be started, and count it.

        Args:
            first: whether it would be its kernel's first; then one of another kernel
                that is idle makes room.
        """
        with self._lock:
            if self._left <= 0:
                self.wanted = self.wanted or first
                return False
            self._left -= 1
            return True

    def give(self, *, for_good: bool = False) -> None:
        """Take it that a child has ended, `for_good` if there is to be none instead."""
        with self._lock:
            self.wanted = False
            self._left += not for_good


def idle_processors(jobs: int) -> int:
    """Return how many processors neither the campaign nor its kernels keep busy.

    Args:
        jobs: kernels searched side by side, each by a child.
    """
    return max(processors() - jobs - 1, 0)


@dataclass(frozen=True)
class Compiled:
    """What came of one case.

    Attributes:
        case: the case.
        spent: what it took; where it was given up, until then; nothing where nobody
            tried, or it was called off.
        done: whether its kernels lie in the cache now.
    """

    case: Case
    spent: Spending
    done: bool


class CompileAhead:
    """The compiling children of one kernel.

    Args:
        open_child: returns a child that is ready.
        slots: how many the run may have.
        expired: whether the run is over.
        limit: seconds after which a child that compiles is given up.
    """

    def __init__(
        self,
        open_child: Callable[[], Served],
        slots: Slots,
        expired: Callable[[], bool],
        *,
        limit: float = LONGEST_SECONDS,
    ) -> None:
        self._open = open_child
        self._slots = slots
        self._expired = expired
        self.limit = limit
        self._cases: queue.SimpleQueue[Case] = queue.SimpleQueue()
        self._made: queue.SimpleQueue[Compiled] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        # Cases asked for and not answered, and children there are to answer them.
        self._pending = self._children = 0
        self._stop = threading.Event()

    def room(self) -> bool:
        """Return whether one more case is taken: a child is idle, or may be started."""
        with self._lock:
            if self._expired():
                return False
            if self._pending < self._children:
                return True
            if not self._slots.take(first=not self._children):
                return False
            self._children += 1
            thread = threading.Thread(
                target=self._work, args=[self._stop], name="ahead", daemon=True
            )
            self._threads = [t for t in self._threads if t.is_alive()] + [thread]
            thread.start()
            return True

    def ask(self, case: Case) -> None:
        """Have a case compiled; there has to be room."""
        with self._lock:
            if self._children:
                self._pending += 1
                self._cases.put(case)
            else:  # it has ended since
                self._made.put(Compiled(case, Spending(), done=False))

    def made(self) -> list[Compiled]:
        """Return what has been done since this was asked last."""
        return [self._made.get() for _ in range(self._made.qsize())]

    def close(self) -> None:
        """End the children; what was asked for is forgotten."""
        with self._lock:
            self._stop.set()
            self._stop = threading.Event()
            threads, self._threads = self._threads, []
        until = time.monotonic() + 2 * LOOK_SECONDS
        for thread in threads:
            thread.join(max(until - time.monotonic(), 0.0))

    def _work(self, stop: threading.Event) -> None:
        """Open a child, and have it compile one case after the other."""
        served: Served | None = None
        spared = True
        try:
            served = self._open()
            while (case := self._next(stop)) is not None:
                spared = self._compiled(served, case, stop)
                if not spared or served.lost:
                    return
        except (KfuzzError, Stopped, OSError):
            spared = served is not None  # else another would not open either
        finally:
            if served is not None:
                served.kill()
            self._slots.give(for_good=not spared)
            self._leave()

    def _leave(self) -> None:
        """Count one child less; what nobody is left to compile is given up."""
        with self._lock:
            self._children -= 1
            while not self._children and not self._cases.empty():
                self._made.put(Compiled(self._cases.get(), Spending(), done=False))
                self._pending -= 1

    def _next(self, stop: threading.Event) -> Case | None:
        """Return the next case; None where this child is to end."""
        since = time.monotonic()
        while not (stop.is_set() or self._expired()):
            try:
                return self._cases.get(timeout=LOOK_SECONDS)
            except queue.Empty:
                idle = time.monotonic() - since
            if idle >= (_WANTED_SECONDS if self._slots.wanted else _IDLE_SECONDS):
                return None
        return None

    def _compiled(self, served: Served, case: Case, stop: threading.Event) -> bool:
        """Have a case compiled; return whether the device has memory for this child."""
        start = time.monotonic()
        reply = self._answer(served, case, start + self.limit, stop)
        spent, done, free = Spending(rest=time.monotonic() - start), False, None
        if reply is not None:
            spent, free = decode(Spending, reply["spending"], "spending"), reply["free"]
            # Where it raised at once the judging child learns no less quickly.
            done = bool(reply["returned"]) or not spent.compiled
        elif stop.is_set():
            spent = Spending()
        with self._lock:
            self._pending -= 1
        self._made.put(Compiled(case, spent, done))
        return free is None or int(free) >= _ROOM_BYTES

    def _answer(
        self, served: Served, case: Case, deadline: float, stop: threading.Event
    ) -> dict[str, Any] | None:
        """Return a child's reply, None where it is given up, or the run is over."""
        try:
            served.send({"do": "compile", "case": encode(case)})
            while not (stop.is_set() or self._expired()):
                try:
                    return served.peer.wait(LOOK_SECONDS)
                except ChildTimeout:
                    if time.monotonic() >= deadline:
                        break
        except ChildRaised:
            return None
        except (ChildDied, KfuzzError):
            pass
        served.kill()
        return None
