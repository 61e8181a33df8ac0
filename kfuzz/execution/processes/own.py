"""Processes of kfuzz's own: started, sent messages, ended with what they began."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any

from kfuzz.core.home import with_home
from kfuzz.execution import parent
from kfuzz.execution.processes.child import signal_name
from kfuzz.execution.processes.closing import Closing


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
        """Send a message.

        Raises:
            OSError: if the process has ended.
        """
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
    return Connection(int(sys.argv[1]))


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
