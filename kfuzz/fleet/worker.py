"""A worker: one unit after the other, each in a process of its own.

It keeps what its units report until the driver has taken it. It is the same whatever
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
from kfuzz.fleet.versions import versions
from kfuzz.fleet.work import About, Happened, Work

_MODULE: Final = "kfuzz.fleet.process"
CANARIES: Final = 2
"""Canaries in a row that fail before a device judges no more."""
LEASE_SECONDS: Final = 300.0
"""A driver that has not asked for so long is gone; its unit ends."""
PROGRESS_SECONDS: Final = 5.0
"""Between two counters of one unit: a driver has a thousand workers to listen to."""
_LOOK_SECONDS: Final = 0.2
TRIAL_SECONDS: Final = 180.0
"""Of a canary: importing torch and creating a context on a machine that is busy."""


class _AilingError(Exception):
    """The device failed its canaries."""


class Worker:
    """Does units, and keeps what they report.

    Args:
        root: the project; "" for the working folder, into which it was copied.
        device: where kernels run, as the command line names it.
        gpu: whether that is a GPU, which canaries try.
    """

    def __init__(self, root: str, device: str, *, gpu: bool) -> None:
        self._root = root or os.getcwd()
        self._device = device
        self._gpu = gpu
        self._messages: deque[tuple[int, bytes]] = deque()
        self._count = 0
        self._changed = threading.Condition()
        self._asked = time.monotonic()
        self._stop = threading.Event()

    def about(self) -> tuple[str, str, dict[str, str]]:
        """Return its machine, its device as no other machine has it, its versions."""
        node, device = socket.gethostname(), f"{self._device} ({os.getpid()})"
        if self._gpu:
            ailment, uuid = self._trial()
            device = uuid or os.environ.get("CUDA_VISIBLE_DEVICES", ailment)
        return node, f"{node} {device}", versions()

    def start(self, number: int, work: Work) -> None:
        """Begin a unit; whatever was begun before has ended."""
        self._asked = time.monotonic()
        self._stop = threading.Event()
        args = (number, work, self._stop)
        threading.Thread(target=self._do, args=args, daemon=True).start()

    def stop(self) -> None:
        """Have the unit end soon, and report what came of it."""
        self._stop.set()

    def take(self, after: int, seconds: float) -> list[tuple[int, bytes]]:
        """Return what was reported after a number, and forget what was up to it.

        Args:
            after: number of the last message that the driver has.
            seconds: how long to wait for a message where there is none.

        Returns:
            Messages by ascending number: what they are about, the value and the unit,
            pickled.
        """
        until = time.monotonic() + seconds
        with self._changed:
            self._asked = time.monotonic()
            while self._messages and self._messages[0][0] <= after:
                self._messages.popleft()
            while not self._messages and (left := until - time.monotonic()) > 0:
                self._changed.wait(left)
            self._asked = time.monotonic()
            return list(self._messages)

    def _report(self, about: About, value: object, number: int) -> None:
        with self._changed:
            self._count += 1
            message = pickle.dumps((about, value, number))
            self._messages.append((self._count, message))
            self._changed.notify_all()

    def _do(self, number: int, work: Work, stop: threading.Event) -> None:
        try:
            self._require_sound()
            progressed = -math.inf
            for value in self._performed(work, stop):
                event = value.event if isinstance(value, Happened) else None
                if isinstance(event, Progress):
                    if time.monotonic() - progressed < PROGRESS_SECONDS:
                        continue
                    progressed = time.monotonic()
                if isinstance(event, FindingSaved):
                    self._require_sound()
                self._report(About.ITEM, value, number)
            self._report(About.DONE, None, number)
        except _AilingError as error:
            self._report(About.AILING, str(error), number)
        except Exception as error:
            self._report(About.FAILED, portable(error), number)

    def _require_sound(self) -> None:
        """Raise an error if the device fails `CANARIES` canaries in a row."""
        ailment = ""
        for _ in range(CANARIES if self._gpu else 0):
            ailment, _ = self._trial()
            if not ailment:
                return
        if ailment:
            raise _AilingError(ailment)

    def _trial(self) -> tuple[str, str]:
        """Return what ails the device, "" where nothing does, and its UUID."""
        stop = threading.Event()
        try:
            for made in self._performed(self._device, stop, TRIAL_SECONDS):
                ailment, uuid = made
                return str(ailment), str(uuid)
        except Exception as error:
            return str(error).partition("\n")[0], ""
        return "its canary reported nothing", ""

    def _performed(
        self, work: Work, stop: threading.Event, most: float | None = None
    ) -> Iterator[Any]:
        """Yield what a process reports that does a piece of work."""
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
