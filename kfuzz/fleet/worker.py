"""A worker: one unit after the other, each in a process of its own.

It keeps what its units tell until the driver has taken it. It is the same whatever
carries its calls.
"""

import contextlib
import math
import os
import pickle
import shutil
import socket
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from kfuzz.cli.apart import portable
from kfuzz.core.errors import HarnessError
from kfuzz.core.event import FindingSaved, Progress
from kfuzz.execution.processes.own import OwnProcess
from kfuzz.fleet.plan import CANARIES
from kfuzz.fleet.versions import versions
from kfuzz.fleet.work import (
    About,
    Done,
    Failed,
    Happened,
    Item,
    Told,
    Trial,
    Tried,
    Unit,
    Work,
)

_MODULE: Final = "kfuzz.fleet.process"
LEASE_SECONDS: Final = 300.0
"""A driver that has not asked for so long is gone; its unit ends."""
PROGRESS_SECONDS: Final = 5.0
"""Between two counters of one unit: a driver has a thousand workers to listen to."""
_LOOK_SECONDS: Final = 0.2
TRIAL_SECONDS: Final = 180.0
"""Of a canary: importing torch and creating a context on a machine that is busy."""


class Worker:
    """Does units, and keeps what they tell.

    Args:
        root: the project; "" for the working folder, into which it was copied.
        device: where kernels run, as the command line names it.
        gpu: whether that is a GPU, which canaries try.
    """

    def __init__(self, root: str, device: str, *, gpu: bool) -> None:
        self._root = root or os.getcwd()
        self._device = device
        self._gpu = gpu
        self._told: deque[tuple[int, bytes]] = deque()
        self._count = 0
        self._changed = threading.Condition()
        self._asked = time.monotonic()
        self._stop = threading.Event()

    def about(self) -> About:
        """Return what this worker is."""
        node, device = socket.gethostname(), f"{self._device} ({os.getpid()})"
        if self._gpu:
            ailment, uuid = self._trial()
            device = uuid or os.environ.get("CUDA_VISIBLE_DEVICES", ailment)
        return About(node, f"{node} {device}", versions())

    def start(self, unit: Unit) -> None:
        """Begin a unit; whatever was begun before has ended."""
        self._asked = time.monotonic()
        self._stop = threading.Event()
        args = (unit, self._stop)
        threading.Thread(target=self._do, args=args, daemon=True).start()

    def stop(self) -> None:
        """Have the unit end soon, and tell what came of it."""
        self._stop.set()

    def take(self, after: int, seconds: float) -> list[tuple[int, bytes]]:
        """Return what was told after a number, and forget what was told up to it.

        Args:
            after: number of the last message that the driver has.
            seconds: how long to wait for a message where there is none.

        Returns:
            Messages, pickled, by ascending number.
        """
        until = time.monotonic() + seconds
        with self._changed:
            self._asked = time.monotonic()
            while self._told and self._told[0][0] <= after:
                self._told.popleft()
            while not self._told and (left := until - time.monotonic()) > 0:
                self._changed.wait(left)
            self._asked = time.monotonic()
            return list(self._told)

    def _tell(self, told: Told) -> None:
        with self._changed:
            self._count += 1
            self._told.append((self._count, pickle.dumps(told)))
            self._changed.notify_all()

    def _do(self, unit: Unit, stop: threading.Event) -> None:
        try:
            if not self._are_told(self._canaries()):
                return
            progressed = -math.inf
            for value in self._performed(unit.work, stop):
                event = value.event if isinstance(value, Happened) else None
                if isinstance(event, Progress):
                    if time.monotonic() - progressed < PROGRESS_SECONDS:
                        continue
                    progressed = time.monotonic()
                found = isinstance(event, FindingSaved)
                canaries = self._canaries() if found else []
                # Told first: with the canaries the unit may be another's.
                suspect = bool(canaries and canaries[-1])
                self._tell(Item(unit.number, value, suspect))
                if not self._are_told(canaries):
                    return
            self._tell(Done(unit.number))
        except Exception as error:
            self._tell(Failed(unit.number, portable(error)))

    def _canaries(self) -> list[str]:
        """Try the device until it passes, `CANARIES` times at most.

        Returns:
            What ailed it each time; the last is "" where it passed. Empty of what needs
            no trying.
        """
        ailments: list[str] = []
        while self._gpu and len(ailments) < CANARIES and "" not in ailments:
            ailments.append(self._trial()[0])
        return ailments

    def _are_told(self, ailments: list[str]) -> bool:
        """Tell of canaries, and return whether the device is sound."""
        for ailment in ailments:
            self._tell(Tried(ailment))
        return not (ailments and ailments[-1])

    def _trial(self) -> tuple[str, str]:
        stop = threading.Event()
        try:
            for made in self._performed(Trial(self._device), stop, TRIAL_SECONDS):
                ailment, uuid = made
                return str(ailment), str(uuid)
        except Exception as error:
            return str(error).partition("\n")[0], ""
        return "its canary reported nothing", ""

    def _performed(
        self, work: Work, stop: threading.Event, most: float | None = None
    ) -> Iterator[Any]:
        """Yield what a process tells that does a piece of work."""
        folder = tempfile.mkdtemp(prefix="kfuzz-unit-")
        try:
            with OwnProcess(_MODULE, os.environ, start_new_session=True) as process:
                process.send((work, self._root, folder))
                yield from self._heard(process, stop, most)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _heard(
        self, process: OwnProcess, stop: threading.Event, most: float | None
    ) -> Iterator[Any]:
        began, asked = time.monotonic(), False
        while True:
            now = time.monotonic()
            if now - self._asked > LEASE_SECONDS and most is None:
                raise HarnessError("the driver asks no more")
            if most is not None and now - began > most:
                raise HarnessError(f"nothing came of it in {most:.0f} s")
            if stop.is_set() and not asked:
                asked = True
                with contextlib.suppress(OSError):
                    process.send("stop")
            try:
                if not process.ready(_LOOK_SECONDS):
                    continue
                kind, value = process.receive()
            except (EOFError, OSError):
                how = process.ended()
                raise HarnessError(f"the process of a unit ended: {how}") from None
            match kind:
                case "item":
                    yield value
                case "raised":
                    raise value
                case _:
                    return
