"""Length-prefixed frames over a stream socket.

A frame is a 4-byte big-endian length and that many bytes that hold one dictionary:
JSON, of which a stranger may send what it likes, or a pickle between processes of
kfuzz's own, which run with the user's rights as it is.
"""

import contextlib
import fcntl
import json
import os
import pickle
import resource
import signal
import socket
import struct
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Final, Literal, Self

from kfuzz.core.errors import HarnessError, KfuzzError

Message = dict[str, Any]
Handler = Callable[[Message], Message]

# A pinned case travels as text, at most a few MiB; more is a runaway reply, and
# the reader must not be made to allocate whatever a broken child announces.
MAX_FRAME_BYTES = 64 << 20
# Between kfuzz's own processes: a few tensors of the largest class of sizes.
MAX_PICKLED_BYTES = 1 << 30

# Read in pieces: a length alone, without the bytes, must not cost memory.
_CHUNK_BYTES = 1 << 20

_HEADER = struct.Struct(">I")


class WireError(HarnessError):
    """A message cannot be sent, or what arrived is not a message."""


class WireClosed(WireError):
    """The other end is gone; a frame may have been cut short."""


class WireTimeout(WireError):
    """No whole frame arrived, or could be sent, in time."""


def encode(message: Message, *, pickled: bool) -> bytes:
    """Return what a frame holds.

    Raises:
        WireError: it cannot be written, or is longer than `MAX_FRAME_BYTES`.
    """
    try:
        if pickled:
            body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        else:
            body = json.dumps(message, separators=(",", ":")).encode()
    except Exception as error:
        raise WireError(f"the message cannot be written: {error}") from error
    most = MAX_PICKLED_BYTES if pickled else MAX_FRAME_BYTES
    if len(body) > most:
        raise WireError(f"a message of {len(body)} bytes is over the limit of {most}")
    return body


def decode(body: bytes, *, pickled: bool) -> Message:
    """Return the dictionary that a frame holds.

    Raises:
        WireError: it holds none.
    """
    try:
        message = pickle.loads(body) if pickled else json.loads(body)
    except Exception as error:
        raise WireError(f"a frame cannot be read: {error}") from error
    if not isinstance(message, dict):
        raise WireError(f"a frame holds {type(message).__name__}, no dictionary")
    return message


class Channel:
    """One end of a socket that carries frames; it owns the socket.

    It never reads past the frame at hand, so readiness of `fileno()` means what
    it says and ancillary data that follows a frame stays attached to its byte.

    Args:
        sock: the socket.
        limit: longest frame that is taken, in bytes; by default what is sent at most.
        pickled: whether messages are pickled: both ends are kfuzz's own.
    """

    def __init__(
        self, sock: socket.socket, limit: int = 0, *, pickled: bool = False
    ) -> None:
        self.pickled = pickled
        self._sock = sock
        self._limit = limit or (MAX_PICKLED_BYTES if pickled else MAX_FRAME_BYTES)
        self._arrived = bytearray()

    def fileno(self) -> int:
        """Return the descriptor to poll, -1 once closed."""
        return self._sock.fileno()

    def send(
        self,
        message: Message,
        timeout: float | None = None,
        descriptors: Sequence[int] = (),
    ) -> None:
        """Send one message; after `WireTimeout` the channel is of no further use.

        Args:
            message: what the other end is to have.
            timeout: seconds for the whole frame; None waits for ever.
            descriptors: follow it, if there are any; the message announces them, and
                the other end gets copies of its own.

        Raises:
            WireError: it cannot be written, or is too long; nothing was sent.
            WireClosed: the other end is gone.
            WireTimeout: the other end does not read.
        """
        body = encode(message, pickled=self.pickled)
        try:
            self._sock.settimeout(timeout)
            self._sock.sendall(_HEADER.pack(len(body)) + body)
            if descriptors:
                socket.send_fds(self._sock, [b"\0"], list(descriptors))
        except (TimeoutError, BlockingIOError) as error:
            raise WireTimeout(f"the other end did not read for {timeout} s") from error
        except OSError as error:
            raise WireClosed(f"the other end is gone: {error}") from error

    def receive(self, timeout: float | None = None) -> Message:
        """Return the next message; a frame half read at a time-out is kept.

        Args:
            timeout: seconds for the whole frame; 0 takes what is there, None
                waits for ever.

        Raises:
            WireTimeout: no whole frame in time; call again to go on waiting.
            WireClosed: the other end is gone.
            WireError: what arrived is no frame; the channel is of no further use.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        self._fill(_HEADER.size, deadline)
        (size,) = _HEADER.unpack_from(self._arrived)
        if size > self._limit:
            raise WireError(
                f"a frame announces {size} bytes, the limit is {self._limit}"
            )
        self._fill(_HEADER.size + size, deadline)
        body = bytes(self._arrived[_HEADER.size :])
        self._arrived.clear()
        return decode(body, pickled=self.pickled)

    def _fill(self, size: int, deadline: float | None) -> None:
        while (missing := size - len(self._arrived)) > 0:
            try:
                self._sock.settimeout(
                    None if deadline is None else max(0.0, deadline - time.monotonic())
                )
                piece = self._sock.recv(min(missing, _CHUNK_BYTES))
            except (TimeoutError, BlockingIOError) as error:
                raise WireTimeout("no whole frame arrived in time") from error
            except OSError as error:
                raise WireClosed(f"the other end is gone: {error}") from error
            if not piece:
                cut = " in the middle of a frame" if self._arrived else ""
                raise WireClosed(f"the other end closed{cut}")
            self._arrived += piece

    def receive_descriptors(self, count: int) -> list[int]:
        """Return the descriptors that follow the message read last; the caller's.

        Args:
            count: how many there are.

        Raises:
            WireClosed: the other end is gone.
            WireError: there were not as many.
        """
        try:
            self._sock.settimeout(None)
            data, descriptors, _, _ = socket.recv_fds(
                self._sock, 1, count, socket.MSG_CMSG_CLOEXEC
            )
        except OSError as error:
            raise WireClosed(f"the other end is gone: {error}") from error
        if len(descriptors) != count or not data:
            for descriptor in descriptors:
                os.close(descriptor)
            raise WireError(f"{len(descriptors)} descriptors arrived, not {count}")
        return list(descriptors)

    def close(self) -> None:
        """Close the socket; harmless when repeated."""
        self._sock.close()


# Drains what a process prints, so that it neither blocks nor fills memory.

# Kept for reports: enough for a traceback or a compiler's complaint.
TAIL_BYTES = 64 << 10

# Forwarded per process: more than a person reads, less than fills a CI log when
# thousands of children each print.
FORWARD_BYTES = 256 << 10

# A reader that keeps up wakes once per 64 KiB with the default pipe; this is the
# largest size an ordinary user may ask for, and it cuts the wake-ups of a flood.
PIPE_BYTES = 1 << 20

# Different lines distinguished, in all; later ones are passed on each time.
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
    """A pipe whose reading end a daemon thread empties, once it is started.

    Attributes:
        writer: the end to hand to the process; close it with `close_writer`.
        reader: the other end, this process's alone.
        name: whose output it is, for the line that reports that more is dropped.
        taken: bytes that it has printed so far.
    """

    def __init__(self, sink: Sink | None, name: str, *, drain: bool = True) -> None:
        self._sink = sink or to_stderr
        self.name = name
        self.taken = 0
        self._tail = b""
        self._forwarded = 0
        self.reader, self.writer = os.pipe()
        with contextlib.suppress(OSError):
            fcntl.fcntl(self.reader, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
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
        """Take what is still in the pipe; bounded in time.

        The thread ends once nobody can write any more.
        """
        self.close_writer()
        self.drain()
        self._thread.join(FINISH_SECONDS)

    def _drain(self) -> None:
        while piece := os.read(self.reader, PIPE_BYTES):
            self._take(piece)
        os.close(self.reader)

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


# How much memory a child may take, so that it fails before the machine does.
#
# The limit is on the data of the process (RLIMIT_DATA): an allocation beyond it fails
# like any other, as MemoryError in Python and as torch's own error, and the child goes
# on. Without it the system's out-of-memory killer would choose a victim. Address space
# without memory (sparse views, files, a device's mappings) does not count, which a
# limit on address space (RLIMIT_AS) would forbid.

VARIABLE: Final = "KFUZZ_CHILD_MEMORY"
"""Environment variable: MiB that a child may take; 0 for no limit."""

SHARE: Final = 0.5
"""Part of the free memory that one child may take: others run beside it."""


def limit_memory() -> None:
    """Limit what this process may allocate from now on; best effort."""
    room = allowance()
    held = listed(Path("/proc/self/status"), "VmData:")
    if room is None or held is None:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = (held << 10) + room
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))


def allowance() -> int | None:
    """Return how many bytes a child may take, None for no limit.

    What `VARIABLE` gives, else a share of what the machine, or the control group that
    this process lies in, has left.
    """
    given = os.environ.get(VARIABLE, "")
    if given.isdigit():
        return int(given) << 20 or None
    left = free_memory()
    return None if left is None else int(SHARE * left)


def free_memory() -> int | None:
    """Return the bytes that the machine, or this control group, has left, if known."""
    free = listed(Path("/proc/meminfo"), "MemAvailable:")
    left = [free and free << 10, *map(_left, control_groups())]
    known = [n for n in left if n is not None]
    return min(known) if known else None


def listed(path: Path, *labels: str) -> int | None:
    """Return the sum of the numbers that a system's file lists under some names.

    None where it is not there or lists none of them.
    """
    found = None
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in path.read_text().splitlines():
            if line.startswith(labels):
                found = (found or 0) + int(line.split()[1])
    return found


def control_groups(
    groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")
) -> list[Path]:
    """Return the folders of this process's control group (v2) and of those above."""
    with contextlib.suppress(OSError):
        inner = groups / own.read_text().partition("::")[2].strip().lstrip("/")
        # In a container the path may be the host's, which is not mounted here.
        return [g for g in (inner, *inner.parents) if g.is_relative_to(groups)]
    return []


def _left(group: Path) -> int | None:
    """Return the bytes that a control group may still take, None for no limit."""
    try:
        limit = int((group / "memory.max").read_text())
        used = int((group / "memory.current").read_text())
    except (OSError, ValueError):  # "max"
        return None
    # Cached files are counted as used, and are given up when memory is short.
    cached = listed(group / "memory.stat", "inactive_file ") or 0
    return max(limit - used + cached, 0)


# What is closed when a block ends.


class Closing(ABC):
    """A context manager that closes itself at the end of its block."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what it holds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


# Who handles Ctrl-C: the campaign, and no process that it began.

_ignored = False


def ignore_interrupts() -> None:
    """Have this process, and those that it forks, ignore Ctrl-C."""
    global _ignored
    _ignored = True
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def is_child() -> bool:
    """Whether Ctrl-C cannot reach this process: children ignore it.

    One that is judged looks as if it handled it.
    """
    return _ignored or signal.getsignal(signal.SIGINT) is signal.SIG_IGN


# Looking processes up in /proc, to end those that outlive their owner.

_ENDED: Final = os.WEXITED | os.WNOHANG | os.WNOWAIT


def children_of(pid: int) -> list[int]:
    """Return the living or unreaped children of a single-threaded process."""
    with contextlib.suppress(OSError):
        return [int(word) for word in _listing(pid).read_text().split()]
    return [each for each in _all_pids() if stat_of(each)[1:2] == [str(pid)]]


def session_of(pid: int) -> list[int]:
    """Return every process in the session that `pid` leads, `pid` included."""
    found = []
    for each in _all_pids():
        with contextlib.suppress(OSError):
            if os.getsid(each) == pid:
                found.append(each)
    return found


def descendants(pid: int | Literal["self"]) -> list[int]:
    """Return the living processes below one, those that changed their group too."""
    found: list[int] = []
    pending: list[int | Literal["self"]] = [pid]
    while pending:
        with contextlib.suppress(OSError):  # it may end meanwhile
            for listing in Path(f"/proc/{pending.pop()}/task").glob("*/children"):
                with contextlib.suppress(OSError):
                    below = list(map(int, listing.read_text().split()))
                    found += below
                    pending += below
    return found


def has_ended(pid: int) -> bool:
    """Whether a child of this process has ended; it is left to be reaped."""
    with contextlib.suppress(ChildProcessError):
        return os.waitid(os.P_PID, pid, _ENDED) is not None
    return True  # reaped by someone else


def any_ended() -> int | None:
    """Return a child of this process that has ended; it is left to be reaped."""
    with contextlib.suppress(ChildProcessError):
        if found := os.waitid(os.P_ALL, 0, _ENDED):
            return found.si_pid
    return None


def kill_group(pid: int) -> None:
    """Send SIGKILL to the process group that `pid` leads, if there is one."""
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)


def kill(pid: int) -> None:
    """Send SIGKILL to one process, if it is there."""
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)


def kill_all(pids: Collection[int]) -> None:
    """Send SIGKILL to processes with their groups, but for this process's.

    A group is ended at once: none of it can fork meanwhile, however many they are.
    """
    groups = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            groups.add(os.getpgid(pid))
    for group in groups - {os.getpgrp()}:
        kill_group(group)
    for pid in pids:
        kill(pid)


def _listing(pid: int) -> Path:
    # Absent where the kernel was built without CONFIG_PROC_CHILDREN.
    return Path(f"/proc/{pid}/task/{pid}/children")


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def stat_of(pid: int | None) -> list[str]:
    """Return what proc(5) lists of a process from its state on, [] if it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return []
    # The command's name, in brackets, may itself hold spaces and brackets.
    return text.rpartition(")")[2].split()


def processor_seconds(pid: int | None) -> float:
    """Return how long a process has computed, 0 where that cannot be told."""
    user_and_system = stat_of(pid)[11:13]
    return sum(map(int, user_and_system)) / os.sysconf("SC_CLK_TCK")


# What can go wrong in a child, distinguished: late, dead, raised; and the zygote.

# macOS raises the second where Linux raises the first.
FAULT_SIGNALS: Final = (signal.SIGSEGV.name, signal.SIGBUS.name)


class ChildFault(KfuzzError):
    """Something that the code under test did; never a fault of kfuzz."""


class ChildTimeout(ChildFault):
    """No reply in time; the child still runs: wait again, or kill it."""

    def __init__(self, pid: int, seconds: float | None) -> None:
        self.seconds = seconds
        super().__init__(f"no reply within {seconds} s", where=f"child {pid}")


class ChildDied(ChildFault):
    """The child ended instead of replying; it is reaped.

    Attributes:
        exit_code: what it exited with, None if a signal ended it.
        signal_name: the signal that ended it, such as "SIGSEGV", else None.
        output_tail: the last of what it printed, decoded with replacement.
        disconnected: whether it closed its connection and went on, so that it had to
            be ended.
    """

    def __init__(
        self,
        pid: int,
        exit_code: int | None,
        signal_name: str | None,
        output_tail: str,
        *,
        disconnected: bool = False,
    ) -> None:
        self.disconnected = disconnected
        self.exit_code = exit_code
        self.signal_name = signal_name
        self.output_tail = output_tail
        cause = "it closed its connection" if disconnected else self.how
        super().__init__(f"died instead of replying ({cause})", where=f"child {pid}")

    @property
    def how(self) -> str:
        """How it ended: the signal's name, or its exit code."""
        return self.signal_name or f"exit code {self.exit_code}"

    @property
    def faulted(self) -> bool:
        """Whether it touched memory that it may not."""
        return self.signal_name in FAULT_SIGNALS


class ChildRaised(ChildFault):
    """An exception escaped the handler; the child lives and takes requests.

    Attributes:
        type: name of the exception's class, such as "ValueError".
        message: its text, cut to a length fit for a report.
        traceback: as Python prints it, cut likewise.
    """

    def __init__(self, pid: int, type: str, message: str, traceback: str) -> None:
        self.type = type
        self.message = message
        self.traceback = traceback
        super().__init__(f"raised {type}: {message}", where=f"child {pid}")


class ZygoteError(HarnessError):
    """The zygote cannot start, died, or cannot fork."""

    def __init__(self, what: str, *, output_tail: str = "", fix: str = "") -> None:
        self.output_tail = output_tail
        last = output_tail.rstrip().rpartition("\n")[2].strip()
        shown = f"; the last it printed: {last}" if last else ""
        super().__init__(what + shown, where="zygote", fix=fix)
