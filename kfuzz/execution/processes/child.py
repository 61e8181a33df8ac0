"""The campaign's side of its processes: children, what they are forked from, others."""

import atexit
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, NoReturn, Self

from kfuzz.core.errors import HarnessError
from kfuzz.core.features import with_home
from kfuzz.execution import parent
from kfuzz.execution.processes import forking, wire
from kfuzz.execution.processes.forking import EXIT_DESCRIPTORS, Forking
from kfuzz.execution.processes.wire import (
    Channel,
    ChildDied,
    ChildFault,
    ChildTimeout,
    Closing,
    Message,
    Output,
    Sink,
    WireClosed,
    WireError,
    WireTimeout,
    ZygoteError,
    ignore_interrupts,
)

# An idle child reads at once; one that does not is as good as hung.
SEND_SECONDS = 20.0

# From a closed connection to the exit; a child that closed it and goes on is killed.
EXIT_SECONDS = 1.0

# From SIGKILL to the exit: freeing memory and a device context takes up to
# seconds, and a process stuck in a device driver never ends.
KILL_SECONDS = 10.0

# Between two looks whether it ended.
_LOOK_SECONDS = (0.0005, 0.02)


class Child(Closing):
    """A forked process that answers one request at a time.

    It is a context manager; leaving it calls `close`. Not for use by two threads
    at once.

    Attributes:
        pid: its process id, also that of its process group.
        end: how it ended, which every later request raises; None while it lives.
    """

    def __init__(
        self, pid: int, channel: Channel, output: Output, server: "_Server"
    ) -> None:
        self.pid = pid
        self._channel = channel
        self._output = output
        self._server = server
        self._waiting = False
        self.end: ChildDied | ZygoteError | None = None
        self._closed = False

    @property
    def output_tail(self) -> str:
        """The last of what the child printed, by whatever means."""
        return self._output.tail

    @property
    def printed(self) -> int:
        """Bytes that the child has printed so far."""
        return self._output.taken

    def send(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Send a request; `wait` then takes the reply.

        Args:
            message: the request.
            descriptors: as `Channel.send` has them.

        Raises:
            ChildDied: it ended since the last reply.
            ChildTimeout: it does not read; it is killed.
            ZygoteError: the zygote died, and the child with it.
            HarnessError: closed, busy with an earlier request, or it cannot be sent.
        """
        self._check_open()
        if self._waiting:
            raise HarnessError("a request is already under way", where=self._where)
        try:
            self._channel.send(message, SEND_SECONDS, descriptors)
        except WireClosed:
            raise self._died() from None
        except WireTimeout:
            self.kill()
            raise ChildTimeout(self.pid, SEND_SECONDS) from None
        self._waiting = True

    def wait(self, timeout: float | None) -> Message:
        """Return the reply to the request sent last.

        Args:
            timeout: seconds; 0 takes what is there, None waits for ever.

        Raises:
            ChildTimeout: no reply yet; the child runs on: wait again or kill it.
            ChildDied: it ended instead of replying.
            ChildRaised: an exception escaped the handler.
            ZygoteError: the zygote died, and the child with it.
            HarnessError: closed, nothing was sent, or what came is no reply (the
                child is killed then).
        """
        self._check_open()
        if not self._waiting:
            raise HarnessError("no request is under way", where=self._where)
        try:
            envelope = self._channel.receive(timeout)
        except WireTimeout:
            raise ChildTimeout(self.pid, timeout) from None
        except WireClosed:
            raise self._died() from None
        except WireError:
            self.kill()
            raise
        self._waiting = False
        return forking.unwrap(envelope, self.pid)

    def request(self, message: Message, timeout: float | None) -> Message:
        """Send and wait; raises what they raise."""
        self.send(message)
        return self.wait(timeout)

    def close(self) -> None:
        """End the child: politely if it is idle, else by `kill`."""
        if self._closed:
            return
        if self._waiting:
            self.kill()
            return
        self._channel.close()
        with suppress(ZygoteError):
            if self._exit_within(EXIT_SECONDS) is None:
                self.kill()
        self.abandon()

    def kill(self) -> None:
        """End the child and its process group by SIGKILL, and see it reaped.

        Raises:
            HarnessError: it did not end, being stuck inside the operating system.
        """
        if self._closed:
            return
        try:
            self._server.kill_child(self.pid)
            code = self._exit_within(KILL_SECONDS)
        except ZygoteError:
            code = -signal.SIGKILL
        self.abandon()
        if code is None:
            raise HarnessError(
                f"still there {KILL_SECONDS:g} s after SIGKILL",
                where=self._where,
                fix="It hangs inside a device driver; the device may need a reset",
            )

    def abandon(self) -> None:
        """Let go of descriptors and thread without ending the process."""
        self._closed = True
        self._channel.close()
        self._output.finish()
        self._server.forget(self.pid)

    @property
    def _where(self) -> str:
        return f"child {self.pid}"

    def _check_open(self) -> None:
        if self.end is not None:
            raise self.end
        if self._closed:
            raise HarnessError("it was closed or killed", where=self._where)

    def _died(self) -> ChildDied | ZygoteError:
        """Return how it ended, once its connection is found closed."""
        if self.end is None:
            try:
                self.end = self._found_dead()
            except ZygoteError as error:
                self.end = error
        self.abandon()
        if isinstance(self.end, ChildDied):
            self.end.output_tail = self.output_tail
        return self.end

    def _found_dead(self) -> ChildDied:
        code = self._exit_within(EXIT_SECONDS)
        disconnected = code in (None, EXIT_DESCRIPTORS)
        if code is None:
            self._server.kill_child(self.pid)
            code = self._exit_within(KILL_SECONDS)
            # Else it was ending by itself, and took its time.
            disconnected = code in (None, -signal.SIGKILL)
        killed = code is None or code < 0
        return ChildDied(
            self.pid,
            exit_code=None if killed else code,
            signal_name=signal_name(code) if killed else None,
            output_tail="",  # once all of it is taken
            disconnected=disconnected,
        )

    def _exit_within(self, seconds: float) -> int | None:
        deadline = time.monotonic() + seconds
        pause, longest = _LOOK_SECONDS
        while (code := self._server.exit_of(self.pid)) is None:
            if time.monotonic() > deadline:
                return None
            time.sleep(pause)
            pause = min(2 * pause, longest)
        return code


def signal_name(code: int | None) -> str:
    """Return the name of the signal that ended a process, by its negative exit code."""
    number = signal.SIGKILL if code is None else -code
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


# The campaign's side of the zygote: start it, fork from it, outlive it.

# More than zygote.PRELOAD_SECONDS, so that its own alarm comes first.
START_SECONDS = 200.0

# A fork copies page tables: tens of milliseconds with torch loaded, more under load.
REPLY_SECONDS = 30.0

# For the zygote to end its children and itself; more than forking.END_SECONDS.
STOP_SECONDS = 3.0

# Looks for what a dead zygote left; the left-overs may be forking meanwhile.
SWEEPS = 20

_ZYGOTE: Final = "kfuzz.execution.processes.zygote"


class _Server(Closing):
    """The campaign's side of a process that forks children, which it starts and reaps.

    Threads may share one.

    Args:
        sink: takes what its children print, by default.
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
        with self._lock:
            if pid not in self._children:
                raise ZygoteError("the process that the child was forked from is gone")
            found = self._ask({"do": "status", "pid": pid})["exit"]
        return found if isinstance(found, int) else None

    def kill_child(self, pid: int) -> None:
        """Send SIGKILL to a child's process group; raises as `exit_of`."""
        with self._lock:
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
        program: what Python reads from its standard input in place of the module
            `zygote`, given that module's arguments; it finds kfuzz by itself.

    Attributes:
        pid: its process id, None if none is running.
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
        program: Callable[[Sequence[str]], str] | None = None,
    ) -> None:
        super().__init__(output, pickled=pickled)
        old = "|".join(map(re.escape, {sys.prefix, os.path.realpath(sys.prefix)}))
        moved = partial(re.compile(rf"({old})(?=[/:]|$)").sub, lambda _: prefix)
        env = env if program else with_home(env)
        self._env = {name: moved(value) for name, value in env.items()}
        self._program = program
        self._python = moved(sys.executable)
        self.serve = serve
        self._preload = ",".join(preload)
        self._started: subprocess.Popen[bytes] | None = None
        self._control: Channel
        self._output: Output
        self._is_ready = False
        self._asked = 0
        self.pid: int | None = None

    def start(self) -> None:
        """Start the process, if none is running, without waiting for it."""
        with self._lock:
            if self.pid is None:
                self._begin(self._executed)

    def start_here(self, variables: Mapping[str, str] | None = None) -> None:
        """Start it as a fork of this process, which has loaded what it is to have.

        The environment is this one's but for some variables. This process must be
        forkable, see `unforkable`, and its threads begin afterwards.
        """

        def forked(control: Channel, output: Output) -> int:
            if pid := os.fork():
                return pid
            os.close(output.reader)  # or it would not see that this process ended
            os.environ.update(variables or {})
            _be_zygote(self.serve, control, output.writer)

        with self._lock:
            self._begin(forked)

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
                if self.pid is not None or not worked:
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
            if self.pid is None:
                return
            self._control.close()
            # One that nobody waited for has no children, and may be busy importing.
            self._reap(STOP_SECONDS if self._is_ready else 0.0)
            self._abandon_children()

    def let_go(self) -> None:
        """Have it be another process's: it is to see that one's end, not this one's."""
        self._control.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def _begin(self, begin: Callable[[Channel, Output], int]) -> None:
        # No thread while this process may be forked.
        self._output = Output(self._sink, "the zygote", drain=False)
        ours, theirs = socket.socketpair()
        self._control, self._is_ready = Channel(ours, pickled=self.pickled), False
        _zygotes.add(self)
        with theirs:
            control = Channel(theirs, pickled=self.pickled)
            self.pid = begin(control, self._output)
        self._output.close_writer()

    def _executed(self, control: Channel, output: Output) -> int:
        given = [str(control.fileno()), str(self.pickled), self.serve, self._preload]
        # -P keeps the working directory, which holds users' files, off sys.path.
        words = [] if self._program else ["-P", "-m", _ZYGOTE, *given]
        self._started = subprocess.Popen(
            [self._python, *words],
            env=self._env,
            stdin=subprocess.PIPE if self._program else subprocess.DEVNULL,
            stdout=output.writer,
            stderr=output.writer,
            pass_fds=[control.fileno()],
            # Out of reach of the terminal's Ctrl-C; and its session
            # identifies which processes came from it.
            start_new_session=True,
        )
        if self._program and self._started.stdin:
            with suppress(OSError), self._started.stdin as program:
                program.write(self._program(given).encode())
        return self._started.pid

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
                numbered = {**request, "number": self._asked}
                self._control.send(numbered, REPLY_SECONDS, descriptors)
                # A reply that Ctrl-C kept us from taking is still there: pass it over.
                while True:
                    reply: Message = self._control.receive(REPLY_SECONDS)["reply"]
                    if reply["number"] == self._asked:
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
        pid, self.pid, self._is_ready = self.pid, None, False
        assert pid is not None
        self._control.close()
        deadline = time.monotonic() + seconds
        while not wire.has_ended(pid) and time.monotonic() < deadline:
            time.sleep(0.002)
        wire.kill(pid)
        while not wire.has_ended(pid):
            time.sleep(0.002)
        # Not reaped yet, so the number of its session belongs to no one else.
        killed: set[int] = set()
        for _ in range(SWEEPS):
            new = set(wire.session_of(pid)) - killed
            wire.kill_all(new)
            killed |= new
            if not new:
                break
        try:
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        except ChildProcessError:  # a user's file has the system reap children
            code = -signal.SIGKILL
        if self._started is not None:
            self._started.returncode, self._started = code, None
        self._output.finish()
        return code


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
        return self._child.wait(timeout)

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
            with suppress(HarnessError):
                self._child.kill()

    def _ask(self, request: Message, descriptors: Sequence[int] = ()) -> Message:
        """Return the answer to a request; one that is interrupted ends the template."""
        with self._lock:
            try:
                self._child.send(request, descriptors)
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
        """Prepare what the first message names, then fork children until the end."""
        with suppress(OSError):
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
        Forking(channel, request["serve"]).run(greeting)


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
        with suppress(OSError):
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
    with suppress(ChildProcessError):  # a handler was there first
        os.waitpid(pid, 0)


def _comm(task: str) -> str:
    try:
        return Path(f"/proc/self/task/{task}/comm").read_text().strip()
    except OSError:
        return ""


# A child's interface without a process, for kernels that have no other home.


class InProcess(Closing):
    """Calls the handler here: no time-out can be kept and a crash ends kfuzz.

    Interrupting (Ctrl-C) passes through.

    Args:
        serve: gives the handler.
    """

    def __init__(self, serve: forking.Serve) -> None:
        self.pid = os.getpid()
        self._handler = forking.start(serve)
        self._sent: Message | None = None

    def send(self, message: Message) -> None:
        """Keep `message` for `wait`."""
        self._sent = message

    def wait(self, timeout: float | None = None) -> Message:
        """Call the handler and return its reply; `timeout` is not kept.

        Raises:
            ChildRaised: an exception escaped the handler.
            HarnessError: nothing was sent, or the reply is no dictionary.
        """
        if self._sent is None:
            raise HarnessError("no request is under way", where="in process")
        message, self._sent = self._sent, None
        envelope = forking.answer(self._handler, message, interruptible=True)
        return forking.unwrap(envelope, self.pid)

    def request(self, message: Message, timeout: float | None = None) -> Message:
        """Send and wait; raises what they raise."""
        self.send(message)
        return self.wait(timeout)

    def close(self) -> None:
        """Do nothing: there is no process to end."""

    kill = close


# Processes of kfuzz's own: started, sent messages, ended with what they began.

LOOK: Final = 0.05
"""Seconds between two looks at a process that is waited for."""
# What is killed ends at once, but where its driver holds it; that is not waited for.
_REAP_SECONDS: Final = 5.0


class OwnProcess(Closing):
    """A process that is sent messages and sends messages.

    Args:
        entry: "module:function"; called with the process's end of the connection.
        environment: its variables, to which the place of kfuzz is added.
        python: options of Python.
        options: of `subprocess.Popen`: its session, or its group.
    """

    def __init__(
        self,
        entry: str,
        environment: Mapping[str, str],
        *,
        python: Sequence[str] = (),
        **options: Any,
    ) -> None:
        ours, theirs = socket.socketpair()
        handle = theirs.fileno()
        with theirs:
            # -P keeps the working folder, which holds users' files, off sys.path. Only
            # the thread that starts it counts: it must not end before this process.
            words = [sys.executable, "-P", *python, "-m", parent.__name__]
            self._process = subprocess.Popen(
                [*words, str(os.getpid()), entry, str(handle)],
                env=with_home(environment),
                stdin=subprocess.DEVNULL,
                stdout=2,  # standard output is the report's alone
                pass_fds=[handle],
                **options,
            )
        self._connection = Connection(ours.detach())

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def send(self, message: object) -> None:
        """Send a message; that the process has ended whoever receives finds out."""
        with suppress(OSError):
            self._connection.send(message)

    def ready(self, seconds: float) -> bool:
        """Return whether a message is there within some seconds.

        Raises:
            EOFError: if the process has ended and none is left.
        """
        if self._connection.poll(seconds):
            return True
        if self._process.poll() is None or self._connection.poll():
            return False  # another may hold its end open
        raise EOFError

    def receive(self) -> Any:
        """Return the next message.

        Raises:
            EOFError: if the process has ended and none is left.
            OSError: likewise.
        """
        return self._connection.recv()

    def ask(
        self, message: object, seconds: float, step: Callable[[], None] = lambda: None
    ) -> Any:
        """Return the reply to a message; the process is ended where none comes.

        Args:
            message: the request.
            seconds: the reply is waited for so long.
            step: called now and then, for a watchdog.

        Raises:
            HarnessError: if the process ended, or did not reply in time.
        """
        self.send(message)
        until = time.monotonic() + seconds
        try:
            while time.monotonic() < until:
                step()
                if self.ready(LOOK):
                    return self.receive()
            what = f"gave no answer for {seconds:g} s"
        except (EOFError, OSError):
            what = f"ended: {self.ended(_REAP_SECONDS)}"
        self.close()
        raise HarnessError(what)

    def messages(
        self, stop: threading.Event, seconds: float
    ) -> Iterator[tuple[str, Any] | None]:
        """Yield what a process that works sends, None where nothing comes for a while.

        Args:
            stop: passed on, once set.
            seconds: between two looks.

        Raises:
            EOFError: if the process ended before its work did.
            Exception: what its work raised.
        """
        asked = False
        while True:
            if stop.is_set() and not asked:
                asked = True
                self.send("stop")
            try:
                message = self.receive() if self.ready(seconds) else None
            except OSError:
                raise EOFError from None
            match message:
                case ("raised", error):
                    raise error
                case ("done", _):
                    return
            yield message

    def ended(self, seconds: float | None = None) -> str:
        """Return how it ended, in words.

        Args:
            seconds: it is waited for so long, and ended then; None for ever.
        """
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:  # it closed its end, and goes on
            self._process.kill()
            code = self._process.wait()
        return f"exit code {code}" if code >= 0 else signal_name(code)

    def close(self) -> None:
        """End the process, with what it began; harmless when repeated."""
        if not self._connection.closed:
            self._connection.close()
            wire.kill_group(self.pid)
            self._process.kill()
            self._process.wait()


def enter(entry: str, descriptor: int) -> NoReturn:
    """Be a process that an `OwnProcess` is the parent's side of."""
    connection = Connection(descriptor)
    os.set_inheritable(connection.fileno(), False)
    os.register_at_fork(after_in_child=connection.close)
    with suppress(EOFError, OSError):  # the parent is gone
        forking.resolve(entry)(connection)
    # Nothing is worth tidying up, and with torch loaded that takes a third of a second.
    # But for what the user's file asked to be called.
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def work(
    connection: Connection,
    perform: Callable[[Connection, threading.Event], Iterator[Any]],
    portable: Callable[[Exception], object],
) -> None:
    """Send what comes of a piece of work; see `OwnProcess.messages`.

    Args:
        connection: to the parent.
        perform: the work, as the first message names it; its event is set once nobody
            takes what comes.
        portable: what is sent of an exception.
    """
    stop = threading.Event()
    outcome: object = ("done", None)
    try:
        for item in perform(connection, stop):
            try:
                connection.send(("item", item))
            except OSError:
                stop.set()
    except Exception as error:
        outcome = ("raised", portable(error))
    connection.send(outcome)


def obey(connection: Connection, stop: threading.Event) -> None:
    """Have an event set when the parent sends another message, or is gone."""

    def receive() -> None:
        with suppress(EOFError, OSError):
            connection.recv()
        stop.set()

    threading.Thread(target=receive, daemon=True).start()
