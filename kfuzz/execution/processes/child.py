"""The campaign's view of one child: requests, replies, and its end."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any, Final, Protocol

from kfuzz.core.errors import HarnessError
from kfuzz.core.home import with_home
from kfuzz.execution import parent
from kfuzz.execution.processes import forking
from kfuzz.execution.processes.forking import EXIT_DESCRIPTORS
from kfuzz.execution.processes.wire import (
    Channel,
    ChildDied,
    ChildTimeout,
    Closing,
    Message,
    Output,
    WireClosed,
    WireError,
    WireTimeout,
    ZygoteError,
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


class Warden(Protocol):
    """What a child needs of the process that it was forked from; see `Zygote`."""

    def exit_of(self, pid: int) -> int | None:
        """Return how the child ended, None while it runs."""

    def kill_child(self, pid: int) -> None:
        """Send SIGKILL to the child's process group."""

    def forget(self, pid: int) -> None:
        """Drop the child; it is gone."""


class Child(Closing):
    """A forked process that answers one request at a time.

    It is a context manager; leaving it calls `close`. Not for use by two threads
    at once. To wait for several children, poll their `fileno`.

    Attributes:
        pid: its process id, also that of its process group.
        end: how it ended, which every later request raises; None while it lives.
    """

    def __init__(
        self, pid: int, channel: Channel, output: Output, warden: Warden
    ) -> None:
        self.pid = pid
        self._channel = channel
        self._output = output
        self._warden = warden
        self._waiting = False
        self.end: ChildDied | ZygoteError | None = None
        self._closed = False

    def fileno(self) -> int:
        """Return a descriptor that is readable when `wait` need not block."""
        return self._channel.fileno()

    @property
    def output_tail(self) -> str:
        """The last of what the child printed, by whatever means."""
        return self._output.tail

    @property
    def printed(self) -> int:
        """Bytes that the child has printed so far."""
        return self._output.taken

    def send(self, message: Message) -> None:
        """Send a request; `wait` then takes the reply.

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
            self._channel.send(message, SEND_SECONDS)
        except WireClosed:
            raise self._died() from None
        except WireTimeout:
            self.kill()
            raise ChildTimeout(self.pid, SEND_SECONDS) from None
        self._waiting = True

    def send_descriptors(self, descriptors: Sequence[int]) -> None:
        """Hand file descriptors over, after a request that says how many follow.

        Raises:
            ChildDied: it ended meanwhile.
            ChildTimeout: it does not read; it is killed.
            ZygoteError: the zygote died, and the child with it.
        """
        try:
            self._channel.send_descriptors(descriptors, SEND_SECONDS)
        except WireClosed:
            raise self._died() from None
        except WireTimeout:
            self.kill()
            raise ChildTimeout(self.pid, SEND_SECONDS) from None

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
        with contextlib.suppress(ZygoteError):
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
            self._warden.kill_child(self.pid)
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
        self._warden.forget(self.pid)

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
            self._warden.kill_child(self.pid)
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
        while (code := self._warden.exit_of(self.pid)) is None:
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
        module: that it runs; its `main` takes the messages with `served`.
        environment: its variables, to which the place of kfuzz is added.
        python: options of Python.
        options: of `subprocess.Popen`: its session, or its group.
    """

    def __init__(
        self,
        module: str,
        environment: Mapping[str, str],
        *,
        python: Sequence[str] = (),
        **options: Any,
    ) -> None:
        ours, theirs = socket.socketpair()
        handle = theirs.fileno()
        with theirs:
            self._process = subprocess.Popen(
                # -P keeps the working folder, which holds users' files, off sys.path.
                [sys.executable, "-P", *python, *parent.bound(module), str(handle)],
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
        """End the process, with what it began."""
        self._connection.close()
        _end_group(self._process)


@contextmanager
def in_group(
    command: Sequence[str], **options: Any
) -> "Iterator[subprocess.Popen[bytes]]":
    """Start a command in a group of its own, which ends with the block.

    Raises:
        OSError: if it cannot be started.
    """
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, start_new_session=True, **options
    )
    try:
        yield process
    finally:
        _end_group(process)


def _end_group(process: "subprocess.Popen[bytes]") -> None:
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()


def served() -> Connection:
    """Return what a process hears its parent by."""
    connection = Connection(int(sys.argv[1]))
    os.set_inheritable(connection.fileno(), False)
    os.register_at_fork(after_in_child=connection.close)
    return connection


def work(
    perform: Callable[[Connection, threading.Event], Iterator[Any]],
    portable: Callable[[Exception], object],
) -> None:
    """Be a process that works, and send what comes of it; see `OwnProcess.messages`.

    Args:
        perform: the work, as the first message names it; its event is set once nobody
            takes what comes.
        portable: what is sent of an exception.
    """
    connection, stop = served(), threading.Event()
    outcome: object = ("done", None)
    try:
        for item in perform(connection, stop):
            try:
                connection.send(("item", item))
            except OSError:
                stop.set()
    except Exception as error:
        outcome = ("raised", portable(error))
    with suppress(OSError):
        connection.send(outcome)


def obey(connection: Connection, stop: threading.Event) -> None:
    """Have an event set when the parent sends another message, or is gone."""

    def hear() -> None:
        with suppress(EOFError, OSError):
            connection.recv()
        stop.set()

    threading.Thread(target=hear, daemon=True).start()


def end() -> None:
    """End at once: nothing is worth tidying up."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
