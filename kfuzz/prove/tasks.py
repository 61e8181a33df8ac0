"""What the process that proves is told, and what it has sent."""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kfuzz.core.recipe import Case
from kfuzz.prove.processes import Process

if TYPE_CHECKING:
    from kfuzz.prove.proving import Outcome

_MODULE: Final = "kfuzz.prove.worker"
_WATCH_SECONDS: Final = 20.0


@dataclass(frozen=True)
class Task:
    """What is to be proved.

    Attributes:
        targets: as on the command line.
        root: the project.
        seconds: for each kernel.
        observe: whether graphs are held against real launches.
    """

    targets: tuple[str, ...]
    root: Path
    seconds: float
    observe: bool = True


@dataclass(frozen=True)
class Failed:
    """Why nothing could be proved.

    Attributes:
        why: what loading the targets raised.
    """

    why: str


@dataclass(frozen=True)
class Watched:
    """Cases whose launches are held against the premises of a proof.

    Attributes:
        kernel: node id.
        cases: of which the launches are captured.
    """

    kernel: str
    cases: tuple[Case, ...]


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
        self._broken: dict[str, str] = {}
        self._done = False
        self._process = Process(_MODULE, interpret=False)
        self._process.send(task)

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

    def broken(self, node_id: str, cases: Sequence[Case]) -> str:
        """Return which premise the launches of cases break, "" if none."""
        if self.failed or node_id not in self._outcomes:
            return ""
        self._process.send(Watched(node_id, tuple(cases)))
        end = time.monotonic() + _WATCH_SECONDS
        while node_id not in self._broken and not self.failed:
            if time.monotonic() > end:
                return "its premises could not be watched: there was no time"
            self._hear()
        return self._broken.pop(node_id, "")

    def close(self) -> None:
        """End the process."""
        self._process.close()

    def _hear(self) -> None:
        try:
            if not self._process.ready():
                return
            message = self._process.receive()
        except (EOFError, OSError):
            self._done = True
            self.failed = self.failed or "the process that proves ended"
            return
        match message:
            case None:
                self._done = True
            case Failed():
                self._done, self.failed = True, message.why
            case Watched(), str() as broken:
                self._broken[message[0].kernel] = broken
            case name, outcome:
                self._outcomes[name] = outcome
