"""A process of kfuzz's own, whose Triton compiles, or one whose Triton interprets."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Final

from kfuzz.core.home import HOME
from kfuzz.execution import parent

LOOK: Final = 0.05
"""Seconds between two looks at a process that is waited for."""
# Against one search that has no processor to spare it gets a tenth of one.
_NICE: Final = 10


class Process:
    """A process that is sent messages and sends messages.

    Args:
        module: that it runs; its `main` takes the messages with `serve`.
        interpret: whether its Triton interprets kernels.
        idle: whether it runs on what others leave of the processors.
    """

    def __init__(self, module: str, *, interpret: bool, idle: bool = False) -> None:
        ours, theirs = socket.socketpair()
        path = [HOME, *filter(None, [os.environ.get("PYTHONPATH")])]
        own = {
            "PYTHONPATH": os.pathsep.join(path),
            "TRITON_INTERPRET": "1" if interpret else "0",
            "OMP_NUM_THREADS": "1",  # it works beside a search
        }
        with theirs:
            self._process = subprocess.Popen(
                # -P keeps the working directory, which holds users' files, away.
                [sys.executable, "-P", "-W", "ignore", *parent.bound(module),
                 str(theirs.fileno())],
                env={**os.environ, **own},
                stdin=subprocess.DEVNULL,
                stdout=2,  # standard output is the report's alone
                pass_fds=[theirs.fileno()],
                # Ctrl-C is its parent's to obey. A session of its own would get a
                # share of the processors of its own.
                process_group=0,
            )  # fmt: skip
        if idle:
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, self._process.pid, _NICE)
        self._connection = Connection(ours.detach())

    def send(self, message: object) -> None:
        """Send a message; nothing where the process has ended."""
        with suppress(OSError):
            self._connection.send(message)

    def ready(self, seconds: float = LOOK) -> bool:
        """Return whether a message is there within some seconds.

        Raises:
            EOFError: if the process has ended and none is left.
        """
        if self._connection.poll(seconds):
            return True
        if self._process.poll() is None or self._connection.poll():
            return False
        raise EOFError

    def receive(self) -> Any:
        """Return the next message.

        Raises:
            EOFError: if the process has ended and none is left.
            OSError: likewise.
        """
        return self._connection.recv()

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        with suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait()


def served() -> Connection:
    """Return what a process hears its parent by."""
    return Connection(int(sys.argv[1]))


def end() -> None:
    """End at once: nothing is worth tidying up."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
