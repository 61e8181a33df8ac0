"""The processes in which foreign code runs, as their keeper starts and ends them."""

import contextlib
import fcntl
import os
import signal
import socket
import time
from collections.abc import Callable
from typing import Final, NoReturn

from kfuzz.core.errors import HarnessError
from kfuzz.core.untrusted import Measures
from kfuzz.execution.processes import table
from kfuzz.execution.processes.wire import Channel
from kfuzz.judge.sandbox import linux
from kfuzz.judge.sandbox.contain import Facts, enter_namespaces
from kfuzz.judge.sandbox.watch import descendants

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


class Tenant:
    """One process of foreign code with all that it starts.

    Attributes:
        channel: the connection to it.
        printed: bytes that it printed so far.
        facts: what contains it as far as its keeper knows.
    """

    def __init__(
        self, measures: Measures, run: Callable[[Channel, Facts], NoReturn]
    ) -> None:
        """Start it.

        Args:
            measures: how to contain it.
            run: called in the new process with its end of the connection. In new
                namespaces it is process 1, which has to fork again.

        Raises:
            HarnessError: no process can be had.
        """
        self.printed = 0
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
            raise HarnessError(f"cannot fork: {error}", where="keeper") from None
        if self.pid == 0:
            ours.detach()
            os.dup2(printing, 1)
            os.dup2(printing, 2)
            _become(theirs, run, facts)
        theirs.close()
        os.close(printing)
        self.channel = Channel(ours, limit=MESSAGE_BYTES)

    @property
    def tail(self) -> str:
        """The last of what it printed, undecodable bytes replaced."""
        return self._tail.decode(errors="replace")

    @property
    def output(self) -> int:
        """Descriptor that is readable when it has printed."""
        return self._output

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
            # Orphans of the tenant's end here too.
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
                table.kill(self.pid)
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
        table.kill_group(group)
    for pid in pids:
        table.kill(pid)


def _become(
    sock: socket.socket, run: Callable[[Channel, Facts], NoReturn], facts: Facts
) -> NoReturn:
    """Be the tenant: forget what the keeper had open, and run."""
    try:
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setsid()
        _close_all_but(sock.fileno())
        run(Channel(sock), facts)
    finally:
        os._exit(_FAILED)


def _close_all_but(kept: int) -> None:
    os.closerange(3, kept)
    os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))


def supervise(go: Callable[[], NoReturn]) -> NoReturn:
    """As process 1, run something in process 2 and end as it does.

    Nothing in the namespace can signal process 1; with it all others end. What a
    signal ended is told as 128 and its number, as shells do: process 1 itself cannot
    be ended so from within.
    """
    pid = os.fork()
    if pid == 0:
        try:
            go()
        finally:
            os._exit(_FAILED)
    os.closerange(0, os.sysconf("SC_OPEN_MAX"))
    while True:
        try:
            found, status = os.waitpid(-1, 0)
        except ChildProcessError:
            os._exit(_FAILED)
        if found == pid:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)
