"""Judging in a child process: records go through shared memory, verdicts come back.

The child imports the monitored function's file, as `kfuzz run` does, and tells which
calls break their contract; of those this process gathers the evidence itself.
"""

import contextlib
import json
import mmap
import os
import select
import subprocess
import sys
import threading
import time
from typing import Any, Final

import torch

from kfuzz.core.errors import HarnessError
from kfuzz.core.home import with_home
from kfuzz.monitor.seen import Seen
from kfuzz.monitor.subjects.subject import Judged, Outside, Subject
from kfuzz.monitor.transfer import Writer, can_send, room_for

# Monitored functions by file, module where that is one of a package, and name: what the
# child looks up.
SUBJECTS: Final[dict[tuple[str, str, str], Subject]] = {}


# The first answer takes the imports and a kernel's build, a minute at times. Beyond
# twice that the child hangs; meanwhile calls wait, and are dropped if too many do.
ANSWER_SECONDS = 120.0
# What is killed ends at once, but where its driver holds it; that is not waited for.
_REAP_SECONDS: Final = 5.0
_CHUNK: Final = 1 << 16


class JudgeProcess:
    """A child that judges calls, one at a time; for the checking thread alone.

    Only `close` may be called by another thread, while this one waits for an answer.
    """

    def __init__(self, capacity: int) -> None:
        """Make the shared memory; the child is started when it is needed.

        Args:
            capacity: bytes of the shared memory.
        """
        self._handle = os.memfd_create("kfuzz-monitor")
        os.ftruncate(self._handle, capacity)
        self._map = mmap.mmap(self._handle, capacity)
        memory = torch.frombuffer(self._map, dtype=torch.uint8)
        self._capacity = capacity
        self._writer = Writer(memory)
        self._child: subprocess.Popen[bytes] | None = None
        # Held for the moments in which these change, never while a child is asked.
        self._lock = threading.Lock()
        self._is_asking = False
        self._is_closed = False

    def conforms(self, subject: Subject, seen: Seen) -> bool | None:
        """Whether a call keeps its contract; None where the child cannot tell.

        Raises:
            Outside: if the contract says nothing of it.
            HarnessError: if the child ended, gave no answer for `ANSWER_SECONDS`, or
                what it called raised; the next call has another child then.
        """
        # A list, since other threads add functions meanwhile.
        every = list(SUBJECTS.items())
        home = next((k for k, s in every if s is subject), None)
        fits = can_send(seen) and room_for(seen) <= self._capacity
        if home is None or not fits:
            return None
        request = {"home": home, "seen": self._writer.written(seen)}
        answer = self._asked(json.dumps(request))
        if answer.get("outside"):
            raise Outside(answer["outside"])
        if answer.get("error"):
            raise HarnessError(answer["error"], where=subject.name)
        conforms = answer.get("conforms")
        return conforms if isinstance(conforms, bool) else None

    def _asked(self, line: str) -> dict[str, Any]:
        child = self._ready()
        try:
            made: dict[str, Any] = json.loads(_answered(child, f"{line}\n".encode()))
            return made
        except TimeoutError:
            child.kill()
            self._give_up(child)
            raise HarnessError(
                f"the judging process gave no answer for {ANSWER_SECONDS:g} s"
            ) from None
        except (OSError, EOFError):
            code = self._give_up(child)
            raise HarnessError(f"the judging process ended with code {code}") from None
        finally:
            with self._lock:
                self._is_asking = False
                if self._is_closed:
                    self._free()

    def _ready(self) -> "subprocess.Popen[bytes]":
        """Return a child to be asked, which `close` leaves to this thread."""
        with self._lock:
            if self._is_closed:
                raise HarnessError("the monitor was stopped")
            if self._child is None or self._child.poll() is not None:
                self._child = self._started()
            self._is_asking = True
            return self._child

    def _give_up(self, child: "subprocess.Popen[bytes]") -> int | None:
        """Forget a child that ends; return its code, None if it lives on."""
        with self._lock:
            self._child = None
        return _ended(child)

    def _started(self) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "kfuzz.monitor.child"]
        command += [str(self._handle), str(self._capacity)]
        child = subprocess.Popen(
            command,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[self._handle],
            env=with_home(os.environ),
        )
        assert child.stdin is not None
        os.set_blocking(child.stdin.fileno(), False)
        return child

    def close(self) -> None:
        """End the child, and give the memory back.

        Where another thread waits for an answer, the child is killed and the rest is
        that thread's: it reads from the pipe.
        """
        with self._lock:
            self._is_closed = True
            if self._child is not None:
                self._child.kill()
            if not self._is_asking:
                self._free()

    def _free(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            _ended(child)
        os.close(self._handle)


def _answered(child: "subprocess.Popen[bytes]", request: bytes) -> bytes:
    """Return the line that a child answers a request with.

    Raises:
        TimeoutError: if that takes longer than `ANSWER_SECONDS`.
        EOFError, OSError: if the child ends before.
    """
    assert child.stdin is not None
    assert child.stdout is not None
    until = time.monotonic() + ANSWER_SECONDS
    into, out = child.stdin.fileno(), child.stdout.fileno()
    while request:
        _wait_for(into, select.POLLOUT, until)
        request = request[os.write(into, request) :]
    answer = b""
    while not answer.endswith(b"\n"):
        _wait_for(out, select.POLLIN, until)
        part = os.read(out, _CHUNK)
        if not part:
            raise EOFError
        answer += part
    return answer


def _wait_for(handle: int, event: int, until: float) -> None:
    poll = select.poll()
    poll.register(handle, event)
    if not poll.poll(max(until - time.monotonic(), 0.0) * 1e3):
        raise TimeoutError


def _ended(child: "subprocess.Popen[bytes]") -> int | None:
    """Wait for a child that ends, kill it if it does not; return its code, if any."""
    for pipe in (child.stdin, child.stdout):
        assert pipe is not None
        with contextlib.suppress(OSError):
            pipe.close()
    for _ in range(2):
        with contextlib.suppress(subprocess.TimeoutExpired):
            return child.wait(_REAP_SECONDS)
        child.kill()
    return None


def judged_by(child: JudgeProcess, subject: Subject, seen: Seen) -> Judged | None:
    """Return what came of a call; None if the child found that it conforms.

    Raises:
        Outside, HarnessError: as `JudgeProcess.conforms`.
        Exception: whatever a reference raises here.
    """
    return None if child.conforms(subject, seen) else subject.judge(seen)
