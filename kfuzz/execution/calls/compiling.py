"""Compilations: no hangs, so that a child's pulse beats."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from importlib import import_module
from typing import Any, Final

from kfuzz.execution.processes.wire import is_child

LONGEST_SECONDS: Final = 120.0
"""As long as a first call may take: one compilation that takes longer is a hang."""

EVERY_SECONDS: Final = 0.5

# What makes the pulse beat; empty where nobody listens to it.
_beats: Final[list[Callable[[], None]]] = []


# Called with whether a compilation is under way, whenever that changes.
_listeners: Final[list[Callable[[bool], None]]] = []


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


def beat_while_compiling(
    beat: Callable[[], None], on_change: Callable[[bool], None] = lambda under_way: None
) -> None:
    """Have every later compilation in this process beat, and be known.

    That of a Triton kernel, and what `at_work` stands around.

    On a busy machine it can take longer than a call may: the compiler waits for an
    assembler in a process of its own, so that processor time does not tell either.

    Args:
        beat: called over and over meanwhile.
        on_change: called with whether one is under way, as one starts and ends.
    """
    _beats[:], _listeners[:] = [beat], [on_change]
    watch_compilations()


def _is_under_way(compiling: bool) -> None:
    for listener in _listeners:
        listener(compiling)


def starts_and_ends() -> tuple[Callable[[], None], Callable[[], None]]:
    """Return what to call as a compilation starts and as it ends.

    The pulse beats meanwhile.
    """
    beating = _Beating()

    def starts() -> None:
        _is_under_way(True)
        beating.start()

    def ends() -> None:
        _is_under_way(False)
        beating.until = 0.0

    return starts, ends


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
    """Has the pulse beat over and over until it is told to stop, or for a time."""

    def __init__(self) -> None:
        self.until = 0.0
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, or begin anew: a compilation that raised never said that it ended."""
        self.until = time.monotonic() + LONGEST_SECONDS
        if _beats and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(
                target=self._go_on, name="compiling", daemon=True
            )
            self._thread.start()

    def _go_on(self) -> None:
        while time.monotonic() < self.until:
            _beats[0]()
            time.sleep(EVERY_SECONDS)


def import_compiler() -> None:
    """Import torch's compiler if this is a child: it takes seconds.

    Some operators import it in their first call, which would look like a hang, and
    would be traced where the branches of a kernel are watched.
    """
    if is_child():
        import_module("torch._dynamo")


# Who has the process, the kernel under test or kfuzz itself.
#
# For the watchdog, which reports a kernel as hanging only where it had the process,
# from its call until the device had done with it; and for what watches the kernel
# alone.


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


_told: dict[str, Callable[[Holder], None]] = {}


def tell(listener: Callable[[Holder], None], role: str = "watchdog") -> None:
    """Have a function called with the holder whenever it changes.

    Args:
        listener: the function; it replaces the one that had its role.
        role: what it listens for.
    """
    _told[role] = listener


_followed: dict[str, Callable[[], None]] = {}


def follow(listener: Callable[[], None], role: str = "watchdog") -> None:
    """Have a function called whenever a kernel that is interpreted gets on.

    Args:
        listener: the function; it replaces the one that had its role.
        role: what it listens for.
    """
    _followed[role] = listener


def gets_on() -> None:
    """Say that a kernel has begun one more of a known number of steps."""
    for listener in _followed.values():
        listener()


@contextmanager
def by_kernel() -> Iterator[None]:
    """Mark the time in which the kernel runs, waiting for the device included."""
    _changed(Holder.KERNEL)
    try:
        yield
    finally:
        _changed(Holder.KFUZZ)


def by_device() -> None:
    """Say that the kernel's function has returned, within `by_kernel`."""
    _changed(Holder.DEVICE)


def _changed(holder: Holder) -> None:
    _is_under_way(False)  # a compilation that raised never said that it ended
    for listener in _told.values():
        listener(holder)
