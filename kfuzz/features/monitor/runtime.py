"""The monitor of one process: its settings, its memory, its beginning and end."""

import atexit
import logging
import os
import queue
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kfuzz.core.errors import UsageError
from kfuzz.features.monitor.seen import Memory

if TYPE_CHECKING:
    from kfuzz.features.monitor.monitored import Monitor


# What becomes of calls, counted.


@dataclass(frozen=True)
class Counts:
    """What became of the calls of one monitored function.

    Attributes:
        function: its name.
        seen: calls.
        sampled: calls chosen to be looked at.
        new_signatures: of these, for a signature not seen before.
        outliers: calls that a detector flagged.
        dropped: calls chosen while there was no buffer for their data.
        skipped: calls chosen whose data could not be copied: under CUDA graph capture,
            of tensor subclasses, under other modes of torch.
        outside: calls that the contract does not cover.
        raised: calls chosen that raised.
        checked: calls judged.
        undecided: of these, with no element that could be judged.
        violations: of these, that broke their contract.
        errors: calls that a reference, a callback, or the monitor itself failed on.
    """

    function: str
    seen: int = 0
    sampled: int = 0
    new_signatures: int = 0
    outliers: int = 0
    dropped: int = 0
    skipped: int = 0
    outside: int = 0
    raised: int = 0
    checked: int = 0
    undecided: int = 0
    violations: int = 0
    errors: int = 0


# Why nothing was judged of calls that were chosen, in words, and what to do.
_LOST: Final = {
    "dropped": "found no buffer for their data (kfuzz.monitor.start(ring_bytes=…))",
    "skipped": "could not be copied",
    "outside": "are outside the contract",
    "raised": "raised",
    "errors": "met an error",
    "undecided": "had no element that could be judged",
}


_WAITED: Final = (
    "waited for their check when the program ended (kfuzz.monitor.flush() before it "
    "does, or start(exit_seconds=…))"
)


def unjudged(counts: Counts) -> str:
    """Return why nothing was judged of a function that was called; "" otherwise."""
    if counts.checked > counts.undecided or not counts.seen:
        return ""
    calls = "its one call" if counts.seen == 1 else f"its {counts.seen} calls"
    if not counts.sampled:
        return f"none of {calls} was chosen to be looked at: see rate="
    lost = {why: getattr(counts, name) for name, why in _LOST.items()}
    lost[_WAITED] = counts.sampled - sum(lost.values())
    reasons = ", ".join(f"{n} {why}" for why, n in lost.items() if n > 0)
    return f"none of {calls} was judged: of {counts.sampled} chosen {reasons}"


# The thread that checks, and its queue.


class Checker:
    """Does what is offered, one after the other, in a thread of its own.

    Its locks are held for microseconds, and never during a check.
    """

    def __init__(self, *, failed: Callable[[BaseException], None]) -> None:
        """Make a queue; the thread begins with the first item.

        Args:
            failed: called with what an item raised.
        """
        self._failed = failed
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._leaving = False

    @property
    def waiting(self) -> int:
        """Items that are not begun."""
        return self._queue.qsize()

    def put(self, item: Callable[[], None]) -> None:
        """Have an item done; waits for nothing."""
        with self._lock:
            # Not alive where telling of a failure failed.
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._work, name="kfuzz-monitor", daemon=True
                )
                self._thread.start()
            self._queue.put(item)

    def flush(self, timeout: float | None) -> bool:
        """Wait for all items so far; whether they are done, in time."""
        if threading.current_thread() is self._thread:
            return False  # what is being done asks
        if self._thread is None:
            return True
        done = threading.Event()
        self.put(done.set)
        return done.wait(timeout)

    def end(self, timeout: float | None, *, leaving: bool = False) -> None:
        """Let the thread end once it has nothing left; the next item begins another.

        Args:
            timeout: how long it is waited for.
            leaving: end after what it does now, for the process does: a thread that is
                inside torch then takes the process with it, by an abort.
        """
        self._leaving = leaving
        with self._lock:
            thread = self._thread
            if thread is None:
                return
            self._queue.put(None)
        if thread is not threading.current_thread():
            thread.join(timeout)

    def _work(self) -> None:
        while not self._leaving:
            item: Any = self._queue.get()
            if item is None:
                with self._lock:
                    if self._queue.empty():
                        self._thread = None
                        return
                continue
            self._try(item)
            del item  # nothing of a call stays once a flush returns

    def _try(self, what: Callable[[], object]) -> None:
        """Call something and log what it raises; sys.exit in a callback does too."""
        try:
            what()
        except BaseException as error:
            self._failed(error)


log: Final = logging.getLogger("kfuzz.monitor")

# The end of a process waits so long at most for the one check that is under way.
_LAST_CHECK_SECONDS: Final = 60.0


@dataclass(frozen=True)
class Settings:
    """How a process monitors.

    Attributes:
        ring_bytes: room for snapshots; twice that where both CPU and GPU are used.
        pending: calls that may wait for their check.
        exit_seconds: how long the end of the process may wait for checks.
    """

    ring_bytes: int = 64 << 20
    pending: int = 256
    exit_seconds: float = 5.0

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            UsageError: if one is not positive.
        """
        for name in ("ring_bytes", "pending"):
            if getattr(self, name) < 1:
                raise UsageError("must be positive", where=f"monitor: {name}")


class Runtime:
    """Everything that monitored functions of a process share.

    Attributes:
        settings: how it monitors.
        checker: the thread that checks.
        memory: of snapshots.
        monitors: those alive, by number.
        running: whether calls are looked at.
    """

    def __init__(self) -> None:
        self.settings = Settings()
        self.monitors: weakref.WeakValueDictionary[int, Monitor] = (
            weakref.WeakValueDictionary()
        )
        self.running = True
        self._left: list[object] = []
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Start without calls, memory or thread."""
        self.checker = Checker(
            # What a check did not catch itself is a fault of kfuzz's own.
            failed=lambda error: log.error("a check failed", exc_info=error),
        )  # fmt: skip
        self.memory = Memory(
            self.settings.ring_bytes, lambda gone: self.checker.put(gone.end)
        )

    def offer(self, check: Callable[[], None]) -> bool:
        """Have a call checked; whether there is room. Never waits."""
        if self.checker.waiting >= self.settings.pending:
            return False
        self.checker.put(check)
        return True

    def start(self, settings: Settings | None = None) -> None:
        """Look at calls from now on.

        Args:
            settings: how; as before by default. Other ones end what is pending first.
        """
        if settings is not None and settings != self.settings:
            self.stop(settings.exit_seconds)
            self.settings = settings
            self._begin_anew()
        self.running = True
        for monitor in living(self.monitors):
            monitor.active = True

    def stop(self, timeout: float | None = None) -> bool:
        """Look at no call any more; check what is pending.

        Returns:
            Whether everything was checked within the time.
        """
        self._pass_all()
        settled = self.flush(timeout)
        self.checker.end(timeout if settled else 0.0)
        return settled

    def leave(self) -> None:
        """End with the process; log for which functions nothing was judged."""
        self._pass_all()
        if not self.flush(self.settings.exit_seconds):
            self.checker.end(_LAST_CHECK_SECONDS, leaving=True)
        self.stop(0.0)
        for counts in self.statistics():
            if text := unjudged(counts):
                log.warning("%s: %s", counts.function, text)

    def _pass_all(self) -> None:
        """Look at no call any more."""
        self.running = False
        for monitor in living(self.monitors):
            monitor.active = False

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until every call looked at so far is checked.

        Returns:
            Whether that was so within the time; False too where a callback asks.
        """
        return self.checker.flush(timeout)

    def statistics(self) -> tuple[Counts, ...]:
        """Return the counts of every monitored function, sorted by name."""
        counts = (m.statistics() for m in living(self.monitors))
        return tuple(sorted(counts, key=lambda each: each.function))

    def after_fork(self) -> None:
        """Start clean in a forked child: the thread, and what it was to do, is gone.

        What was the parent's is kept: to free pinned memory is not for this process.
        """
        self._left.append((self.checker, self.memory))
        self._begin_anew()
        for monitor in living(self.monitors):
            monitor.clear()


def living(held: "weakref.WeakValueDictionary[int, Monitor]") -> "list[Monitor]":
    """Return the monitors that are alive, in the order in which they were added.

    A `weakref.WeakSet` cannot be read while another thread adds to it, not even to make
    a list of it. This needs no lock, which a fork would leave held.
    """
    # The references are listed in one step; only then is each followed.
    found = (reference() for reference in held.valuerefs())
    return [x for x in found if x is not None]


runtime: Final = Runtime()
"""The one of this process."""


os.register_at_fork(after_in_child=runtime.after_fork)
atexit.register(runtime.leave)
