"""The supervisor: starts foreign code, watches what it takes, and ends it.

It is forked from the zygote and never imports the foreign file. What it starts speaks
with the campaign by a connection of its own; this process only measures it, ends it at
a limit, and tells the campaign how it ended. By tracing or killing its supervisor a
hostile process gains no more than it has already: to answer what it likes, or not to
answer.
"""

import _thread
import contextlib
import faulthandler
import fcntl
import gc
import inspect
import linecache
import os
import select
import signal
import socket
import sys
import tempfile
import time
import traceback
import types
import warnings
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, NoReturn

from kfuzz.core.errors import Ended
from kfuzz.execution import parent
from kfuzz.execution.processes import wire
from kfuzz.execution.processes.wire import Channel, Message, WireError, descendants
from kfuzz.features.judge.sandbox import contain
from kfuzz.features.judge.sandbox.contain import Confinement, Watch

SERVE: Final = "kfuzz.features.judge.sandbox.supervisor:Supervisor"

LOOK_SECONDS: Final = 0.02
"""Between two measurements of what it takes: a few dozen forks."""

KILL_SECONDS: Final = 10.0
"""From SIGKILL to the exit: freeing memory and a device context takes seconds."""

_SWEEPS: Final = 50
_FAILED: Final = 70  # sysexits.h EX_SOFTWARE
# Descriptors of the process that runs foreign code: its connection to the campaign, and
# what is closed once all is there that it starts with.
_CONNECTION, _STARTING = 3, 4
_FREE: Final = 10  # above these


class Supervisor:
    """Supervises one process of foreign code; the zygote's children do."""

    def __init__(self) -> None:
        self._pid = 0
        self._status: int | None = None

    def attend(self, channel: Channel) -> None:
        """Start what the first message names, and report its end when asked to.

        Everything ends when the campaign closes the connection.
        """
        parent.prctl(contain.PR_SET_DUMPABLE, 0)
        parent.prctl(parent.PR_SET_CHILD_SUBREAPER, 1)
        message = channel.receive()
        (connection,) = channel.receive_descriptors(1)
        channel.send({"reply": {}})
        starting, started = os.pipe()
        kept_to, inside = Confinement(message), str(message["inside"])
        message.clear()  # what a fork of this process can still reach names its judge
        self._start(kept_to, inside, connection, started)
        os.close(connection)
        os.close(started)
        # A folder that is a file system of its own is empty as seen from here.
        watch = Watch(kept_to.limits, [kept_to.scratch, kept_to.cache])
        passed: Ended | None = None
        poll = select.poll()
        for descriptor in (channel.fileno(), starting):
            poll.register(descriptor, select.POLLIN)
        try:
            while True:
                ready = [descriptor for descriptor, _ in poll.poll(1000 * LOOK_SECONDS)]
                if starting in ready:
                    watch.settle()
                    poll.unregister(starting)
                if channel.fileno() in ready:
                    reply = self._end(channel.receive()["patience"])
                    reply["passed"] = passed and asdict(passed)
                    channel.send({"reply": reply})
                    continue
                passed = passed or watch.excess()
                if passed or self._ended() is not None:  # or what it left goes on
                    self._kill()
        except WireError:  # the campaign is gone, or needs it no more
            pass
        finally:
            self._kill()

    def _start(self, kept_to: Confinement, inside: str, *descriptors: int) -> None:
        """Start the process.

        In new namespaces it is process 1, which has to fork again.
        """
        kept_to.enter_namespaces()

        def settle() -> Callable[[], NoReturn]:
            # Process ids are known by their own names from here on.
            from kfuzz.features.judge.sandbox.inside import attend

            parent.prctl(parent.PR_SET_PDEATHSIG, signal.SIGKILL)
            kept_to.restrict()
            os.environ.update(kept_to.environment())
            tempfile.tempdir = None  # what torch imports may have asked for it
            work = kept_to.scratch / "work"  # programs seldom have their home for one
            work.mkdir(exist_ok=True)
            os.chdir(work)
            _look_plain()
            channel = Channel(socket.socket(fileno=_CONNECTION))
            started, facts = partial(os.close, _STARTING), kept_to.facts
            vars(kept_to).clear()  # as the message
            return partial(attend, channel, facts, inside, started)

        self._pid = os.fork()
        if self._pid:
            return
        try:
            parent.prctl(parent.PR_SET_PDEATHSIG, signal.SIGKILL)
            os.setsid()
            moved = [fcntl.fcntl(fd, fcntl.F_DUPFD, _FREE) for fd in descriptors]
            for fd, place in zip(moved, (_CONNECTION, _STARTING), strict=True):
                os.dup2(fd, place, inheritable=False)
            os.closerange(_STARTING + 1, os.sysconf("SC_OPEN_MAX"))
            kept_to.enter_mounts()
            supervise(settle)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(_FAILED)

    def _end(self, patience: float) -> Message:
        """End it, where it does not end by itself in time; return its exit code.

        By a signal it is 128 and the signal's number, None where it had to be ended.
        """
        deadline = time.monotonic() + patience
        while (code := self._ended()) is None and time.monotonic() < deadline:
            time.sleep(0.001)
        self._kill()
        return {"code": code}

    def _ended(self) -> int | None:
        """Return its exit code, or None."""
        if self._status is None:
            # Orphans of its own end here too.
            with contextlib.suppress(ChildProcessError):
                while (found := os.waitpid(-1, os.WNOHANG))[0]:
                    if found[0] == self._pid:
                        self._status = _shown(found[1])
        return self._status

    def _kill(self) -> None:
        """End all its processes."""
        deadline = time.monotonic() + KILL_SECONDS
        for sweep in range(_SWEEPS):
            if self._status is None:
                wire.kill(self._pid)
            wire.kill_all(descendants(os.getpid()))
            while self._ended() is None and time.monotonic() < deadline:
                time.sleep(0.001)
            if not descendants(os.getpid()):
                return
            time.sleep(0.0005 * sweep)


def _look_plain() -> None:
    """Be like a process that Python was started for."""
    sys.modules["__main__"] = types.ModuleType("__main__")
    sys.argv = [""]
    linecache.clearcache()
    known: Any = inspect
    known.modulesbyfile.clear()
    known._filesbymodname.clear()
    # It lies in a session of its own, where no terminal's Ctrl-C comes.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Both go on; these are built-in functions as well, whose names alone tell.
    gc.get_freeze_count = (0).conjugate
    faulthandler.is_enabled = "".isalpha


def _shown(status: int) -> int:
    """Return an exit code, or 128 and the number of a signal, as shells show it."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def supervise(begin: Callable[[], Callable[[], NoReturn]]) -> NoReturn:
    """Run something in a process of its own and end as it does.

    As process 1 of a namespace nothing in it can signal this one, and with it all
    others end. Process 1 itself cannot be ended by a signal from within, so that its
    exit code shows what signal ended the other.

    Args:
        begin: called in the new process; returns what runs there until it ends.
    """
    pid = _forked_bare(begin)
    os.closerange(0, os.sysconf("SC_OPEN_MAX"))
    while True:
        found, status = os.waitpid(-1, 0)
        if found == pid:
            os._exit(_shown(status))


_STACK_BYTES: Final = 64 << 20


def _forked_bare(begin: Callable[[], Callable[[], NoReturn]]) -> int:
    """Fork a process without the frames of this one, and what they hold; return its id.

    It is forked from a thread, which never ends: the child would be told that its
    parent did.
    """
    pids: SimpleQueue[int] = SimpleQueue()

    def run() -> None:
        try:
            with warnings.catch_warnings(action="ignore"):
                pid = os.fork()
            if not pid:
                _thread.stack_size(0)
                begin()()
        except BaseException:
            traceback.print_exc()
            os._exit(_FAILED)
        pids.put(pid)
        never = _thread.allocate_lock()
        never.acquire()
        never.acquire()

    _thread.stack_size(_STACK_BYTES)
    _thread.start_new_thread(run, ())
    return pids.get()
