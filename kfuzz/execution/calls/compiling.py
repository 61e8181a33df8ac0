"""Compilations: no hangs, so that a child's pulse beats; and timed."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from importlib import import_module
from typing import Any, Final

from kfuzz.core.budget import Spending
from kfuzz.execution.processes.wire import is_child

LONGEST_SECONDS: Final = 120.0
"""As long as a first call may take: one compilation that takes longer is a hang."""

EVERY_SECONDS: Final = 0.5

# What makes the pulse beat; empty where nobody listens to it.
_beats: Final[list[Callable[[], None]]] = []


class Clock:
    """Measures how long compilations take.

    Attributes:
        seconds: of those that have ended.
        compiled: how often a compiler ran, and found nothing in a cache.
        on_change: called with whether one is under way, whenever that changes.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.compiled = 0
        self.on_change: Callable[[bool], None] = lambda under_way: None
        self._since: float | None = None
        self._is_cached = False

    def start(self) -> None:
        """Take it that a compilation starts."""
        if self._since is None:
            self._since, self._is_cached = time.perf_counter(), False
            self.on_change(True)

    def read(self) -> None:
        """Take it that the compilation under way found all in a cache."""
        self._is_cached = True

    def stop(self) -> None:
        """Take it that it ended; nothing if none is under way."""
        if self._since is not None:
            self.seconds += time.perf_counter() - self._since
            self.compiled += not self._is_cached
            self._since = None
            self.on_change(False)


clock: Final = Clock()
"""Of this process; it has run since `time_compilations` was called."""


def time_compilations() -> None:
    """Have `clock` measure every later compilation of Triton's in this process."""
    if "triton" not in sys.modules:
        return
    from triton import knobs

    runtime: Any = knobs.runtime
    if getattr(runtime.jit_cache_hook, "times", None) is clock:
        return
    compilation: Any = knobs.compilation
    before, after = runtime.jit_cache_hook, runtime.jit_post_compile_hook
    told = getattr(compilation, "listener", None)
    start, end = starts_and_ends()

    def starts(*args: Any, **kwargs: Any) -> Any:
        start()
        return None if before is None else before(*args, **kwargs)

    def ends(*args: Any, **kwargs: Any) -> Any:
        end()
        return None if after is None else after(*args, **kwargs)

    def listens(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("cache_hit"):
            clock.read()
        return None if told is None else told(*args, **kwargs)

    starts.times = clock  # type: ignore[attr-defined]
    runtime.jit_cache_hook, runtime.jit_post_compile_hook = starts, ends
    compilation.listener = listens


def beat_while_compiling(beat: Callable[[], None]) -> None:
    """Have every later compilation in this process call `beat`.

    That of a Triton kernel, and what `at_work` stands around.

    On a busy machine it can take longer than a call may: the compiler waits for an
    assembler in a process of its own, so that processor time does not tell either.
    """
    _beats[:] = [beat]
    time_compilations()


def starts_and_ends() -> tuple[Callable[[], None], Callable[[], None]]:
    """Return what to call as a compilation starts and as it ends.

    The pulse beats meanwhile, and the time counts as compiling.
    """
    beating = _Beating()

    def starts() -> None:
        clock.start()
        beating.start()

    def ends() -> None:
        clock.stop()
        beating.until = 0.0

    return starts, ends


@contextmanager
def at_work() -> Iterator[None]:
    """Beat while the block builds or compiles something, for `LONGEST_SECONDS`.

    Its time counts as compiling.
    """
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
    for listener in _told.values():
        listener(holder)


# Where the time of a request goes: compiling, the kernel's calls, all else.


class Phases:
    """Measures what one request after the other takes in this process.

    It listens to who has the process, and to compilations: a few microseconds for each
    call of a kernel.
    """

    def __init__(self) -> None:
        self._began = self._since = time.perf_counter()
        self._called = 0.0
        self._in_kernel = False
        # Of the kernel's calls: kfuzz has kernels of its own, which say nothing of it.
        self._compiling, self._compiled = 0.0, 0
        self._clock = clock.seconds, clock.compiled
        tell(self._held, role="phases")

    def begin(self) -> None:
        """Begin to measure a request."""
        time_compilations()  # Triton may have been imported since
        self._began, self._called = time.perf_counter(), 0.0
        self._compiling, self._compiled = 0.0, 0

    def end(self) -> Spending:
        """Return what the request took."""
        total = time.perf_counter() - self._began
        calling = max(self._called - self._compiling, 0.0)
        return Spending(
            compiling=self._compiling,
            calling=calling,
            rest=max(total - calling - self._compiling, 0.0),
            compiled=self._compiled,
        )

    def _held(self, holder: Holder) -> None:
        now = time.perf_counter()
        if self._in_kernel:
            self._called += now - self._since
            if holder is not Holder.KERNEL:
                clock.stop()  # one that raised never said that it ended
            seconds, compiled = self._clock
            self._compiling += clock.seconds - seconds
            self._compiled += clock.compiled - compiled
        elif holder is not Holder.KFUZZ:
            clock.stop()
        self._clock = clock.seconds, clock.compiled
        self._in_kernel, self._since = holder is not Holder.KFUZZ, now
