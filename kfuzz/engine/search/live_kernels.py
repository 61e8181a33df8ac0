"""The kernels of a run that have children: opened as start-up, closed if too many."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from kfuzz.core.errors import BindingError, KfuzzError
from kfuzz.engine.search.bindings import Bindings
from kfuzz.engine.search.case_source import GuidedSearch
from kfuzz.engine.search.clock import RunClock
from kfuzz.engine.search.round import KernelSearch
from kfuzz.engine.search.scheduler import Scheduler
from kfuzz.engine.workers.jobs import Stopped

# What users brought is compared with so many seconds of kernels before any is searched.
COMPARING_SECONDS: Final = 3.0
# Live children; each holds memory, on a GPU a context.
LIVE_CHILDREN: Final = 8


class LiveKernels:
    """Opens and closes the kernels of a run.

    Args:
        kernels: of the run.
        scheduler: gives them their time slices.
        clock: of the run; opening a kernel is start-up.
        guided: what draws for kernels and calls them as well, by node id.
        on_host: whether kernels run on the CPU, where the oracles are tried.
        expired: whether the run is over.

    Raises:
        BindingError: if what is to judge a kernel can judge no case of it.
    """

    def __init__(
        self,
        kernels: Sequence[KernelSearch],
        scheduler: Scheduler,
        clock: RunClock,
        *,
        guided: Mapping[str, GuidedSearch],
        on_host: bool,
        expired: Callable[[], bool],
    ) -> None:
        self._kernels, self._scheduler, self._clock = kernels, scheduler, clock
        self._guided, self._expired = guided, expired
        self._bindings = Bindings(kernels, on_host=on_host)

    def open(self, kernel: KernelSearch) -> None:
        """Get a kernel ready that has not been judged yet.

        Raises:
            Stopped: the run is over.
        """
        with self._clock.opening():
            if not self._guided:
                kernel.runner.open()
                self._bindings.compare(kernel)

    def open_first(self) -> None:
        """Have the time of the run begin before its first time slice."""
        with suppress(KfuzzError, Stopped):  # its time slice says so
            self.open(self._kernels[0])

    def compare_bindings(self) -> None:
        """Have what users brought compared with its kernels, as far as that is quick.

        The others are in their first time slice.
        """
        end = time.monotonic() + COMPARING_SECONDS
        for kernel in filter(self._bindings.awaits, self._kernels):
            if time.monotonic() > end or self._expired():
                return
            try:
                self.open(kernel)
            except BindingError:
                raise
            except (KfuzzError, Stopped):
                pass  # its time slice says so
            if len(self._kernels) > LIVE_CHILDREN:
                self.close(kernel)

    def close_spare(self) -> None:
        """Close the kernels beyond those that may live at once, but for busy ones."""
        most = max(LIVE_CHILDREN - self._scheduler.jobs, 0)
        with self._scheduler.spared(most) as spared:
            for kernel in spared:
                self.close(kernel)

    def close(self, kernel: KernelSearch) -> None:
        """End the children of a kernel."""
        kernel.runner.close()
        if guided := self._guided.get(kernel.node_id):
            guided.close()
