"""What the process that proves is told, and how it is begun and heard."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kfuzz.core.home import HOME

if TYPE_CHECKING:
    from kfuzz.prove.proving import Outcome

_MODULE: Final = "kfuzz.prove.worker"
_LOOK: Final = 0.05


@dataclass(frozen=True)
class Task:
    """What is to be proved.

    Attributes:
        targets: as on the command line.
        root: the project.
        seconds: for each kernel.
        only: node ids; empty for every kernel.
    """

    targets: tuple[str, ...]
    root: Path
    seconds: float
    only: tuple[str, ...] = ()


@dataclass(frozen=True)
class Failed:
    """Why nothing could be proved.

    Attributes:
        why: what loading the targets raised.
    """

    why: str


class Proving:
    """The process, and the outcomes that it has sent.

    Args:
        task: what to prove.

    Attributes:
        failed: why it proves nothing, "" while it may.
    """

    def __init__(self, task: Task) -> None:
        self.failed = ""
        self._outcomes: dict[str, Outcome] = {}
        self._done = False
        ours, theirs = socket.socketpair()
        path = [HOME, *filter(None, [os.environ.get("PYTHONPATH")])]
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-W", "ignore", "-m", _MODULE,
                 str(theirs.fileno())],
                env={**_environment(os.environ), "PYTHONPATH": os.pathsep.join(path)},
                stdin=subprocess.DEVNULL,
                stdout=2,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )  # fmt: skip
        self._connection = Connection(ours.detach())
        with suppress(OSError):
            self._connection.send(task)

    def outcome(
        self, node_id: str, *, stop: threading.Event, until: float = float("inf")
    ) -> "Outcome | None":
        """Return what came of a kernel, waiting for it; None where nothing did.

        Args:
            node_id: the kernel.
            stop: ends the wait.
            until: `time.monotonic()` at which it ends.
        """
        while node_id not in self._outcomes and not self._done:
            if stop.is_set() or time.monotonic() >= until:
                break
            self._hear()
        return self._outcomes.get(node_id)

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        with suppress(OSError):
            os.killpg(self._process.pid, 9)
        self._process.kill()
        self._process.wait()

    def _hear(self) -> None:
        try:
            if not self._connection.poll(_LOOK):
                if self._process.poll() is None or self._connection.poll():
                    return
                raise EOFError
            message = self._connection.recv()
        except (EOFError, OSError):
            self._done = True
            self.failed = self.failed or "the process that proves ended"
            return
        if message is None:
            self._done = True
        elif isinstance(message, Failed):
            self._done, self.failed = True, message.why
        else:
            name, outcome = message
            self._outcomes[name] = outcome


def _environment(outer: Mapping[str, str]) -> dict[str, str]:
    """Return that of a process in which Triton compiles, and which uses one thread."""
    return {**outer, "TRITON_INTERPRET": "0", "OMP_NUM_THREADS": "1"}
