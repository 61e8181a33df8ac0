"""Where kernels run: the device, and the zygote that children are forked from."""

import os

from kfuzz.engine import zygotes
from kfuzz.execution.devices import resolve_device
from kfuzz.execution.processes import Child


class Backend:
    """Chooses where kernels run, and has the zygote for it.

    Attributes:
        name: "cpu", "interpret" or "cuda".
        device: torch's device name.
        quiet: whether what children print is dropped: while a finding is reduced,
            a crash would print the same stack a hundred times.
    """

    def __init__(
        self, device: str, *, isolate: str = "auto", serve: str = zygotes.SERVE
    ) -> None:
        self.name, self.device = resolve_device(device)
        self.quiet = False
        self._lent: zygotes.Lent | None = None
        if isolate != "none":
            self._lent = zygotes.lend(self.name, serve, output=self._forward)

    def fork(self) -> Child:
        """Return a new child.

        Raises:
            ZygoteError: if none can be had.
        """
        assert self._lent is not None
        return self._lent.zygote.fork()

    @property
    def isolated(self) -> bool:
        """Whether kernels run in processes of their own."""
        return self._lent is not None

    def _forward(self, data: bytes) -> None:
        if not self.quiet:
            os.write(2, data)

    def close(self) -> None:
        """End every child; the zygote waits for another campaign."""
        if self._lent is not None:
            self._lent.give_back()
            self._lent = None
