"""Calls of a kernel that overlap: from several threads, or beside a busy stream."""

import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from kfuzz.core.recipe import Case, Destination
from kfuzz.execution.calls.occupied import by_kernel
from kfuzz.execution.calls.raised import raised_by
from kfuzz.execution.calls.results import read_results
from kfuzz.execution.calls.run import overwrite
from kfuzz.execution.device.launches import forget_errors
from kfuzz.execution.device.runtime import runtime_of
from kfuzz.execution.interpreter.watch import watch
from kfuzz.execution.memory.destinations import poisoned
from kfuzz.execution.memory.placement import Arena, Placement, place
from kfuzz.execution.memory.poison import Poison
from kfuzz.execution.values.randomness import SEED, seeded
from kfuzz.numerics.run import Expected, Run

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
    """What the calls that overlap have in common.

    Attributes:
        call: takes the tensors, then the destinations, and the scalars by keyword.
        case: gives order and layout of the tensors.
        expected: metadata of each output, in order.
        device: where the kernel runs.
        alignment: bytes to which unsliced arguments are aligned.
        around: what lies around and between the arguments' elements.
        fresh: what destinations hold.
        scalars: the keywords.
        inplace: arguments whose bytes become the result.
        destinations: memory for the outputs, where the kernel is given it.
        config: on a GPU, which autotune configuration runs, modulo their number.
    """

    call: Callable[..., Any]
    case: Case
    expected: Mapping[str, Expected]
    device: torch.device
    alignment: int
    around: Poison
    fresh: Poison
    scalars: Mapping[str, object]
    inplace: Sequence[str] = ()
    destinations: Mapping[str, Destination] | None = None
    config: int = 0


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
    placed = [placed_for(common, values, Arena(common.device)) for values in data]
    for _ in range(rounds):
        runs: list[list[Run]] = [[] for _ in data]
        start = threading.Event()

        def work(
            number: int,
            start: threading.Event = start,
            runs: list[list[Run]] = runs,
        ) -> None:
            start.wait()
            with _pausing(number):
                for _ in range(CALLS):
                    if common.inplace:
                        overwrite(placed[number], common.case.tensors, data[number])
                    runs[number].append(_called(common, placed[number]))

        threads = [
            threading.Thread(target=work, args=(number,), daemon=True)
            for number in range(len(data))
        ]
        with by_kernel(), _meshing(), seeded(common.device, SEED):
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
        placement = placed_for(common, data[(number + 1) % len(data)], arena)
        torch.cuda.synchronize(common.device)
        with by_kernel():
            with torch.cuda.stream(stream), seeded(common.device, SEED):
                torch.cuda._sleep(DELAY_CYCLES)  # type: ignore[no-untyped-call]
                overwrite(placement, common.case.tensors, data[number])
                # To measure would wait for the stream.
                with watch(config=common.config):
                    run = _called(common, placement)
            torch.cuda.synchronize(common.device)
        yield number, run


def placed_for(
    common: Overlapping, values: Mapping[str, Tensor], arena: Arena
) -> Placement:
    """Lay arguments and destinations out."""
    given = common.destinations or {}
    return place(
        {**common.case.tensors, **{n: d.spec() for n, d in given.items()}},
        {**values, **poisoned(given, common.device, common.fresh)},
        device=common.device,
        alignment=common.alignment,
        poison=common.around,
        arena=arena,
    )


def _called(common: Overlapping, placement: Placement) -> Run:
    """Call the kernel once and copy its results."""
    memory = {n: placement.tensors[n].data for n in common.destinations or {}}
    try:
        with torch.no_grad():
            returned = common.call(*placement.tensors.values(), **common.scalars)
            # A launch that failed unseen was charged where it was, if it was to be:
            # torch would raise its error from the next operator.
            forget_errors(runtime_of(common.device))
            outputs, results, problem = read_results(
                returned,
                placement,
                common.expected,
                inplace=common.inplace,
                memory=memory,
                device=common.device,
            )
    except BaseException as error:
        return Run(raised=raised_by(error, common.device))
    return Run(outputs=outputs, metadata=problem, results=results)


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
