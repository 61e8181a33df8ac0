"""Who has the process, and whether something compiles: what a watchdog has to know.

A kernel hangs only where it had the process, from its call until the device had done
with it, and a compilation is no hang.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from importlib import import_module
from typing import Any, Final

from kfuzz.execution.processes.wire import is_child

LONGEST_SECONDS: Final = 120.0
"""As long as a first call may take: one compilation that takes longer is a hang."""

EVERY_SECONDS: Final = 0.5


class Holder(IntEnum):
    """Who has the process; false where kfuzz does.

    Members:
        KFUZZ: kfuzz itself.
        KERNEL: the kernel's own function, which may compile.
        DEVICE: compiled code on a device, which alone is waited for.
    """

    KFUZZ = 0
    KERNEL = 1
    DEVICE = 2


@dataclass(frozen=True)
class Watchdog:
    """What is called as this process gets on.

    Attributes:
        beats: over and over while something compiles.
        compiling: with whether something does, as that changes.
        holder: with who has the process, as that changes.
        advances: as an interpreted kernel begins one more of a known number of steps.
    """

    beats: Callable[[], None] = lambda: None
    compiling: Callable[[bool], None] = lambda under_way: None
    holder: Callable[[Holder], None] = lambda holder: None
    advances: Callable[[], None] = lambda: None


# The one of this process, if any.
_watchdogs: Final[list[Watchdog]] = []


def watch(watchdog: Watchdog) -> None:
    """Have a watchdog called from now on, in place of any other."""
    _watchdogs[:] = [watchdog]
    watch_compilations()


def watch_compilations() -> None:
    """Have every later compilation of Triton's in this process beat and be known."""
    if "triton" not in sys.modules:
        return
    from triton import knobs

    runtime: Any = knobs.runtime
    if getattr(runtime.jit_cache_hook, "watches", False):
        return
    before, after = runtime.jit_cache_hook, runtime.jit_post_compile_hook
    start, end = starts_and_ends()

    def starts(*args: Any, **kwargs: Any) -> Any:
        start()
        return None if before is None else before(*args, **kwargs)

    def ends(*args: Any, **kwargs: Any) -> Any:
        end()
        return None if after is None else after(*args, **kwargs)

    starts.watches = True  # type: ignore[attr-defined]
    runtime.jit_cache_hook, runtime.jit_post_compile_hook = starts, ends


def starts_and_ends() -> tuple[Callable[[], None], Callable[[], None]]:
    """Return what to call as a compilation starts and as it ends.

    The watchdog is called over and over meanwhile: on a busy machine it can take longer
    than a call may. The compiler waits for an assembler in a process of its own, so
    that processor time does not show it either.
    """
    beating = _Beating()

    def starts() -> None:
        _compiling(True)
        beating.start()

    def ends() -> None:
        _compiling(False)
        beating.until = 0.0

    return starts, ends


def _compiling(under_way: bool) -> None:
    for watchdog in _watchdogs:
        watchdog.compiling(under_way)


@contextmanager
def at_work() -> Iterator[None]:
    """Beat while the block builds or compiles something, for `LONGEST_SECONDS`."""
    starts, ends = starts_and_ends()
    starts()
    try:
        yield
    finally:
        ends()


class _Beating:
    """Calls the watchdog over and over until it is to stop, or for a time."""

    def __init__(self) -> None:
        self.until = 0.0
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, or begin anew: a compilation that raised never said that it ended."""
        self.until = time.monotonic() + LONGEST_SECONDS
        if _watchdogs and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(
                target=self._go_on, name="compiling", daemon=True
            )
            self._thread.start()

    def _go_on(self) -> None:
        while time.monotonic() < self.until:
            for watchdog in _watchdogs:
                watchdog.beats()
            time.sleep(EVERY_SECONDS)


def import_compiler() -> None:
    """Import torch's compiler if this is a child: it takes seconds.

    Some operators import it in their first call, which would look like a hang, and
    would be traced where the branches of a kernel are watched.
    """
    if is_child():
        import_module("torch._dynamo")


def gets_on() -> None:
    """Say that a kernel has begun one more of a known number of steps."""
    for watchdog in _watchdogs:
        watchdog.advances()


@contextmanager
def by_kernel() -> Iterator[None]:
    """Mark the time in which the kernel runs, waiting for the device included."""
    _held_by(Holder.KERNEL)
    try:
        yield
    finally:
        _held_by(Holder.KFUZZ)


def by_device() -> None:
    """Say that the kernel's function has returned, within `by_kernel`."""
    _held_by(Holder.DEVICE)


def _held_by(holder: Holder) -> None:
    for watchdog in _watchdogs:
        watchdog.compiling(False)  # one that raised never said that it ended
        watchdog.holder(holder)
