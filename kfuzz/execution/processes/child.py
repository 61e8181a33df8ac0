"""The campaign's view of one child: requests, replies, and its end."""

import contextlib
import signal
import socket
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from kfuzz.core.errors import HarnessError
from kfuzz.execution.processes import serving
from kfuzz.execution.processes.closing import Closing
from kfuzz.execution.processes.faults import ChildDied, ChildTimeout, ZygoteError
from kfuzz.execution.processes.forked import EXIT_DESCRIPTORS
from kfuzz.execution.processes.output import Output, Sink
from kfuzz.execution.processes.wire import (
    Channel,
    Message,
    WireClosed,
    WireError,
    WireTimeout,
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
    """What a child needs of the zygote that it was forked from."""

    def exit_of(self, pid: int) -> int | None:
        """Return the exit code, minus the signal's number if killed, or None.

        Raises:
            ZygoteError: the zygote is gone, and with it the child.
        """

    def kill(self, pid: int) -> None:
        """Send SIGKILL to the child's process group."""

    def forget(self, pid: int) -> None:
        """Drop the child from the books; it is gone."""


class Child(Closing):
    """A forked process that answers one request at a time.

    It is a context manager; leaving it calls `close`. Not for use by two threads
    at once. To wait for several children, poll their `fileno`.

    Attributes:
        pid: its process id, also that of its process group.
    """

    def __init__(
        self, pid: int, sock: socket.socket, output: Output, warden: Warden
    ) -> None:
        self.pid = pid
        self._channel = Channel(sock)
        self._output = output
        self._warden = warden
        self._waiting = False
        self._end: ChildDied | ZygoteError | None = None
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
            HarnessError: closed, busy with an earlier request, or not JSON.
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
        return serving.unwrap(envelope, self.pid)

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
            self._warden.kill(self.pid)
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
        if self._end is not None:
            raise self._end
        if self._closed:
            raise HarnessError("it was closed or killed", where=self._where)

    def _died(self) -> ChildDied | ZygoteError:
        """Return how it ended, once its connection is found closed."""
        try:
            code = self._exit_within(EXIT_SECONDS)
            disconnected = code in (None, EXIT_DESCRIPTORS)
            if code is None:
                self._warden.kill(self.pid)
                code = self._exit_within(KILL_SECONDS)
                # Else it was ending by itself, and took its time.
                disconnected = code in (None, -signal.SIGKILL)
        except ZygoteError as error:
            self._end = error
            self.abandon()
            return error
        self.abandon()
        killed = code is None or code < 0
        self._end = ChildDied(
            self.pid,
            exit_code=None if killed else code,
            signal_name=signal_name(code) if killed else None,
            output_tail=self.output_tail,
            disconnected=disconnected,
        )
        return self._end

    def _exit_within(self, seconds: float) -> int | None:
        deadline = time.monotonic() + seconds
        pause, longest = _LOOK_SECONDS
        while (code := self._warden.exit_of(self.pid)) is None:
            if time.monotonic() > deadline:
                return None
            time.sleep(pause)
            pause = min(2 * pause, longest)
        return code


def forked_child(
    ask: Callable[[Sequence[int]], Message], warden: Warden, sink: Sink | None
) -> Child:
    """Return a new child of a process that forks.

    Args:
        ask: asks that process, handing over the child's end of its connection, and
            where it prints; returns the answer.
        warden: of its children.
        sink: takes what the child prints.

    Raises:
        ZygoteError: it cannot fork.
    """
    output = Output(sink, "a child")
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            reply = ask([theirs.fileno(), output.writer])
        output.close_writer()
        if "pid" not in reply:
            raise ZygoteError(str(reply.get("error")))
    except BaseException:
        ours.close()
        output.finish()
        raise
    output.name = f"child {reply['pid']}"
    return Child(reply["pid"], ours, output, warden)


def signal_name(code: int | None) -> str:
    """Return the name of the signal that ended a process, by its negative exit code."""
    number = signal.SIGKILL if code is None else -code
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
