"""Drains what a process prints, so that it neither blocks nor fills memory."""

import contextlib
import fcntl
import os
import select
import threading
from collections.abc import Callable

# Kept for reports: enough for a traceback or a compiler's complaint.
TAIL_BYTES = 64 << 10

# Forwarded per process: more than a person reads, less than fills a CI log when
# thousands of children each print.
FORWARD_BYTES = 256 << 10

# A reader that keeps up wakes once per 64 KiB with the default pipe; this is the
# largest size an ordinary user may ask for, and it cuts the wake-ups of a flood.
PIPE_BYTES = 1 << 20

# Different lines told apart, in all; later ones are passed on each time.
MAX_SEEN = 1 << 17

# After a process is gone, how long to wait for its last bytes: a stray process
# that holds the pipe open must not hold up the campaign.
FINISH_SECONDS = 0.5

Sink = Callable[[bytes], None]


def to_stderr(data: bytes) -> None:
    """Write all of `data` to file descriptor 2."""
    while data:
        data = data[os.write(2, data) :]


class Once:
    """A sink that passes each line on the first time it comes, from whichever process.

    A kernel that prints does so in each call, and a file in each process that imports
    it. Indented lines, and the first of a traceback, go with the new lines beside them.

    Args:
        sink: takes what is new.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._seen: set[int] = set()
        self._lock = threading.Lock()

    def __call__(self, data: bytes) -> None:
        """Take what a process printed."""
        with self._lock:
            kept, news = [], False
            for line in data.splitlines(keepends=True):
                is_new = bool(line.strip()) and hash(line.rstrip()) not in self._seen
                if is_new and len(self._seen) < MAX_SEEN:
                    self._seen.add(hash(line.rstrip()))
                news |= is_new
                if is_new or line[:1].isspace() or line.startswith(b"Traceback"):
                    kept.append(line)
        if news:
            self._sink(b"".join(kept))


class Output:
    """A pipe whose reading end a daemon thread empties, once it is told to.

    Attributes:
        writer: the end to hand to the process; close it with `close_writer`.
        reader: the other end, this process's alone.
        name: whose output it is, for the line that says that more is dropped.
        taken: bytes that it has printed so far.
    """

    def __init__(self, sink: Sink | None, name: str, *, drain: bool = True) -> None:
        self._sink = sink or to_stderr
        self.name = name
        self.taken = 0
        self._tail = b""
        self._forwarded = 0
        self._finished = False
        self.reader, self.writer = os.pipe()
        with contextlib.suppress(OSError):
            fcntl.fcntl(self.reader, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self._stop = os.eventfd(0, os.EFD_CLOEXEC)
        self._thread = threading.Thread(
            target=self._drain, name=f"output of {name}", daemon=True
        )
        if drain:
            self.drain()

    def drain(self) -> None:
        """Begin to empty the pipe; harmless when repeated."""
        if self._thread.ident is None:
            self._thread.start()

    @property
    def tail(self) -> str:
        """The last `TAIL_BYTES` printed, undecodable bytes replaced."""
        return self._tail.decode(errors="replace")

    def close_writer(self) -> None:
        """Close the campaign's copy of the writing end, so that EOF can come."""
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    def finish(self) -> None:
        """Take what is still in the pipe and end the thread; bounded in time."""
        if self._finished:
            return
        self._finished = True
        self.close_writer()
        self.drain()
        self._thread.join(FINISH_SECONDS)
        os.eventfd_write(self._stop, 1)
        # A sink that blocks may hold the thread: leave it the descriptors then.
        self._thread.join(FINISH_SECONDS)
        if not self._thread.is_alive():
            os.close(self.reader)
            os.close(self._stop)

    def _drain(self) -> None:
        poll = select.poll()
        poll.register(self.reader, select.POLLIN)
        poll.register(self._stop, select.POLLIN)
        while self._stop not in (ready := dict(poll.poll())):
            if self.reader in ready:
                piece = os.read(self.reader, PIPE_BYTES)
                if not piece:
                    return
                self._take(piece)

    def _take(self, piece: bytes) -> None:
        self.taken += len(piece)
        self._tail = (self._tail + piece[-TAIL_BYTES:])[-TAIL_BYTES:]
        if self._forwarded >= FORWARD_BYTES:
            return
        shown = piece[: FORWARD_BYTES - self._forwarded]
        self._forwarded += len(shown)
        if self._forwarded >= FORWARD_BYTES:
            shown += f"\n[further output of {self.name} is dropped]\n".encode()
        # A sink that fails (a closed terminal) must not stop the draining.
        with contextlib.suppress(Exception):
            self._sink(shown)
