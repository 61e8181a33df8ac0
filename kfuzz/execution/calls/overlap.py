"""Calls of a kernel that overlap: from several threads, or beside a busy stream."""

import random
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from kfuzz.cuda.driver import forget_errors, torch_runtime
from kfuzz.execution.calls.compiling import by_kernel
from kfuzz.execution.calls.results import Invocation, Reader, raised_by
from kfuzz.execution.calls.torch_state import put_back
from kfuzz.execution.interpreter.watch import watch
from kfuzz.execution.memory.placement import as_batch, place
from kfuzz.execution.memory.poison import Poison
from kfuzz.execution.memory.slots import Arena
from kfuzz.execution.values.fills import SEED, seeded
from kfuzz.numerics.run import Run

SWITCH_SECONDS: Final = 1e-6
"""How often threads take turns in Python: as often as can be, so that calls mesh."""

CALLS: Final = 4
"""Calls that a thread makes one after the other once it is started."""

PAUSES: Final = 0.25
"""Share of calls and returns, from Python, at which a thread lets others run."""

DELAY_CYCLES: Final = 20_000_000
"""Clock cycles, some 10 ms, that a GPU's stream waits before arguments are written."""


@dataclass(frozen=True)
class Overlapping:
    """What calls that overlap have in common.

    Attributes:
        asked: the kernel and the form of its arguments.
        device: where it runs.
        fresh: what destinations hold.
    """

    asked: Invocation
    device: torch.device
    fresh: Poison


class PlacedCall:
    """A kernel with its arguments where they lie; nothing guards what it allocates."""

    def __init__(
        self, common: Overlapping, values: Mapping[str, Tensor], arena: Arena
    ) -> None:
        asked, self.common = common.asked, common
        self._placement = place(
            asked.specs, values, device=common.device, alignment=asked.alignment,
            poison=asked.around, arena=arena, unwritten=asked.destinations,
            fresh=common.fresh,
        )  # fmt: skip
        self._reader = Reader(asked, self._placement, common.device)

    def write(self, values: Mapping[str, Tensor], *, poison: bool = False) -> None:
        """Give the arguments other elements, and poison the destinations if asked."""
        self._placement.write(as_batch(values), (self.common.fresh,) if poison else ())

    def call(self) -> object:
        """Call the kernel, and return what it does."""
        asked = self.common.asked
        returned = asked.call(*self._placement.tensors.values(), **asked.scalars)
        # A launch that failed unseen was reported where it was, if it was to be: torch
        # would raise its error from the next operator.
        forget_errors(torch_runtime())
        return returned

    def read(self, returned: object) -> Run:
        """Copy the results of a call."""
        read = self._reader.read(returned)
        return Run(
            outputs=read.outputs, metadata=read.problem,
            results=read.results,
        )  # fmt: skip

    def run(self) -> Run:
        """Call the kernel once and copy its results."""
        try:
            with torch.no_grad():
                return self.read(self.call())
        except BaseException as error:
            return Run(raised=raised_by(error, self.common.device))


def in_threads(
    common: Overlapping, data: Sequence[Mapping[str, Tensor]], rounds: int
) -> Iterator[tuple[int, Run]]:
    """Yield what each of several threads got that call a kernel at the same time.

    Each has its own data in its own memory; an event starts all of them together.
    Memory that they allocate is not guarded, and nothing is looked for around it.

    Args:
        common: the kernel and the form of its arguments.
        data: per thread the logical elements of its arguments.
        rounds: how often they are started, for `CALLS` calls each.

    Yields:
        The number of the thread and the results of a call, round after round.
    """
    placed = [PlacedCall(common, values, Arena(common.device)) for values in data]
    for _ in range(rounds):
        runs: list[list[Run]] = [[] for _ in data]
        start = threading.Event()

        def work(
            number: int, start: threading.Event = start, runs: list[list[Run]] = runs
        ) -> None:
            start.wait()
            with _pausing(number):
                for _ in range(CALLS):
                    if common.asked.inplace:
                        placed[number].write(data[number])
                    runs[number].append(placed[number].run())

        threads = [
            threading.Thread(target=work, args=(number,), daemon=True)
            for number in range(len(data))
        ]
        with by_kernel(), _meshing(), seeded(common.device, SEED), put_back():
            for thread in threads:
                thread.start()
            start.set()
            for thread in threads:
                thread.join()
        for number, made in enumerate(runs):
            for run in made:
                yield number, run


def on_side_stream(
    common: Overlapping, data: Sequence[Mapping[str, Tensor]], rounds: int
) -> Iterator[tuple[int, Run]]:
    """Yield what a kernel gets on a GPU's stream that has yet to write its arguments.

    The arguments hold the next data's elements. A stream of its own waits, writes
    this data's, runs the kernel and copies its results; no event joins it to any
    other stream. What the kernel does on another one then comes too early.

    Args:
        common: the kernel and the form of its arguments, on a GPU.
        data: several data, taken in turn.
        rounds: how often each is taken.

    Yields:
        The number of the data and its results, round after round.
    """
    arena = Arena(common.device)
    stream = torch.cuda.Stream(common.device)  # type: ignore[no-untyped-call]
    for turn in range(rounds * len(data)):
        number = turn % len(data)
        placed = PlacedCall(common, data[(number + 1) % len(data)], arena)
        torch.cuda.synchronize(common.device)
        with by_kernel(), put_back():
            with torch.cuda.stream(stream), seeded(common.device, SEED):
                torch.cuda._sleep(DELAY_CYCLES)  # type: ignore[no-untyped-call]
                placed.write(data[number])
                # To measure would wait for the stream.
                with watch(config=common.asked.config):
                    run = placed.run()
            torch.cuda.synchronize(common.device)
        yield number, run


@contextmanager
def _pausing(number: int) -> Iterator[None]:
    """Have the thread let others run at some of its calls of functions.

    Two operators of a wrapper follow one another in microseconds, faster than a busy
    machine wakes another thread.
    """
    chance = random.Random(number)

    def pause(frame: object, event: str, argument: object) -> None:
        if chance.random() < PAUSES:
            time.sleep(0)

    sys.setprofile(pause)
    try:
        yield
    finally:
        sys.setprofile(None)


@contextmanager
def _meshing() -> Iterator[None]:
    """Have Python's threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
