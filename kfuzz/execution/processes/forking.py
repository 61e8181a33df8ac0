"""The loop of a process that forks children: they are begun, watched, and reaped."""

import contextlib
import gc
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from kfuzz.execution import parent
from kfuzz.execution.processes import forked, serving, table
from kfuzz.execution.processes.wire import Channel, Message, WireError

# How often dead children are looked for while no request comes. What a dead
# child left running is killed then, which also closes its copies of the pipes.
REAP_MILLISECONDS = 250

# At the end, for children to die; one stuck inside a device driver cannot.
END_SECONDS = 2.0

# A fork request is followed by one byte that carries two descriptors.
DESCRIPTORS = 2


class Forking:
    """The forking loop and its books: which children live, how others ended.

    Args:
        control: to the campaign.
        serve: what children serve that are asked for without a word of it.
        told: returns what is sent for a reply.
    """

    def __init__(
        self, control: Channel, serve: serving.Serve, told: Callable[[Message], Message]
    ) -> None:
        self._control = control
        self._serve = serve
        self._told = told
        self._pid = os.getpid()
        self._alive: set[int] = set()
        self._ended: dict[int, int] = {}
        self._on_child: Any = None

    def run(self, greeting: Message) -> None:
        """Obey the campaign until it is gone, then end every child.

        Args:
            greeting: sent before the first request is read.
        """
        # What a file asked for as it was imported is its children's: how they end is
        # found by waiting for them, here.
        self._on_child = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, 0)
        # What a child leaves behind that has lost its parent comes here.
        parent.prctl(parent.PR_SET_CHILD_SUBREAPER, 1)
        # Objects that live for ever are kept out of the collector's sight: a child's
        # first collection would otherwise copy every page that they lie on.
        gc.collect()
        gc.freeze()
        poll = select.poll()
        poll.register(self._control.fileno(), select.POLLIN)
        try:
            self._control.send(greeting)
            while True:
                if poll.poll(REAP_MILLISECONDS if self._alive else None):
                    request = self._control.receive()
                    reply = self._obey(request)
                    number = request.get("number")
                    self._control.send(self._told({**reply, "number": number}))
                self._reap()
        except WireError:
            self._end()

    def _obey(self, request: Message) -> Message:
        match request:
            case {"do": "fork"}:
                return self._fork(request.get("serve", ""))
            case {"do": "status", "pid": int(pid)}:
                self._reap()
                return {"exit": self._ended.pop(pid, None)}
            case {"do": "kill", "pid": int(pid)}:
                if pid in self._alive:
                    table.kill_group(pid)
                return {}
            case _:
                return {"error": f"unknown request {request!r}"}

    def _fork(self, serve: str) -> Message:
        _, descriptors, _, _ = socket.recv_fds(
            self._control.socket, 1, DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
        )
        connection, output = descriptors
        try:
            pid = os.fork()
        except OSError as error:
            os.close(connection)
            os.close(output)
            return {"error": f"cannot fork: {error}"}
        if pid == 0:
            self._control.close()
            if self._on_child is not None:
                signal.signal(signal.SIGCHLD, self._on_child)
            sock = socket.socket(fileno=connection)
            served = partial(serving.named, serve) if serve else self._serve
            forked.run(served, sock, output, self._pid)
        os.close(connection)
        os.close(output)
        # On both sides, so that the group exists whichever runs first.
        with contextlib.suppress(OSError):  # it may have ended already
            os.setpgid(pid, pid)
        self._alive.add(pid)
        return {"pid": pid}

    def _reap(self) -> None:
        died = False
        while (ended := _any_ended()) is not None:
            ours = ended in self._alive
            if ours:
                # Before the pid is given free: no other group can bear it yet.
                table.kill_group(ended)
            _, status = os.waitpid(ended, 0)
            if ours:
                self._alive.discard(ended)
                self._ended[ended] = os.waitstatus_to_exitcode(status)
                died = True
        if died:
            self._kill_strays()

    def _kill_strays(self) -> None:
        # As subreaper the zygote inherits what left its child's group and lost
        # its parent; nobody else will ever end those.
        for pid in table.children_of(self._pid):
            if pid not in self._alive and _group(pid) not in self._alive:
                table.kill(pid)

    def _end(self) -> None:
        deadline = time.monotonic() + END_SECONDS
        while time.monotonic() < deadline:
            for pid in table.children_of(self._pid):
                table.kill_group(pid)
                table.kill(pid)
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                return
            time.sleep(0.002)


def _any_ended() -> int | None:
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return found.si_pid if found else None


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return 0
