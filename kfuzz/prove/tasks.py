"""The process that proves, as the search has it: what it gets, and what it sends."""

import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from kfuzz.core.proof import KernelProof
from kfuzz.core.recipe import Case
from kfuzz.execution.launches.process import LOOK, Process

if TYPE_CHECKING:
    from kfuzz.prove.groups import Watch

MODULE: Final = "kfuzz.prove.worker"
_AT_ONCE: Final = 8


class Task(NamedTuple):
    """What is to be proved.

    Attributes:
        targets: as on the command line.
        root: the project.
        seconds: for each kernel.
    """

    targets: tuple[str, ...]
    root: Path
    seconds: float


class Counterexample(NamedTuple):
    """A case on which a property seems not to hold, with the source's line and why."""

    property: str
    case: Case
    line: int
    why: str


@dataclass
class Outcome:
    """What came of one kernel.

    Attributes:
        proof: what is proved; counterexamples are open until they are run.
        counterexamples: cases to run, those of one property together, small ones first.
        watch: the premises, None where nothing is proved.
        seconds: in all.
    """

    proof: KernelProof
    counterexamples: list[Counterexample] = field(default_factory=list)
    watch: "Watch | None" = None
    seconds: float = 0.0


@dataclass
class _Watch:
    """What is watched of one kernel.

    Attributes:
        taken: cases that were handed over.
        pending: of these, those that have not been sent.
        seen: cases that were held against the premises.
        broken: which premise a launch breaks, "" if none does.
    """

    taken: int = 0
    pending: list[Case] = field(default_factory=list)
    seen: int = 0
    broken: str = ""


class Proving:
    """The process, and the outcomes that it has sent. Threads may share it.

    Args:
        task: what to prove.
        idle: whether it is to leave the processors to others.

    Attributes:
        failed: why it proves nothing, "" while it may.
    """

    def __init__(self, task: Task, *, idle: bool = False) -> None:
        self.failed = ""
        self._outcomes: dict[str, Outcome] = {}
        self._watches: dict[str, _Watch] = {}
        self._asked = self._done = False
        self._lock = threading.RLock()
        self._process = Process(MODULE, interpret=False, idle=idle)
        self._process.send(task)

    def outcome(
        self, node_id: str, *, stop: threading.Event, until: float = math.inf
    ) -> Outcome | None:
        """Return what came of a kernel, waiting for it; None where nothing did.

        Args:
            node_id: the kernel.
            stop: ends the wait.
            until: `time.monotonic()` at which it ends.
        """
        self._receive(0.0)
        while node_id not in self._outcomes and not self._done:
            if stop.is_set() or time.monotonic() >= until:
                break
            self._receive()
        return self._outcomes.get(node_id)

    def watch(self, node_id: str, cases: Sequence[Case]) -> None:
        """Have the launches of a kernel's cases held against its premises.

        Args:
            node_id: the kernel.
            cases: all of them so far: those that are new are taken.
        """
        with self._lock:
            watched = self._watches.setdefault(node_id, _Watch())
            watched.pending += cases[watched.taken :]
            watched.taken = len(cases)
            self._receive(0.0)

    def watched(self, node_id: str, *, until: float) -> tuple[int, str]:
        """Return how many cases were held against premises, and what one breaks.

        Args:
            node_id: the kernel.
            until: `time.monotonic()` until which those that are left are waited for.
        """
        with self._lock:
            watched = self._watches.setdefault(node_id, _Watch())
            while not self.failed and not watched.broken:
                if watched.seen >= watched.taken or time.monotonic() >= until:
                    break
                self._receive()
            return watched.seen, watched.broken

    def enough(self) -> None:
        """Have no further kernel proved."""
        if not self._done:
            self._process.send(None)

    def close(self) -> None:
        """End the process."""
        self._process.close()

    def _receive(self, seconds: float = LOOK) -> None:
        """Take what the process has sent, and send it what is to be watched."""
        with self._lock:
            try:
                while self._process.ready(seconds):
                    self._take(self._process.receive())
                    seconds = 0.0
            except (EOFError, OSError):
                self._done = True
                self.failed = self.failed or "the process that proves ended"
                return
            if self._asked:
                return
            for node_id, watched in self._watches.items():
                if watched.pending and node_id in self._outcomes:
                    # Few at once: it takes them between one proof's parts.
                    sent = tuple(watched.pending[:_AT_ONCE])
                    del watched.pending[:_AT_ONCE]
                    self._process.send((node_id, sent))
                    self._asked = True
                    return

    def _take(self, message: object) -> None:
        match message:
            case None:
                self._done = True
            case str():
                self._done, self.failed = True, message
            case (str() as name, int() as count, str() as broken):
                self._asked = False
                watched = self._watches[name]
                watched.seen += count
                watched.broken = watched.broken or broken
            case (str() as name, Outcome() as outcome):
                self._outcomes[name] = outcome
