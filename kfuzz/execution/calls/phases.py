"""Where the time of a request goes: compiling, the kernel's calls, all else."""

import time

from kfuzz.core.budget import Spending
from kfuzz.execution.calls.compiling import clock, time_compilations
from kfuzz.execution.calls.occupied import Holder, tell


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
