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
from typing import Any, Final, NoReturn, Self

from kfuzz.core.errors import HarnessError
from kfuzz.core.home import with_home
from kfuzz.execution.processes import forking, wire
from kfuzz.execution.processes.child import Child
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


class _Server(Closing):
    """The campaign's side of a process that forks children, which it starts and reaps.

    Threads may share one.

    Args:
        sink: takes what its children print, unless told otherwise.
        pickled: whether messages are pickled, which must come from no stranger.
    """

    def __init__(self, sink: Sink | None, *, pickled: bool) -> None:
        self._sink = sink
        self.pickled = pickled
        self._children: dict[int, Child] = {}
        self._lock = threading.RLock()

    def _ask(self, request: Message, descriptors: Sequence[int] = ()) -> Message:
        """Return the answer to a request, which descriptors go with.

        Raises:
            ZygoteError: it died, and its children with it.
        """
        raise NotImplementedError

    def _forked(self, sink: Sink | None, serve: str) -> Child:
        """Return a new child; raises as `_ask`, and if it cannot fork."""
        output = Output(sink or self._sink, "a child")
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                request = {"do": "fork", "serve": serve}
                reply = self._ask(request, [theirs.fileno(), output.writer])
            output.close_writer()
            if "pid" not in reply:
                raise ZygoteError(str(reply.get("error")))
        except BaseException:
            ours.close()
            output.finish()
            raise
        output.name = f"child {reply['pid']}"
        channel = Channel(ours, pickled=self.pickled)
        child = Child(reply["pid"], channel, output, self)
        self._children[child.pid] = child
        return child

    def exit_of(self, pid: int) -> int | None:
        """Return a child's exit code, minus the signal's number if killed, or None.

        Raises:
            ZygoteError: the process that forked it is gone, and with it the child.
        """
        if pid not in self._children:
            raise ZygoteError("the process that the child was forked from is gone")
        found = self._ask({"do": "status", "pid": pid})["exit"]
        return found if isinstance(found, int) else None

    def kill_child(self, pid: int) -> None:
        """Send SIGKILL to a child's process group; raises as `exit_of`."""
        if pid in self._children:
            self._ask({"do": "kill", "pid": pid})

    def forget(self, pid: int) -> None:
        """Drop a child that is gone."""
        with self._lock:
            self._children.pop(pid, None)

    def _abandon_children(self, error: ZygoteError | None = None) -> None:
        """Let go of all children; those that ended with it raise an error."""
        while self._children:
            _, child = self._children.popitem()
            child.end = error or child.end
            child.abandon()


class Zygote(_Server):
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
        pickled: whether messages are pickled, for children that no stranger can speak
            for.
    """

    def __init__(
        self,
        serve: str,
        *,
        env: Mapping[str, str],
        preload: Sequence[str] = (),
        output: Sink | None = None,
        prefix: str = sys.prefix,
        pickled: bool = False,
    ) -> None:
        super().__init__(output, pickled=pickled)
        old = "|".join(map(re.escape, {sys.prefix, os.path.realpath(sys.prefix)}))
        moved = partial(re.compile(rf"({old})(?=[/:]|$)").sub, lambda _: prefix)
        self._env = {name: moved(value) for name, value in with_home(env).items()}
        self._python = moved(sys.executable)
        self.serve = serve
        self._preload = ",".join(preload)
        self._process: subprocess.Popen[bytes] | _Fork | None = None
        self._control: Channel
        self._output: Output
        self._is_ready = False
        self._asked = 0
        _zygotes.add(self)

    @property
    def pid(self) -> int | None:
        """The process id of the zygote, None if none is running."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start the process, if none is running, without waiting for it."""
        with self._lock:
            if self._process is None:
                self._begin(self._executed)

    def start_here(self, variables: Mapping[str, str] | None = None) -> None:
        """Start it as a fork of this process, which has loaded what it is to have.

        The environment is this one's but for some variables. This process must be
        forkable, see `unforkable`, and its threads begin afterwards.
        """
        with self._lock:
            self._begin(partial(_Fork, self, dict(variables or {})))

    def fork(self, output: Sink | None = None, *, serve: str = "") -> Child:
        """Return a new child; starts the zygote first if it is not there.

        Args:
            output: takes what this child prints, in place of the zygote's.
            serve: what it serves in place of what the zygote's children do.

        Raises:
            ZygoteError: it cannot start (with what it printed) or cannot fork.
        """
        with self._lock:
            worked = self._is_ready
            try:
                return self._forked(output, serve)
            except ZygoteError:
                if self._process is not None or not worked:
                    raise
            # It worked before and died since: one new start.
            return self._forked(output, serve)

    def end_children(self) -> None:
        """End every child, so that the zygote can serve someone else."""
        with self._lock:
            for child in list(self._children.values()):
                child.kill()

    def close(self) -> None:
        """End the zygote and every child of it, at once."""
        with self._lock:
            if self._process is None:
                return
            self._control.close()
            # One that nobody waited for has no children, and may be busy importing.
            self._reap(STOP_SECONDS if self._is_ready else 0.0)
            self._abandon_children()

    def let_go(self) -> None:
        """Have it be another process's: it is to see that one's end, not this one's."""
        if self._process is not None:
            self._control.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def _begin(
        self,
        begin: "Callable[[socket.socket, Output], subprocess.Popen[bytes] | _Fork]",
    ) -> None:
        # No thread while this process may be forked.
        self._output = Output(self._sink, "the zygote", drain=False)
        ours, theirs = socket.socketpair()
        self._control, self._is_ready = Channel(ours, pickled=self.pickled), False
        with theirs:
            self._process = begin(theirs, self._output)
        self._output.close_writer()

    def _executed(
        self, control: socket.socket, output: Output
    ) -> "subprocess.Popen[bytes]":
        # -P keeps the working directory, which holds users' files, off sys.path.
        words = [self._python, "-P", "-m", _MODULE, str(control.fileno())]
        return subprocess.Popen(
            [*words, str(self.pickled), self.serve, self._preload],
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=output.writer,
            stderr=output.writer,
            pass_fds=[control.fileno()],
            # Out of reach of the terminal's Ctrl-C; and its session tells
            # which processes came from it.
            start_new_session=True,
        )

    def _ask(self, request: Message, descriptors: Sequence[int] = ()) -> Message:
        with self._lock:
            self.start()
            if not self._is_ready:
                self._output.drain()
                try:
                    self._control.receive(START_SECONDS)
                except WireError as error:
                    raise self._gone("did not start", error) from None
                self._is_ready = True
            self._asked += 1
            try:
                self._control.send({**request, "number": self._asked}, REPLY_SECONDS)
                if descriptors:
                    self._control.send_descriptors(descriptors, REPLY_SECONDS)
                # A reply that Ctrl-C kept us from taking is still there: pass it over.
                while (reply := self._control.receive(REPLY_SECONDS)).get(
                    "number"
                ) != self._asked:
                    pass
                return reply
            except WireError as error:
                raise self._gone("died", error) from None

    def _gone(self, what: str, error: WireError) -> ZygoteError:
        """Return what is raised of it and its children, once it is found gone."""
        late = isinstance(error, WireTimeout)
        was_ready = self._is_ready
        code = self._reap(0.0 if late else STOP_SECONDS)
        cause = f"{error}" if late else f"exit status {code}"
        gone = ZygoteError(
            f"the process that children are forked from {what} ({cause})",
            output_tail=self._output.tail,
            fix="" if was_ready else "`kfuzz doctor` prints what is missing here",
        )
        self._abandon_children(gone)
        return gone

    def _reap(self, seconds: float) -> int:
        """Reap the process, killed after `seconds`, and kill all it left."""
        process, self._process, self._is_ready = self._process, None, False
        assert process is not None
        self._control.close()
        deadline = time.monotonic() + seconds
        while not _has_ended(process.pid) and time.monotonic() < deadline:
            time.sleep(0.002)
        process.kill()
        while not _has_ended(process.pid):
            time.sleep(0.002)
        # Not reaped yet, so the number of its session belongs to no one else.
        killed: set[int] = set()
        for _ in range(SWEEPS):
            new = set(wire.session_of(process.pid)) - killed
            for pid in new:
                wire.kill(pid)
            killed |= new
            if not new:
                break
        code = process.wait()
        self._output.finish()
        return code


class _Fork:
    """A zygote that is a fork of this process; see `subprocess.Popen`."""

    def __init__(
        self,
        zygote: Zygote,
        variables: Mapping[str, str],
        control: socket.socket,
        output: Output,
    ) -> None:
        self.pid = os.fork()
        if self.pid == 0:
            os.close(output.reader)  # or it would not see that this process ended
            os.environ.update(variables)
            _be_zygote(
                zygote.serve, Channel(control, pickled=zygote.pickled), output.writer
            )

    def kill(self) -> None:
        """Send SIGKILL."""
        wire.kill(self.pid)

    def wait(self) -> int:
        """Return the exit status, once there is one."""
        try:
            return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        except ChildProcessError:  # a user's file has the system reap children
            return -signal.SIGKILL


def _be_zygote(serve: str, control: Channel, output: int) -> NoReturn:
    """Do in a fork what the module `zygote` does in a process of its own."""
    try:
        os.setsid()
        ignore_interrupts()
        for descriptor in (1, 2):
            os.dup2(output, descriptor)
        Forking(control, serve).run({"ready": True})
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(0)


def _has_ended(pid: int) -> bool:
    options = os.WEXITED | os.WNOHANG | os.WNOWAIT
    with contextlib.suppress(ChildProcessError):
        return os.waitid(os.P_PID, pid, options) is not None
    return True  # reaped by someone else


_zygotes: Final[weakref.WeakSet[Zygote]] = weakref.WeakSet()


def _let_go() -> None:
    while _zygotes:
        _zygotes.pop().let_go()


# A fork of this process, as another zygote is, would keep them from seeing its end.
os.register_at_fork(after_in_child=_let_go)


# A template: a child that imported what its own children need, and forks them.
#
# What a user's file imports takes seconds. The zygote forks a template that imports it
# once, and every child of that file is forked from there: it starts where the import
# ended. A template is used only as long as a fork of it works: without a thread (what
# another thread holds stays locked in a child), and without a device context (a driver
# refuses to go on in a child).

# Of a template when memory runs out: after its children, which have 1000.
_OOM_SCORE: Final = "500"
# Threads of libraries that see to forks by themselves, by the names that they give.
_SAFE: Final = frozenset({"jemalloc_bg_thd"})  # pyarrow brings it
# What drivers keep open once a context is made: CUDA's memory manager, AMD's driver.
_CONTEXTS: Final = ("/dev/nvidia-uvm", "/dev/kfd")


class Template(_Server):
    """The campaign's side of a template; leaving it ends it and its children.

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
        super().__init__(output, pickled=zygote.pickled)
        self._made: Message | None = None
        self._child = zygote.fork(output, serve=f"{__name__}:_Attendant")
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
            return self._forked(output, "")

    def close(self) -> None:
        """End it and its children."""
        with self._lock:
            self._abandon_children()
            with contextlib.suppress(HarnessError):
                self._child.kill()

    def _ask(self, request: Message, descriptors: Sequence[int] = ()) -> Message:
        """Return the answer to a request; one that is interrupted ends the template."""
        with self._lock:
            try:
                self._child.send(request)
                if descriptors:
                    self._child.send_descriptors(descriptors)
                return self._child.wait(REPLY_SECONDS)
            except ChildFault as fault:
                gone = ZygoteError(
                    f"the process that imported the kernel's file died ({fault})",
                    output_tail=self._child.output_tail,
                )
                self._abandon_children(gone)
                self.close()
                raise gone from None
            except BaseException:
                self.close()
                raise


class _Attendant:
    """The template's own side."""

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
        Forking(channel, request["serve"], enveloped=True).run(greeting)


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
