"""The campaign's side of the zygote: start it, fork from it, outlive it."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn, Protocol, Self

from kfuzz.core.errors import HarnessError
from kfuzz.core.home import with_home
from kfuzz.execution.processes import forking, wire
from kfuzz.execution.processes.child import Child, forked_child
from kfuzz.execution.processes.forking import Forking
from kfuzz.execution.processes.wire import (
    Channel,
    ChildFault,
    Closing,
    Message,
    Output,
    Sink,
    WireError,
    WireTimeout,
    ZygoteError,
    ignore_interrupts,
)

# More than zygote.PRELOAD_SECONDS, so that its own alarm comes first.
START_SECONDS = 200.0

# A fork copies page tables: tens of milliseconds with torch loaded, more under load.
REPLY_SECONDS = 30.0

# For the zygote to end its children and itself; more than forking.END_SECONDS.
STOP_SECONDS = 3.0

# Looks for what a dead zygote left; the left-overs may be forking meanwhile.
SWEEPS = 20

_MODULE = "kfuzz.execution.processes.zygote"


class Zygote(Closing):
    """Starts a zygote by exec and forks children from it.

    The process starts on entering the context (or at the first `fork`) and loads
    its modules while the campaign goes on. If it died, the next `fork` starts
    another. Leaving the context ends it and every child, hung ones too. If the
    campaign is killed, zygote and children end by themselves.

    Args:
        serve: "module:function"; called once in each child, it returns the
            handler that is called once per request.
        env: the whole environment, to which only the place of kfuzz is added at
            the front of PYTHONPATH (and by Python LC_CTYPE, where no locale is set).
        preload: modules to import, and functions to call ("module:function"), before
            any child is forked. They must start no threads and touch no device.
        output: takes what the zygote and its children print, from daemon threads
            and up to a cap for each; None writes it to file descriptor 2.
        prefix: another path of `sys.prefix`, which Python is started by.
        program: what Python reads from its standard input in place of the module
            `zygote`, given that module's arguments; it finds kfuzz by itself.
    """

    def __init__(
        self,
        serve: str,
        *,
        env: Mapping[str, str],
        preload: Sequence[str] = (),
        output: Sink | None = None,
        prefix: str = sys.prefix,
        program: Callable[[Sequence[str]], str] | None = None,
    ) -> None:
        old = "|".join(map(re.escape, {sys.prefix, os.path.realpath(sys.prefix)}))
        moved = partial(re.compile(rf"({old})(?=[/:]|$)").sub, lambda _: prefix)
        env = env if program else with_home(env)
        self._env = {name: moved(value) for name, value in env.items()}
        self._python = moved(sys.executable)
        self.serve = serve
        self._preload = tuple(preload)
        self._program = program
        self._sink = output
        self._running: _Running | None = None
        # A child keeps the warden of its own zygote, not of the next one.
        self._lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        """The process id of the zygote, None if none is running."""
        return self._running.pid if self._running else None

    def start(self) -> None:
        """Start the process, if none is running, without waiting for it."""
        with self._lock:
            self._start()

    def start_here(self, variables: Mapping[str, str] | None = None) -> None:
        """Start it as a fork of this process, which has loaded what it is to have.

        The environment is this one's but for some variables. This process must be
        forkable, see `template.unforkable`, and its threads begin afterwards.
        """
        begin = partial(_Fork, self.serve, dict(variables or {}))
        with self._lock:
            self._running = _Running(begin, self._sink)

    def fork(self, output: Sink | None = None, *, serve: str = "") -> Child:
        """Return a new child; starts the zygote first if it is not there.

        Args:
            output: takes what this child prints, in place of the zygote's.
            serve: what it serves in place of what the zygote's children do.

        Raises:
            ZygoteError: it cannot start (with what it printed) or cannot fork.
        """
        with self._lock:
            fresh = self._running is None
            running = self._start()
            try:
                return running.fork(output, serve)
            except _Gone as gone:
                if fresh or not running.was_ready:
                    self._stop()
                    raise gone.error from None
            # It worked before and died since: one new start.
            self._stop()
            try:
                return self._start().fork(output, serve)
            except _Gone as gone:
                self._stop()
                raise gone.error from None

    def end_children(self) -> None:
        """End every child, so that the zygote can serve someone else."""
        with self._lock:
            if self._running is not None:
                self._running.end_children()

    def close(self) -> None:
        """End the zygote and every child of it, at once."""
        with self._lock:
            self._stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def _start(self) -> "_Running":
        if self._running is None:
            self._running = _Running(self._executed, self._sink)
        return self._running

    def _executed(
        self, control: socket.socket, output: int, kept: Sequence[int]
    ) -> "_Process":
        given = ["--control", str(control.fileno()), "--serve", self.serve]
        given += ["--preload", ",".join(self._preload)]
        # -P keeps the working directory, which holds users' files, off sys.path.
        command = [] if self._program else ["-P", "-m", _MODULE, *given]
        process = subprocess.Popen(
            [self._python, *command],
            env=self._env,
            stdin=subprocess.PIPE if self._program else subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=[control.fileno()],
            # Out of reach of the terminal's Ctrl-C; and its session tells
            # which processes came from it.
            start_new_session=True,
        )
        if self._program and process.stdin:
            with contextlib.suppress(OSError), process.stdin as program:
                program.write(self._program(given).encode())
        return process

    def _stop(self) -> None:
        if self._running is not None:
            self._running.stop()
            self._running = None


class _Process(Protocol):
    """What of `subprocess.Popen` is needed."""

    pid: int
    returncode: int | None

    def kill(self) -> None:
        """Send SIGKILL."""

    def wait(self) -> int:
        """Return the exit status, once there is one."""


class _Fork:
    """A zygote that is a fork of this process; see `_Process`."""

    def __init__(
        self,
        serve: str,
        variables: Mapping[str, str],
        control: socket.socket,
        output: int,
        kept: Sequence[int],
    ) -> None:
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            for descriptor in kept:  # or it would not see that this process ended
                os.close(descriptor)
            os.environ.update(variables)
            _be_zygote(serve, control, output)

    def kill(self) -> None:
        """Send SIGKILL."""
        if self.returncode is None:
            wire.kill(self.pid)

    def wait(self) -> int:
        """Return the exit status, once there is one."""
        if self.returncode is None:
            try:
                _, status = os.waitpid(self.pid, 0)
                self.returncode = os.waitstatus_to_exitcode(status)
            except ChildProcessError:  # a user's file has the system reap children
                self.returncode = -signal.SIGKILL
        return self.returncode


def _be_zygote(serve: str, control: socket.socket, output: int) -> NoReturn:
    """Do in a fork what the module `zygote` does in a process of its own."""
    try:
        os.setsid()
        ignore_interrupts()
        for descriptor in (1, 2):
            os.dup2(output, descriptor)
        greeting = {"ready": True}
        Forking(Channel(control), forking.resolve(serve), lambda r: r).run(greeting)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(0)


class _Gone(Exception):
    """The zygote process is not there any more, or was never ready."""

    def __init__(self, error: ZygoteError) -> None:
        self.error = error
        super().__init__()


class _Running:
    """One zygote process, from its start to its burial; `Warden` of its children."""

    def __init__(
        self,
        begin: Callable[[socket.socket, int, Sequence[int]], "_Process"],
        sink: Sink | None,
    ) -> None:
        """Begin one.

        Args:
            begin: begins the process, given its end of the control connection, where
                it prints, and descriptors that are this process's alone.
            sink: takes what it prints.
        """
        self.was_ready = False
        self._asked = 0
        self._sink = sink
        self._children: dict[int, Child] = {}
        self._lock = threading.RLock()
        # No thread while this process may be forked.
        self._output = Output(sink, "the zygote", drain=False)
        ours, theirs = socket.socketpair()
        with theirs:
            kept = (ours.fileno(), self._output.reader)
            self._process = begin(theirs, self._output.writer, kept)
        self._output.close_writer()
        self._control = Channel(ours)
        self.pid = self._process.pid
        _running.add(self)

    def let_go(self) -> None:
        """Have it be another process's: it is to see that one's end, not this one's."""
        self._control.close()

    def fork(self, sink: Sink | None, serve: str) -> Child:
        with self._lock:
            self._await_ready()
            ask = partial(self._ask, {"do": "fork", "serve": serve})
            child = forked_child(ask, self, sink or self._sink)
            self._children[child.pid] = child
            return child

    def exit_of(self, pid: int) -> int | None:
        with self._lock:
            try:
                found = self._ask({"do": "status", "pid": pid})["exit"]
            except _Gone as gone:
                raise gone.error from None
            return found if isinstance(found, int) else None

    def kill(self, pid: int) -> None:
        with self._lock:
            try:
                self._ask({"do": "kill", "pid": pid})
            except _Gone as gone:
                raise gone.error from None

    def forget(self, pid: int) -> None:
        with self._lock:
            self._children.pop(pid, None)

    def end_children(self) -> None:
        with self._lock:
            for child in list(self._children.values()):
                child.kill()

    def stop(self) -> None:
        """End everything; called once."""
        with self._lock:
            self._control.close()
            # One that nobody waited for has no children, and may be busy importing.
            self._bury(STOP_SECONDS if self.was_ready else 0.0)
            for child in list(self._children.values()):
                child.abandon()
            self._output.finish()

    def _await_ready(self) -> None:
        if self.was_ready:
            return
        self._output.drain()
        try:
            self._control.receive(START_SECONDS)
        except WireError as error:
            raise self._gone("did not start", error) from None
        self.was_ready = True

    def _ask(self, request: Message, descriptors: Sequence[int] = ()) -> Message:
        self._asked += 1
        try:
            self._control.send({**request, "number": self._asked}, REPLY_SECONDS)
            if descriptors:
                socket.send_fds(self._control.socket, [b"\0"], list(descriptors))
            # A reply that Ctrl-C kept us from taking is still there: pass it over.
            while (reply := self._control.receive(REPLY_SECONDS)).get(
                "number"
            ) != self._asked:
                pass
            return reply
        except (WireError, OSError) as error:
            raise self._gone("died", error) from None

    def _gone(self, what: str, error: Exception) -> _Gone:
        late = isinstance(error, WireTimeout)
        code = self._bury(0.0 if late else STOP_SECONDS)
        self._output.finish()
        cause = f"{error}" if late else f"exit status {code}"
        return _Gone(
            ZygoteError(
                f"the process that children are forked from {what} ({cause})",
                output_tail=self._output.tail,
                fix="`kfuzz doctor` prints what is missing here"
                if not self.was_ready
                else "",
            )
        )

    def _bury(self, seconds: float) -> int:
        """Reap the process, killed after `seconds`, and kill all it left."""
        if self._process.returncode is not None:
            return self._process.returncode
        deadline = time.monotonic() + seconds
        while not self._ended() and time.monotonic() < deadline:
            time.sleep(0.002)
        self._process.kill()
        while not self._ended():
            time.sleep(0.002)
        # Not reaped yet, so the number of its session belongs to no one else.
        killed: set[int] = set()
        for _ in range(SWEEPS):
            new = set(wire.session_of(self.pid)) - killed
            for pid in new:
                wire.kill(pid)
            killed |= new
            if not new:
                break
        return self._process.wait()

    def _ended(self) -> bool:
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        with contextlib.suppress(ChildProcessError):
            return os.waitid(os.P_PID, self.pid, options) is not None
        return True  # reaped by someone else


_running: Final[weakref.WeakSet[_Running]] = weakref.WeakSet()


def _let_go() -> None:
    while _running:
        _running.pop().let_go()


# A fork of this process, as another zygote is, would keep them from seeing its end.
os.register_at_fork(after_in_child=_let_go)


# A template: a child that imported what its own children need, and forks them.
#
# What a user's file imports takes seconds. The zygote forks a template that imports it
# once, and every child of that file is forked from there: it starts where the import
# ended. A template is used only as long as a fork of it works: without a thread (what
# another thread holds stays locked in a child), and without a device context (a driver
# refuses to go on in a child).

# A fork copies page tables: tens of milliseconds with torch loaded, more under load.
TEMPLATE_REPLY_SECONDS: Final = 30.0
# Of a template when memory runs out: after its children, which have 1000.
_OOM_SCORE: Final = "500"
# Threads of libraries that see to forks by themselves, by the names that they give.
_SAFE: Final = frozenset({"jemalloc_bg_thd"})  # pyarrow brings it
# What drivers keep open once a context is made: CUDA's memory manager, AMD's driver.
_CONTEXTS: Final = ("/dev/nvidia-uvm", "/dev/kfd")


class Template(Closing):
    """The campaign's side of a template; `Warden` of its children.

    Threads may share one. Leaving it, as a context manager, ends it and its children.

    Args:
        zygote: what it is forked from.
        prepare: "module:function"; called in the template with `message`, it imports
            what the children need and returns what `wait` gives.
        message: for `prepare`.
        output: takes what the template and its children print.
    """

    def __init__(
        self,
        zygote: Zygote,
        prepare: str,
        message: Message,
        *,
        output: Sink | None = None,
    ) -> None:
        self._sink = output
        self._children: dict[int, Child] = {}
        self._lock = threading.RLock()
        self._asked = 0
        self._made: Message | None = None
        self._child = zygote.fork(output, serve=f"{__name__}:serve")
        self._child.send(
            {"prepare": prepare, "message": message, "serve": zygote.serve}
        )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._child.pid

    def wait(self, timeout: float | None) -> Message:
        """Return what was prepared.

        Returns:
            {"made": what `prepare` returned, "unforkable": why no child can be forked
            from it, "" where one can}.

        Raises:
            ChildTimeout: it imports still; wait again.
            ChildDied: the import ended the process.
            ChildRaised: `prepare` raised.
            ZygoteError: the zygote died.
        """
        with self._lock:
            if self._made is None:
                self._made = self._child.wait(timeout)
            return self._made

    def fork(self, output: Sink | None = None) -> Child:
        """Return a new child of a template that was waited for.

        Args:
            output: takes what this child prints, in place of the template's.

        Raises:
            ZygoteError: it died, or cannot fork.
        """
        with self._lock:
            ask = partial(self._ask, {"do": "fork"})
            child = forked_child(ask, self, output or self._sink)
            self._children[child.pid] = child
            return child

    def exit_of(self, pid: int) -> int | None:
        """Return how a child ended, None while it runs; see `Warden`."""
        found = self._ask({"do": "status", "pid": pid})["exit"]
        return found if isinstance(found, int) else None

    def kill(self, pid: int) -> None:
        """Send SIGKILL to a child's process group."""
        self._ask({"do": "kill", "pid": pid})

    def forget(self, pid: int) -> None:
        """Drop a child that is gone."""
        with self._lock:
            self._children.pop(pid, None)

    def close(self) -> None:
        """End it and its children."""
        with self._lock:
            for child in list(self._children.values()):
                child.abandon()
            with contextlib.suppress(HarnessError):
                self._child.kill()

    def _ask(self, request: Message, descriptors: Sequence[int] = ()) -> Message:
        """Return the answer to a request; one that is interrupted ends the template."""
        with self._lock:
            try:
                self._child.send(request)
                if descriptors:
                    self._child.send_descriptors(descriptors)
                return self._child.wait(TEMPLATE_REPLY_SECONDS)
            except ChildFault as fault:
                self.close()
                raise ZygoteError(
                    f"the process that imported the kernel's file died ({fault})",
                    output_tail=self._child.output_tail,
                ) from None
            except BaseException:
                self.close()
                raise


class _Attendant:
    """The template's own side."""

    def __call__(self, message: Message) -> Message:
        return {}  # never called: it attends

    def attend(self, channel: Channel) -> None:
        """Prepare as the first message says, then fork children until the end."""
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)
        request = channel.receive()
        prepare: Any = forking.resolve(request["prepare"])
        before = held()
        envelope = forking.answer(prepare, request["message"])
        if "raised" in envelope:
            channel.send(envelope)
            return
        why = unforkable(before)
        greeting = {"made": envelope["reply"], "unforkable": why}
        if why:
            channel.send({"reply": greeting})
            return
        serve = forking.resolve(request["serve"])
        Forking(channel, serve, _enveloped).run(_enveloped(greeting))


def serve() -> _Attendant:
    """Return what attends to the connection of a template."""
    return _Attendant()


@dataclass(frozen=True)
class Held:
    """What a process holds that forks would share, or miss.

    Attributes:
        threads: their numbers.
        shared: writable mappings that forks share.
        children: its processes.
    """

    threads: frozenset[str]
    shared: frozenset[str]
    children: frozenset[int]


def held() -> Held:
    """Return what this process holds.

    Threads that torch and numpy start as they are imported see to forks by themselves.
    """
    lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    shared = (line.split()[0] for line in lines if line.split()[1].startswith("rw-s"))
    return Held(
        frozenset(os.listdir("/proc/self/task")),
        frozenset(shared),
        frozenset(wire.children_of(os.getpid())),
    )


def unforkable(before: Held) -> str:
    """Return why children of this process would not work alike, "" where they would.

    Args:
        before: what it held when it was known to be forkable.
    """
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{descriptor}").startswith(_CONTEXTS):
                return "it uses the device"
    running = _unsafe_threads(before)
    if running:
        # A library that sees to forks ends its threads as one begins, such as the
        # pools of OpenBLAS that scipy and others bring.
        _fork_once()
        running = _unsafe_threads(before)
    if running:
        names = {_comm(task) for task in running}
        names |= {t.name for t in threading.enumerate() if str(t.native_id) in running}
        return f"it leaves threads running ({', '.join(sorted(filter(None, names)))})"
    if held().shared - before.shared:
        return "it keeps memory that its forks would share"
    if set(wire.children_of(os.getpid())) - before.children:
        return "it leaves processes running"
    return ""


def _unsafe_threads(before: Held) -> set[str]:
    """Return the threads that a fork would miss."""
    others = held().threads - {str(os.getpid())} - before.threads
    return {task for task in others if _comm(task) not in _SAFE}


def _fork_once() -> None:
    """Fork a process that ends at once."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    with contextlib.suppress(ChildProcessError):  # a handler was there first
        os.waitpid(pid, 0)


def _comm(task: str) -> str:
    try:
        return Path(f"/proc/self/task/{task}/comm").read_text().strip()
    except OSError:
        return ""


def _enveloped(reply: Message) -> Message:
    return {"reply": reply}
