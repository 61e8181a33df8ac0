"""The thread that checks, and its queue."""

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from kfuzz.monitor.snapshot import Snapshot

Item = Callable[[], None] | Snapshot
"""A check, or a snapshot to be released once its copies are there."""

# How often the thread looks whether something else is due.
_TICK_SECONDS: Final = 1.0


class Checker:
    """Does what is offered, one after the other, in a thread of its own.

    Its locks are held for microseconds, and never during a check.
    """

    def __init__(
        self,
        *,
        failed: Callable[[BaseException], None],
        due: Callable[[], None],
        every: float,
        often: Callable[[], object] = lambda: None,
    ) -> None:
        """Make a queue; the thread begins with the first item.

        Args:
            failed: told what an item, `due` or `often` raised.
            due: called in the thread now and then.
            every: seconds between two such calls.
            often: called after each item, and each second.
        """
        self._failed = failed
        self._due = due
        self._every = every
        self._often = often
        self._queue: queue.SimpleQueue[Item | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._settled = threading.Condition()
        self._put_in = 0
        self._done = 0
        self._thread: threading.Thread | None = None
        self._leaving = False

    @property
    def waiting(self) -> int:
        """Items that are not done."""
        return self._put_in - self._done

    def put(self, item: Item) -> None:
        """Have an item done; waits for nothing."""
        with self._lock:
            # Not alive where telling of a failure failed.
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._work, name="kfuzz-monitor", daemon=True
                )
                self._thread.start()
            self._put_in += 1
        self._queue.put(item)

    def flush(self, timeout: float | None) -> bool:
        """Wait for all items so far; whether they are done, in time."""
        if threading.current_thread() is self._thread:
            return False  # what is being done asks
        wanted = self._put_in
        with self._settled:
            return self._settled.wait_for(lambda: self._done >= wanted, timeout)

    def end(self, timeout: float | None) -> None:
        """Let the thread end once it has nothing left; the next item begins another."""
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is None:
                return
            self._put_in += 1
        self._queue.put(None)
        if thread is not threading.current_thread():
            thread.join(timeout)

    def leave(self, timeout: float) -> None:
        """Let the thread end after what it does now; what waits is left undone.

        For the end of the process: a thread that is inside torch when the interpreter
        ends takes the process with it, by an abort.
        """
        self._leaving = True
        self.end(timeout)

    def _work(self) -> None:
        due = time.monotonic() + self._every
        while not self._leaving:
            with contextlib.suppress(queue.Empty):
                item: Any = self._queue.get(timeout=_TICK_SECONDS)
                if item is None:
                    self._count()
                    return
                try:
                    self._try(self._do, item)
                finally:
                    del item  # nothing of a call stays once a flush returns
                    self._count()
            self._try(self._often)
            if time.monotonic() > due:
                due = time.monotonic() + self._every
                self._try(self._due)

    def _try(self, what: Callable[..., object], *given: Any) -> None:
        """Call something and tell what it raises; sys.exit in a callback does too."""
        try:
            what(*given)
        except BaseException as error:
            self._failed(error)

    def _count(self) -> None:
        with self._settled:
            self._done += 1
            self._settled.notify_all()

    def _do(self, item: Item) -> None:
        if isinstance(item, Snapshot):
            item.wait()
            item.release()
        else:
            item()
