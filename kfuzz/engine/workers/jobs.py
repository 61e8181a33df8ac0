"""Work that threads do side by side, told in one stream.

Threads, since they wait for children nearly all of the time, and share the zygote.
"""

import contextlib
import math
import os
import queue
import re
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

from kfuzz.execution.processes.wire import ChildTimeout, control_groups

LOOK_SECONDS: Final = 0.2
"""Between two looks whether the run is over."""

T = TypeVar("T")
Made = TypeVar("Made")

# For threads to notice that all is over, where nobody waits for what they tell.
_LEAVING_SECONDS: Final = 5.0


class Stopped(Exception):
    """The run's time is over, or a signal ended it, while a child was busy.

    Attributes:
        calling: for how many seconds a call of the kernel had not returned; 0 where
            none was under way.
    """

    def __init__(self, calling: float = 0.0) -> None:
        super().__init__()
        self.calling = calling


def waited(
    wait: Callable[[float], T], seconds: float, expired: Callable[[], bool]
) -> T:
    """Return what a process answers, looking now and then whether the run is over.

    Args:
        wait: waits for the answer for some seconds.
        seconds: how long it may take.
        expired: whether the run is over.

    Raises:
        ChildTimeout: it takes longer.
        Stopped: the run is over.
    """
    until = time.monotonic() + seconds
    while True:
        try:
            return wait(LOOK_SECONDS)
        except ChildTimeout:
            if expired():
                raise Stopped from None
            if time.monotonic() >= until:
                raise


class Halt:
    """Says when work is to end: since that was asked for, or since a part failed.

    Args:
        stop: set from outside.
        until: `time.monotonic()` after which it is to end.
    """

    def __init__(self, stop: threading.Event, until: float = math.inf) -> None:
        self._stop = stop
        self._until = until
        self._failed = threading.Event()

    def set(self) -> None:
        """Have the work end."""
        self._failed.set()

    def is_set(self) -> bool:
        """Return whether it is to end."""
        ended = self._failed.is_set() or self._stop.is_set()
        return ended or time.monotonic() >= self._until


_ENDED: Final = object()


def fair_share(end: float, left: int, jobs: int) -> float:
    """Return the seconds of one of several pieces of work, some done at once.

    Args:
        end: `time.monotonic()` at which all are to be done.
        left: how many are not, this one among them.
        jobs: how many are done at once.
    """
    return max(end - time.monotonic(), 0.0) * min(jobs, left) / left


def streamed(
    take: Callable[[], Iterable[T] | None],
    jobs: int,
    *,
    halt: Callable[[], None] = lambda: None,
) -> Generator[T, None, None]:
    """Yield what pieces of work yield, of which several are done at once.

    What one piece yields comes in its order. With one job all is done in the caller's
    thread.

    Args:
        take: returns the next piece, None once there are no more; it is called by all
            threads.
        jobs: pieces done at once.
        halt: has the pieces under way end soon, where one fails or nobody takes what
            they yield.

    Raises:
        Exception: what the first failing piece raised, once all have ended.
    """
    if jobs <= 1:
        while (piece := take()) is not None:
            yield from piece
        return
    told: queue.SimpleQueue[Any] = queue.SimpleQueue()
    halted = threading.Event()

    def work() -> None:
        try:
            while not halted.is_set() and (piece := take()) is not None:
                for item in piece:
                    told.put(item)
        except BaseException as error:
            told.put(error)
        finally:
            told.put(_ENDED)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(jobs)]
    failure: BaseException | None = None
    left = jobs
    try:
        for thread in threads:
            thread.start()
        while left:
            item = told.get()
            if item is _ENDED:
                left -= 1
            elif isinstance(item, BaseException):
                failure = failure or item
                halted.set()
                halt()
            else:
                yield item
    finally:
        if left:
            halted.set()
            halt()
        for thread in threads:
            if thread.ident is not None:
                thread.join(_LEAVING_SECONDS)
    if failure is not None:
        raise failure


def in_order(
    work: Callable[[T], Made],
    items: Sequence[T],
    jobs: int,
    *,
    halt: Callable[[], None],
) -> Generator[Made, None, None]:
    """Yield what comes of each item, in order, some being worked on at once.

    Args:
        work: is called with each item.
        items: what is to be worked on.
        jobs: items worked on at once.
        halt: as for `streamed`.
    """
    if jobs <= 1:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(jobs) as pool:
        try:
            yield from pool.map(work, items)
        except BaseException:
            halt()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


# How many processors there are to use, which may be fewer than the machine has.

SHARING: Final = 4
"""Kernels that share a GPU: a search mostly compiles, draws and confirms.

One H100, 16 processors, kernels of Liger-Kernel and fla-core: of 16 searched in four
commands at once, 14 had over 2,000 cases in a minute. Of 24 searched one after the
other in four minutes, with a device that was mostly idle, 14 had fewer than 500.
"""
PROCESSORS_EACH: Final = 4
"""For each of them: the campaign, a child that judges, and those that confirm."""
_QUOTA: Final = re.compile(r"([1-9]\d*) ([1-9]\d*)")


def processors(**groups: Path) -> int:
    """Return how many processors this process keeps busy at most, at least 1.

    Those that it may run on, or what its control group's quota comes to, if that is
    less: a container that has two of 64 may run on all, a little.

    Args:
        groups: where to look, see `control_groups`.
    """
    quota = math.inf
    for folder in control_groups(**groups):
        with contextlib.suppress(OSError):  # "max" is no quota
            if found := _QUOTA.match((folder / "cpu.max").read_text()):
                quota = min(quota, int(found[1]) / int(found[2]))
    allowed = len(os.sched_getaffinity(0))
    return max(allowed if quota >= allowed else math.ceil(quota), 1)
