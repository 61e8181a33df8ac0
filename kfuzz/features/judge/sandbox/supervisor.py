"""The supervisor: between the campaign and foreign code.

It is forked from the zygote and never imports the foreign file. It starts the process
that does, passes requests on, measures what that takes, ends it at a limit, and tells
the campaign either its answer, unread but for its size and form, or its end. By
tracing or killing its supervisor a hostile process gains no more than it has already:
to answer what it likes, or not to answer.
"""

import _thread
import contextlib
import fcntl
import os
import select
import signal
import socket
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

from kfuzz.core.errors import End, Ended, HarnessError
from kfuzz.execution.processes import wire
from kfuzz.execution.processes.child import signal_name
from kfuzz.execution.processes.wire import (
    Channel,
    Message,
    WireClosed,
    WireError,
    WireTimeout,
)
from kfuzz.features.judge.sandbox import contain
from kfuzz.features.judge.sandbox.contain import (
    Facts,
    Limits,
    Rooms,
    Watch,
    descendants,
    enter_mounts,
    enter_namespaces,
    killed_for_memory,
    restrict,
)
from kfuzz.features.judge.sandbox.hiding import bare_main, hide
from kfuzz.features.judge.sandbox.terms import Measures
from kfuzz.features.judge.sandbox.wire import received

SERVE: Final = "kfuzz.features.judge.sandbox.supervisor:Supervisor"

LOOK_SECONDS: Final = 0.02
"""Between two measurements of what it takes: a few dozen forks."""

SEND_SECONDS: Final = 20.0
"""An idle process reads at once; one that does not is as good as hung."""

EXIT_SECONDS: Final = 1.0
"""From a closed connection to the exit."""

MESSAGE_BYTES: Final = 1 << 20
"""Longest message that foreign code may send: a description, never data."""

TAIL_BYTES: Final = 16 << 10
"""What is kept of its output: a traceback, or a compiler's complaint."""

KILL_SECONDS: Final = 10.0
"""From SIGKILL to the exit: freeing memory and a device context takes seconds."""

_PIPE_BYTES: Final = 1 << 20
_PIECE: Final = 1 << 18
_PIECES: Final = 16
_SWEEPS: Final = 50
_FAILED: Final = 70  # sysexits.h EX_SOFTWARE


class Supervisor:
    """Supervises one process of foreign code; the zygote's children do."""

    def __init__(self) -> None:
        self._supervised: Supervised | None = None

    def __call__(self, message: Message) -> Message:
        """Refuse: requests come by `attend`."""
        raise NotImplementedError

    def attend(self, channel: Channel) -> None:
        """Answer the campaign until it closes the connection, then end everything.

        A message asks to start the process, or for something of it, or for both.
        """
        contain.prctl(contain.PR_SET_DUMPABLE, 0)
        contain.prctl(contain.PR_SET_CHILD_SUBREAPER, 1)
        try:
            while True:
                self._idle(channel)
                reply = {}
                with received(channel) as (message, given):
                    if "start" in message:
                        reply["start"] = self._start(message["start"])
                    if "request" in message:
                        assert self._supervised is not None
                        reply["request"] = self._supervised.exchange(
                            message["request"], given, message["seconds"]
                        )
                channel.send({"reply": reply})
        except WireError:  # the campaign is gone
            pass
        finally:
            if self._supervised is not None:
                self._supervised.kill()

    def _idle(self, channel: Channel) -> None:
        """Wait for the campaign, and keep watch meanwhile."""
        while self._supervised is not None and self._supervised.ended is None:
            if self._supervised.poll([channel.fileno()]):
                return
            self._supervised.look()

    def _start(self, message: Message) -> Message:
        limits, gpu = Limits(**message["limits"]), bool(message["gpu"])
        measures = Measures(**message["measures"])
        rooms = Rooms(Path(message["scratch"]), Path(message["cache"]))
        inside = str(message["inside"])
        hidden = [Path(path) for path in message["hidden"]]

        def settle(channel: Channel, facts: Facts) -> Callable[[], NoReturn]:
            # Process ids are known by their own names from here on.
            from kfuzz.features.judge.sandbox.inside import attend

            contain.prctl(contain.PR_SET_PDEATHSIG, signal.SIGKILL)
            facts = restrict(facts, measures, rooms, limits, hidden, gpu=gpu)
            os.environ.update(rooms.environment())
            tempfile.tempdir = None  # what torch imports may have asked for it
            rooms.work.mkdir(exist_ok=True)
            os.chdir(rooms.work)
            bare_main()
            hide()
            return partial(attend, channel, facts, inside)

        def begin(channel: Channel, facts: Facts) -> NoReturn:
            if facts.pids:
                # A mount names what it hides to whoever looks for mounts.
                landlock = measures.landlock and contain.landlock_version()
                covered = [] if landlock else hidden
                facts = enter_mounts(facts, rooms, limits, covered, gpu=gpu)
            supervise(lambda: settle(channel, facts))

        # A folder that is a file system of its own is empty as seen from here.
        watch = Watch(limits, [rooms.scratch, rooms.cache])
        self._supervised = Supervised(measures, watch, limits.output_bytes, begin)
        answer = self._supervised.exchange({"do": "contained"}, [], limits.open_seconds)
        watch.settle()
        return answer


class Supervised:
    """One process of foreign code with all that it starts.

    Attributes:
        channel: the connection to it.
        printed: bytes that it printed so far.
        facts: what contains it as far as its supervisor knows.
        ended: how it came to its end, None while it lives.
    """

    def __init__(
        self,
        measures: Measures,
        watch: Watch,
        most_printed: int,
        run: Callable[[Channel, Facts], NoReturn],
    ) -> None:
        """Start it.

        Args:
            measures: how to contain it.
            watch: looks at what it takes.
            most_printed: bytes that it may print.
            run: called in the new process with its end of the connection. In new
                namespaces it is process 1, which has to fork again.

        Raises:
            HarnessError: no process can be had.
        """
        self.printed = 0
        self.ended: Ended | None = None
        self._watch = watch
        self._most_printed = most_printed
        self._number = 0
        self._killed = killed_for_memory()
        self._tail = b""
        self._status: int | None = None
        ours, theirs = socket.socketpair()
        self._output, printing = os.pipe()
        os.set_blocking(self._output, False)
        with contextlib.suppress(OSError):
            fcntl.fcntl(self._output, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        facts = enter_namespaces(Facts()) if measures.namespaces else Facts()
        self.facts = facts
        try:
            self.pid = os.fork()
        except OSError as error:
            raise HarnessError(f"cannot fork: {error}", where="supervisor") from None
        if self.pid == 0:
            ours.detach()
            os.dup2(printing, 1)
            os.dup2(printing, 2)
            _become(theirs, run, facts)
        theirs.close()
        os.close(printing)
        self.channel = Channel(ours, limit=MESSAGE_BYTES)

    def exchange(
        self, ask: dict[str, Any], given: list[int], seconds: float
    ) -> Message:
        """Return the answer to a request, or the end that came instead.

        Args:
            ask: the request.
            given: descriptors that go with it.
            seconds: how long it may take.
        """
        ended = self._exchanged(ask, given, seconds)
        if isinstance(ended, Ended):
            return {"ended": asdict(self._end(ended))}
        return {"answer": ended}

    def _exchanged(
        self, ask: dict[str, Any], given: list[int], seconds: float
    ) -> Message | Ended:
        if self.ended is not None:
            return self.ended
        if self.poll([self.channel.fileno()], 0):
            return self._unasked()
        self._number += 1
        deadline = time.monotonic() + seconds
        self._watch.begin()
        try:
            own = {"number": self._number, "given": len(given)}
            self.channel.send({**ask, **own}, SEND_SECONDS)
            if given:
                self.channel.send_descriptors(given, SEND_SECONDS)
        except WireTimeout:
            return Ended(End.HANG, "", "does not read what it is asked")
        except WireClosed:
            return self._death()
        while True:
            left = deadline - time.monotonic()
            if self.poll([self.channel.fileno()], max(min(left, LOOK_SECONDS), 0)):
                try:
                    answer = self.channel.receive(0)
                except WireTimeout:
                    pass  # not all of it yet
                except WireClosed:
                    return self._death()
                except WireError as error:
                    text = f"sends what is no message: {error.what}"
                    return Ended(End.PROTOCOL, "protocol", text)
                else:
                    if answer.pop("number", None) != self._number:
                        text = "answers what it was not asked"
                        return Ended(End.PROTOCOL, "protocol", text)
                    return answer
            passed = self.look()
            if passed is not None:
                return passed
            if left <= 0:
                return Ended(End.HANG, "", f"does not return within {seconds:.0f} s")

    def _unasked(self) -> Ended:
        """Return what a process did that sent, or closed, without being asked."""
        try:
            self.channel.receive(0)
        except WireClosed:
            return self._death()
        except WireError:
            pass
        return Ended(End.PROTOCOL, "protocol", "answers without being asked")

    def poll(self, wanted: list[int], seconds: float = LOOK_SECONDS) -> bool:
        """Wait until one of these can be read; take what was printed meanwhile."""
        deadline = time.monotonic() + seconds
        poll = select.poll()
        for descriptor in (*wanted, self._output):
            poll.register(descriptor, select.POLLIN)
        while True:
            ready = [fd for fd, _ in poll.poll(1000 * max(seconds, 0))]
            if self._output in ready:
                before = self.printed
                self.drain()
                if self.printed == before:  # closed by all that had it
                    poll.unregister(self._output)
            if any(descriptor in ready for descriptor in wanted):
                return True
            seconds = deadline - time.monotonic()
            if seconds <= 0 or self.printed > self._most_printed:
                return False

    def look(self) -> Ended | None:
        """End it if it went past a limit; return its end then."""
        ended = None
        if self.printed > self._most_printed:
            text = f"prints more than {self._most_printed >> 20} MiB"
            ended = Ended(End.OUTPUT, "output limit", text)
        ended = ended or self._watch.excess()
        return None if ended is None else self._end(ended)

    def _death(self) -> Ended:
        """Return how it ended, its connection being closed."""
        if self.ended is not None:
            return self.ended
        deadline = time.monotonic() + EXIT_SECONDS
        while (code := self.status()) is None and time.monotonic() < deadline:
            self.drain()
            time.sleep(0.001)
        if code is None:
            return Ended(End.PROTOCOL, "protocol", "closes its connection and goes on")
        if code > 128:  # by a signal, see `supervise`
            code = 128 - code
        if code == -signal.SIGKILL and killed_for_memory() > self._killed:
            text = "is killed by the system for want of memory"
            return Ended(End.MEMORY, "machine", text)
        if code < 0:
            name = signal_name(code)
            return Ended(End.CRASH, name, f"ends its process: {name}")
        detail = f"exit code {code}"
        return Ended(End.CRASH, detail, f"ends its process: {detail}")

    def _end(self, ended: Ended) -> Ended:
        """End it, for good."""
        if self.ended is None:
            self.kill()
            tail = self._tail.decode(errors="replace")
            self.ended = replace(ended, output=tail)
        return self.ended

    def drain(self) -> None:
        """Take what it has printed."""
        with contextlib.suppress(OSError):
            for _ in range(_PIECES):  # what floods is not followed for ever
                piece = os.read(self._output, _PIECE)
                self.printed += len(piece)
                self._tail = (self._tail + piece[-TAIL_BYTES:])[-TAIL_BYTES:]
                if len(piece) < _PIECE:
                    return

    def status(self) -> int | None:
        """Return how it ended, as `os.waitstatus_to_exitcode` says it, or None."""
        if self._status is None:
            # Orphans of its own end here too.
            with contextlib.suppress(ChildProcessError):
                while (found := os.waitpid(-1, os.WNOHANG))[0]:
                    if found[0] == self.pid:
                        self._status = os.waitstatus_to_exitcode(found[1])
        return self._status

    def kill(self) -> bool:
        """End all its processes; return whether they are gone."""
        deadline = time.monotonic() + KILL_SECONDS
        for sweep in range(_SWEEPS):
            if self._status is None:
                wire.kill(self.pid)
            _kill_all(descendants(os.getpid()))
            while self.status() is None and time.monotonic() < deadline:
                time.sleep(0.001)
            self.status()
            if not descendants(os.getpid()):
                break
            time.sleep(0.0005 * sweep)
        self.drain()
        self.channel.close()
        with contextlib.suppress(OSError):
            os.close(self._output)
        return self._status is not None


def _kill_all(pids: list[int]) -> None:
    """End processes with their groups.

    A group is ended at once: none of it can fork meanwhile, however many they are.
    """
    groups = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            groups.add(os.getpgid(pid))
    for group in groups - {os.getpgrp()}:
        wire.kill_group(group)
    for pid in pids:
        wire.kill(pid)


def _become(
    sock: socket.socket, run: Callable[[Channel, Facts], NoReturn], facts: Facts
) -> NoReturn:
    """Be the supervised process: forget what the supervisor had open, and run."""
    try:
        contain.prctl(contain.PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setsid()
        os.closerange(3, sock.fileno())
        os.closerange(sock.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
        run(Channel(sock), facts)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(_FAILED)


def supervise(begin: Callable[[], Callable[[], NoReturn]]) -> NoReturn:
    """Run something in a process of its own and end as it does.

    As process 1 of a namespace nothing in it can signal this one, and with it all
    others end. What a signal ended is told as 128 and its number, as shells do: process
    1 itself cannot be ended so from within.

    Args:
        begin: called in the new process; returns what runs there until it ends.
    """
    pid = _forked_bare(begin)
    os.closerange(0, os.sysconf("SC_OPEN_MAX"))
    while True:
        try:
            found, status = os.waitpid(-1, 0)
        except ChildProcessError:
            os._exit(_FAILED)
        if found == pid:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


# Nothing on a child's stack but what it runs: it is forked from a thread that began
# here, and the frames of the others are not there any more.
_ROOT: Final = """
def run(fork, begin, tell):
    pid = fork()
    if pid:
        tell(pid)
    else:
        begin()()
"""
_STACK_BYTES: Final = 64 << 20


def _forked_bare(begin: Callable[[], Callable[[], NoReturn]]) -> int:
    """Fork a process without the frames of this one; return its id."""
    told: list[int] = []
    ready, never = _thread.allocate_lock(), _thread.allocate_lock()
    ready.acquire()
    never.acquire()

    def tell(pid: int) -> None:
        told.append(pid)
        ready.release()
        never.acquire()  # a child whose thread ends would be told that its parent did

    def fork() -> int:
        try:
            with warnings.catch_warnings(action="ignore"):
                return os.fork()
        except OSError:
            return -1

    def safely() -> Callable[[], NoReturn]:
        _thread.stack_size(0)
        try:
            return begin()
        except BaseException:
            traceback.print_exc()
            os._exit(_FAILED)

    space: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(_ROOT, "<string>", "exec"), space)
    _thread.stack_size(_STACK_BYTES)
    _thread.start_new_thread(space["run"], (fork, safely, tell))
    ready.acquire()
    if told[0] < 0:
        os._exit(_FAILED)
    return told[0]
