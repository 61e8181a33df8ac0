"""Where kernels run: the devices, and the zygotes that children are forked from."""

import os
import threading
from collections.abc import Callable

from kfuzz.contracts.binding import BoundKernel
from kfuzz.core.budget import SizeBudget
from kfuzz.engine.workers import zygotes
from kfuzz.engine.workers.templates import Home
from kfuzz.execution.device.backend import DeviceBackend
from kfuzz.execution.device.backends import BACKENDS, resolve
from kfuzz.execution.processes import Child, Zygote
from kfuzz.execution.processes.output import Once, to_stderr
from kfuzz.targets.triton_free import is_triton_free


def runs_on(kernel: BoundKernel, backend: str) -> DeviceBackend:
    """Return what a kernel runs on: one of none of Triton is not interpreted."""
    native = BACKENDS[backend].without_triton
    return BACKENDS[native if native and is_triton_free(kernel) else backend]


def budget_for(kernel: BoundKernel, backend: str) -> SizeBudget:
    """Return the limits on the sizes of a kernel's cases; see `runs_on`."""
    return runs_on(kernel, backend).limits.sizes


class Backend:
    """Chooses where kernels run, and has the zygotes for it, one for each device.

    A child sees one device, as its first: much of what runs on a GPU takes the current
    device for the one that its arguments lie on.

    Attributes:
        on: the device backend.
        name: its name.
        devices: those that kernels are divided among, as this process has them: all
            GPUs, unless some are named.
        device: what whoever runs a kernel calls its device.
        quiet: whether what children print is dropped.
    """

    def __init__(
        self, device: str, *, isolate: str = "auto", serve: str = zygotes.SERVE
    ) -> None:
        self.on, self.devices = resolve(device)
        self.name = self.on.name
        self.isolated = isolate != "none"
        self.quiet = False
        self._serve = serve
        self._printed = Once(to_stderr)
        self._lent: dict[str, zygotes.Lent] = {}
        self._lending = threading.Lock()
        self._turns = -1
        self.device = self.called(self.devices[0])
        if self.isolated:
            self._of(self.devices[0])
        else:
            self.on.select(self.device)

    def called(self, device: str) -> str:
        """Return what whoever runs a kernel on one of the devices calls it."""
        return self.on.alone(device) if self.isolated else device

    def fork(
        self,
        quiet: Callable[[], bool] | None = None,
        *,
        device: str = "",
        home: Home | None = None,
        serve: str = "",
        expired: Callable[[], bool] = lambda: False,
    ) -> Child:
        """Return a new child.

        Args:
            quiet: tells whether what this child prints is dropped.
            device: one of `devices`, the only one that it sees; the first by default.
            home: what it has imported already, if that is possible.
            serve: what it serves in place of what the backend's children do.
            expired: whether the run is over.

        Raises:
            Stopped: if the run is over before there is one.
            ZygoteError: if none can be had.
        """
        assert self.isolated
        lent = self._of(device or self.devices[0])
        output = self._forward if quiet is None else _unless(quiet, self._forward)
        if home is None or lent.zygote.serve != zygotes.SERVE:
            return lent.zygote.fork(output, serve=serve)
        return lent.templates.fork(home, output, expired)

    def use(self, devices: tuple[str, ...]) -> None:
        """Divide kernels among these devices only."""
        for left in set(self.devices) - set(devices):
            with self._lending:
                lent = self._lent.pop(left, None)
            if lent is not None:
                lent.give_back()
        self.devices = devices

    def turn(self) -> str:
        """Return the device that is next, where each is to have its share of work."""
        with self._lending:
            self._turns += 1
            return self.devices[self._turns % len(self.devices)]

    def own_zygote(self, device: str = "") -> Zygote:
        """Return a zygote that nobody else's children are forked from."""
        return self._of(device or self.devices[0]).own()

    def require_import(self, home: Home, expired: Callable[[], bool]) -> None:
        """Have a file imported in a process of its own first; see `Templates`.

        Raises:
            BindingError: that ended its process, or did not end.
            Stopped: the run is over.
        """
        if self.isolated and self._serve == zygotes.SERVE:
            first = self._of(self.devices[0])
            first.templates.require_import(home, expired)

    def shares(self, home: Home, device: str = "") -> bool:
        """Whether children of a file come from one that imported it."""
        lent = self._lent.get(device or self.devices[0])
        return lent is not None and lent.templates.has(home)

    def distrust(self, home: Home, why: str) -> None:
        """Have children import a file by themselves from now on."""
        for lent in self._all():
            lent.templates.give_up(home, why)

    def unshared(self, home: Home) -> str:
        """Return why each child imports a file by itself, "" where none does."""
        reasons = (lent.templates.why_not(home) for lent in self._all())
        return next(filter(None, reasons), "")

    def beside(self, device: str) -> dict[str, str]:
        """Return variables under which a process sees a device and then the others."""
        others = (other for other in self.devices if other != device)
        return self.on.only([device, *others], os.environ)

    def _of(self, device: str) -> zygotes.Lent:
        """Return the zygote of a device, begun when it is first asked for."""
        with self._lending:
            if device not in self._lent:
                self._lent[device] = zygotes.lend(
                    self.on, self._serve, device=device, output=self._forward
                )
            return self._lent[device]

    def _all(self) -> list[zygotes.Lent]:
        with self._lending:
            return list(self._lent.values())

    def _forward(self, data: bytes) -> None:
        if not self.quiet:
            self._printed(data)

    def close(self) -> None:
        """End every child; the zygotes wait for another campaign."""
        with self._lending:
            while self._lent:
                self._lent.popitem()[1].give_back()


def _unless(
    quiet: Callable[[], bool], forward: Callable[[bytes], None]
) -> Callable[[bytes], None]:
    return lambda data: None if quiet() else forward(data)
