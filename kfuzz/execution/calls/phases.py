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
        self._compiled_before = 0.0, 0
        tell(self._held, role="phases")

    def begin(self) -> None:
        """Begin to measure a request."""
        time_compilations()  # Triton may have been imported since
        clock.stop()  # one that raised never said that it ended
        self._began, self._called = time.perf_counter(), 0.0
        self._compiled_before = clock.seconds, clock.compiled

    def end(self) -> Spending:
        """Return what the request took."""
        clock.stop()
        total = time.perf_counter() - self._began
        seconds, compiled = self._compiled_before
        compiling = clock.seconds - seconds
        # Most is compiled in the kernel's calls, some of it beside them.
        calling = max(self._called - compiling, 0.0)
        return Spending(
            compiling=compiling,
            calling=calling,
            rest=max(total - calling - compiling, 0.0),
            compiled=clock.compiled - compiled,
        )

    def _held(self, holder: Holder) -> None:
        now = time.perf_counter()
        if self._in_kernel:
            self._called += now - self._since
        if holder is Holder.KFUZZ:
            clock.stop()
        self._in_kernel, self._since = holder is not Holder.KFUZZ, now
