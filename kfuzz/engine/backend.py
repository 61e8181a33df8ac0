"""Where kernels run: the device, and the zygote that children are forked from."""

import os

from kfuzz.execution.devices import resolve_device
from kfuzz.execution.processes import Child, Zygote
from kfuzz.targets.worker import SERVE


class Backend:
    """Chooses where kernels run, and starts the zygote for it.

    Attributes:
        name: "cpu", "interpret" or "cuda".
        device: torch's device name.
        quiet: whether what children print is dropped: while a finding is reduced,
            a crash would print the same stack a hundred times.
    """

    def __init__(
        self, device: str, *, isolate: str = "auto", serve: str = SERVE
    ) -> None:
        self.name, self.device = resolve_device(device)
        self.quiet = False
        self._zygote: Zygote | None = None
        if isolate != "none":
            self._zygote = Zygote(
                serve,
                env=self._environment(),
                preload=("torch", "triton"),
                output=self._forward,
            )
            self._zygote.start()

    def fork(self) -> Child:
        """Return a new child.

        Raises:
            ZygoteError: if none can be had.
        """
        assert self._zygote is not None
        return self._zygote.fork()

    @property
    def isolated(self) -> bool:
        """Whether kernels run in processes of their own."""
        return self._zygote is not None

    def _forward(self, data: bytes) -> None:
        if not self.quiet:
            os.write(2, data)

    def close(self) -> None:
        """End the zygote and every child."""
        if self._zygote is not None:
            self._zygote.close()

    def _environment(self) -> dict[str, str]:
        env = dict(os.environ)
        env.pop("TRITON_INTERPRET", None)
        if self.name == "interpret":
            env["TRITON_INTERPRET"] = "1"
        return env
