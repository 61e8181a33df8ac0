"""The monitor of one process: its settings, its memory, its beginning and end."""

import atexit
import logging
import os
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kfuzz.core.errors import HarnessError, UsageError
from kfuzz.monitor.checker import Checker
from kfuzz.monitor.counts import Counts, ProcessCounts, append_counts, unjudged
from kfuzz.monitor.gate.device import living, poll_all
from kfuzz.monitor.snapshot import Memory
from kfuzz.store.life import utc_now

if TYPE_CHECKING:
    from kfuzz.monitor.monitored import Monitor
    from kfuzz.monitor.process import JudgeProcess
    from kfuzz.monitor.seen import Seen
    from kfuzz.monitor.subjects.subject import Judged, Subject

log: Final = logging.getLogger("kfuzz.monitor")

# Between two times that the thread writes the counts, where it is not asked.
_WRITE_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 1e-3
# The end of a process waits so long at most for the one check that is under way.
_LAST_CHECK_SECONDS: Final = 60.0


@dataclass(frozen=True)
class Settings:
    """How a process monitors.

    Attributes:
        ring_bytes: room for snapshots; twice that where both CPU and GPU are used.
        pending: calls that may wait for their check.
        state: file that counts are appended to at each flush; None for none.
        exit_seconds: how long the end of the process may wait for checks.
        process: whether calls are judged in a child process.
    """

    ring_bytes: int = 64 << 20
    pending: int = 256
    state: Path | None = None
    exit_seconds: float = 5.0
    process: bool = False

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
            due=self.write_state, every=_WRITE_SECONDS,
            often=poll_all,
        )  # fmt: skip
        self.memory = Memory(self.settings.ring_bytes, self.checker.put)
        self._owner = f"{os.getpid()}-{time.time_ns()}"
        self._written: tuple[Counts, ...] = ()
        self._child: JudgeProcess | None = None

    def offer(self, check: Callable[[], None]) -> bool:
        """Have a call checked; whether there is room. Never waits."""
        if self.checker.waiting >= self.settings.pending:
            return False
        self.checker.put(check)
        return True

    def judge(self, subject: "Subject", seen: "Seen") -> "Judged | None":
        """Judge a call; for the thread alone.

        Returns:
            What came of it; None if a child found that it conforms.

        Raises:
            Outside: as `Subject.judge`.
            Exception: likewise.
        """
        if not self.settings.process:
            return subject.judge(seen)
        from kfuzz.monitor.process import JudgeProcess

        if self._child is None:
            self._child = JudgeProcess()
        return self._child.judge(subject, seen)

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
            monitor.gate.active = True

    def stop(self, timeout: float | None = None) -> bool:
        """Look at no call any more; check what is pending.

        Returns:
            Whether everything was checked within the time.
        """
        self._pass_all()
        settled = self.flush(timeout)
        self.checker.end(timeout if settled else 0.0)
        child, self._child = self._child, None
        if child is not None:
            child.close()
        return settled

    def leave(self) -> None:
        """End with the process; log for which functions nothing was judged."""
        self._pass_all()
        if not self.flush(self.settings.exit_seconds):
            self.checker.leave(_LAST_CHECK_SECONDS)
        self.stop(0.0)
        for counts in self.statistics():
            if text := unjudged(counts):
                log.warning("%s: %s", counts.function, text)

    def _pass_all(self) -> None:
        """Look at no call any more."""
        self.running = False
        for monitor in living(self.monitors):
            monitor.gate.active = False

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until every call looked at so far is checked, and write the counts.

        Returns:
            Whether that was so within the time; False too where a callback asks.
        """
        until = None if timeout is None else time.monotonic() + timeout
        settled = _decided(until)
        left = None if until is None else max(until - time.monotonic(), 0.0)
        settled = self.checker.flush(left) and settled
        self.write_state()
        return settled

    def write_state(self) -> None:
        """Append the counts to the state file, where there is one."""
        if self.settings.state is None:
            return
        counts = self.statistics()
        if counts == self._written:
            return
        self._written = counts
        try:
            append_counts(
                self.settings.state, ProcessCounts(self._owner, utc_now(), counts)
            )
        except HarnessError as error:
            log.warning("%s", error)

    def statistics(self) -> tuple[Counts, ...]:
        """Return the counts of every monitored function, sorted by name."""
        counts = (m.statistics() for m in living(self.monitors))
        return tuple(sorted(counts, key=lambda each: each.function))

    def after_fork(self) -> None:
        """Start clean in a forked child: the thread, and what it was to do, is gone.

        What was the parent's is kept: to free pinned memory, or to end the parent's
        child, is not for this process.
        """
        self._left.append((self.checker, self.memory, self._child))
        self._begin_anew()
        for monitor in living(self.monitors):
            monitor.begin_anew()


def _decided(until: float | None) -> bool:
    """Wait until devices have decided about all calls; whether that was in time."""
    while not poll_all():
        if until is not None and time.monotonic() > until:
            return False
        time.sleep(_POLL_SECONDS)
    return True


runtime: Final = Runtime()
"""The one of this process."""


os.register_at_fork(after_in_child=runtime.after_fork)
atexit.register(runtime.leave)
