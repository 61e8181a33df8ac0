"""Where kernels run: the device, and the zygote that children are forked from."""

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
    """Return what a kernel runs on: one of none of Triton is not interpreted.

    Args:
        kernel: the kernel.
        backend: name of the backend that was asked for.
    """
    native = BACKENDS[backend].without_triton
    return BACKENDS[native if native and is_triton_free(kernel) else backend]


def budget_for(kernel: BoundKernel, backend: str) -> SizeBudget:
    """Return the limits on the sizes of a kernel's cases; see `runs_on`."""
    return runs_on(kernel, backend).limits.sizes


class Backend:
    """Chooses where kernels run, and has the zygote for it.

    Attributes:
        on: the device backend.
        name: its name.
        device: torch's device name.
        devices: those that kernels are divided among: all GPUs, unless one is named.
        quiet: whether what children print is dropped.
    """

    def __init__(
        self, device: str, *, isolate: str = "auto", serve: str = zygotes.SERVE
    ) -> None:
        self.on, self.devices = resolve(device)
        self.name, self.device = self.on.name, self.devices[0]
        self.quiet = False
        self._printed = Once(to_stderr)
        self._lent: zygotes.Lent | None = None
        if isolate != "none":
            self._lent = zygotes.lend(self.on, serve, output=self._forward)

    def fork(
        self,
        quiet: Callable[[], bool] | None = None,
        *,
        home: Home | None = None,
        expired: Callable[[], bool] = lambda: False,
    ) -> Child:
        """Return a new child.

        Args:
            quiet: tells whether what this child prints is dropped.
            home: what it has imported already, if that is possible.
            expired: whether the run is over.

        Raises:
            Stopped: if the run is over before there is one.
            ZygoteError: if none can be had.
        """
        assert self._lent is not None
        output = self._forward if quiet is None else _unless(quiet, self._forward)
        if home is None or self._lent.zygote.serve != zygotes.SERVE:
            return self._lent.zygote.fork(output)
        return self._lent.templates.fork(home, output, expired)

    def own_zygote(self) -> Zygote:
        """Return a zygote that nobody else's children are forked from."""
        assert self._lent is not None
        return self._lent.own()

    def require_import(self, home: Home, expired: Callable[[], bool]) -> None:
        """Have a file imported in a process of its own first; see `Templates`.

        Raises:
            BindingError: that ended its process, or did not end.
            Stopped: the run is over.
        """
        if self._lent is not None and self._lent.zygote.serve == zygotes.SERVE:
            self._lent.templates.require_import(home, expired)

    def shares(self, home: Home) -> bool:
        """Whether children of a file come from one that imported it."""
        return self._lent is not None and self._lent.templates.has(home)

    def distrust(self, home: Home, why: str) -> None:
        """Have children import a file by themselves from now on."""
        if self._lent is not None:
            self._lent.templates.give_up(home, why)

    def unshared(self, home: Home) -> str:
        """Return why each child imports a file by itself, "" where none does."""
        return "" if self._lent is None else self._lent.templates.why_not(home)

    @property
    def isolated(self) -> bool:
        """Whether kernels run in processes of their own."""
        return self._lent is not None

    def _forward(self, data: bytes) -> None:
        if not self.quiet:
            self._printed(data)

    def close(self) -> None:
        """End every child; the zygote waits for another campaign."""
        if self._lent is not None:
            self._lent.give_back()
            self._lent = None


def _unless(
    quiet: Callable[[], bool], forward: Callable[[bytes], None]
) -> Callable[[bytes], None]:
    return lambda data: None if quiet() else forward(data)
