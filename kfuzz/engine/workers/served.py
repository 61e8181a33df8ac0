"""A child that serves requests, its pulse, and waiting for it."""

import contextlib
import math
import os
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from kfuzz.engine.workers.jobs import LOOK_SECONDS, Stopped
from kfuzz.evaluation.worker import (
    CALL_BYTES,
    COMPILING_BYTE,
    PULSE_BYTES,
    STACK_SIGNAL,
)
from kfuzz.execution.calls.occupied import Holder
from kfuzz.execution.processes import ChildDied, ChildRaised, ChildTimeout

# A stack is a few kilobytes, written at once unless the machine is busy.
STACK_SECONDS: Final = 1.0
STACK_BYTES: Final = 8000
# A child that computes for more than this share of the time does not sleep, and is
# given at least this share of its limit in processor time: on a machine with more
# to do than processors a slow kernel is no hang.
_AWAKE: Final = 0.1
_SHARE: Final = 0.5
# A child that prints waits for who reads it. As long as it prints it gets this long.
PRINTING_SECONDS: Final = 120.0

# A call whose programs are interpreted one after the other does not hang as long as
# they come to their turn, up to so many times the limit: a grid may take longer than
# anybody waits.
PROGRESS_FACTOR: Final = 15.0


class Peer(Protocol):
    """A child, or the same interface without a process."""

    def send(self, message: dict[str, Any]) -> None:
        """Send one request."""

    def wait(self, timeout: float | None) -> dict[str, Any]:
        """Return the reply."""

    def close(self) -> None:
        """End it."""

    def kill(self) -> None:
        """End it at once."""


class CompilesLong(Exception):
    """A request is given up, since something takes too long to compile for it."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"compiling for more than {seconds:.1f} s")
        self.seconds = seconds


class Served:
    """A peer with its pulse: the count of kernel calls that it shares.

    Attributes:
        peer: the child.
        pulse: descriptor of what it shares; None without a process.
        lost: whether it has ended.
        busy: whether a reply is still to come.
    """

    def __init__(
        self, peer: Peer, pulse: int | None, expired: Callable[[], bool]
    ) -> None:
        self.peer = peer
        self.pulse = pulse
        self.lost = self.busy = False
        self._expired = expired
        self._pid: int | None = getattr(peer, "pid", None)
        self._since = self._begun = self._now()
        self._progresses = False
        self._printed = 0

    def send(self, message: dict[str, Any]) -> None:
        """Send one request."""
        self._since = self._begun = self._now()
        self.busy = True
        self.peer.send(message)

    def wait(
        self,
        limit: float,
        *,
        on_device: float = math.inf,
        compiling: float = math.inf,
        until: float = math.inf,
    ) -> dict[str, Any]:
        """Return the reply; limits are per kernel call, not per request.

        They begin anew with each program of an interpreted call, within reason.

        Args:
            limit: seconds, of which a child that computes gets half in processor
                time.
            on_device: seconds for which a device alone may be waited for.
            compiling: seconds that compilations may take, all together.
            until: `time.monotonic()` after which nothing is waited for.

        Raises:
            ChildDied, ChildRaised: as the child does.
            ChildTimeout: once a limit has passed.
            CompilesLong: if compilations take longer than they may.
        """
        beat, self._progresses = self._beat(), False
        compiled, look = 0.0, min(limit, LOOK_SECONDS)
        while True:
            try:
                reply = self.peer.wait(look)
                self.busy = False
                return reply
            except ChildRaised:
                self.busy = False
                raise
            except ChildTimeout:
                if self._expired():
                    calling = self._calling()
                    self.discard()
                    raise Stopped(calling) from None
                if until < math.inf and time.monotonic() >= until:
                    raise
                now = self._beat()
                if now and now[COMPILING_BYTE]:
                    compiled += look
                    if compiled >= compiling:
                        raise CompilesLong(compiled) from None
                if now[:CALL_BYTES] != beat[:CALL_BYTES]:
                    beat, self._since = now, self._now()
                    self._begun = self._since
                elif now != beat:
                    beat, self._since = now, self._now()
                    _, self._progresses = self._had(
                        PROGRESS_FACTOR * limit, self._begun
                    )
                    if self._progresses:
                        raise
                elif self._is_over(self.limit(limit, on_device=on_device)):
                    raise
            except ChildDied:
                self.discard()
                raise

    def is_in_kernel(self) -> bool:
        """Whether the kernel has the peer's process; True where it cannot be told."""
        beat = self._beat()
        return not beat or beat[1] != Holder.KFUZZ

    def limit(self, limit: float, *, on_device: float) -> float:
        """Return how long what the peer does now may take, see `wait`."""
        if self._progresses:
            return PROGRESS_FACTOR * limit
        beat = self._beat()
        waits = beat and beat[1] == Holder.DEVICE
        return min(limit, on_device) if waits else limit

    def stack(self) -> str:
        """Return where the threads of a busy peer are, in Python; "" if it cannot say.

        It is told to the pulse's file, so that nothing is printed.
        """
        if self.pulse is None or self._pid is None or self.lost:
            return ""
        with contextlib.suppress(OSError):
            os.kill(self._pid, STACK_SIGNAL)
        size, deadline = PULSE_BYTES, time.monotonic() + STACK_SECONDS
        while time.monotonic() < deadline:
            time.sleep(STACK_SECONDS / 20)
            now = os.fstat(self.pulse).st_size
            if now > PULSE_BYTES and now == size:  # it writes no more
                break
            size = now
        told = os.pread(self.pulse, STACK_BYTES, PULSE_BYTES)
        return told.decode(errors="replace")

    def discard(self) -> None:
        """End the peer and forget its pulse."""
        if not self.lost:
            self.lost = True
            self.peer.kill()
            self.peer.close()
            if self.pulse is not None:
                os.close(self.pulse)

    def _calling(self) -> float:
        """Return for how long the kernel has not returned, 0 where it is not called."""
        beat = self._beat()
        if not beat or beat[COMPILING_BYTE] or not self.is_in_kernel():
            return 0.0
        return self._now()[0] - self._since[0]

    def _is_over(self, limit: float) -> bool:
        """Whether a call has had its time."""
        elapsed, over = self._had(limit, self._since)
        before, self._printed = self._printed, getattr(self.peer, "printed", 0)
        prints = self._printed != before and elapsed < PRINTING_SECONDS
        return over and not prints

    def _had(self, limit: float, since: tuple[float, float]) -> tuple[float, bool]:
        """Return how long ago that was, and whether a limit has passed since then.

        It has not where other processes had the processor.
        """
        elapsed, computed = (
            now - then for now, then in zip(self._now(), since, strict=True)
        )
        starved = _AWAKE * elapsed < computed < _SHARE * limit
        return elapsed, elapsed >= limit and not starved

    def _now(self) -> tuple[float, float]:
        """Return the time, and the processor time that the peer has had, in seconds."""
        return time.monotonic(), processor_seconds(self._pid)

    def _beat(self) -> bytes:
        if self.pulse is None or self.lost:
            return b""
        return os.pread(self.pulse, PULSE_BYTES, 0)


def processor_seconds(pid: int | None) -> float:
    """Return how long a process has computed, 0 where that cannot be told."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            # The name in parentheses may hold anything; utime and stime are the
            # 14th and 15th field (proc(5)).
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def new_pulse() -> int:
    """Return a descriptor of memory that has no name and so leaves no file."""
    descriptor = os.memfd_create("kfuzz-pulse")
    os.truncate(descriptor, PULSE_BYTES)
    return descriptor


def path_of(pulse: int | None) -> str:
    """Return the path at which a child can open a pulse."""
    return "" if pulse is None else f"/proc/{os.getpid()}/fd/{pulse}"
