"""A process of kfuzz's own, whose Triton compiles, or one whose Triton interprets."""

import os
from contextlib import suppress
from typing import Final

from kfuzz.execution.processes.own import OwnProcess, end, served

__all__ = ["LOOK", "Process", "end", "served"]

LOOK: Final = 0.05
"""Seconds between two looks at a process that is waited for."""
# Against one search that has no processor to spare it gets a tenth of one.
_NICE: Final = 10


class Process(OwnProcess):
    """A process that works beside a search.

    Args:
        module: that it runs; its `main` takes the messages with `served`.
        interpret: whether its Triton interprets kernels.
        idle: whether it runs on what others leave of the processors.
    """

    def __init__(self, module: str, *, interpret: bool, idle: bool = False) -> None:
        own = {"TRITON_INTERPRET": str(int(interpret)), "OMP_NUM_THREADS": "1"}
        # Ctrl-C is its parent's to obey. A session of its own would get a share of the
        # processors of its own.
        super().__init__(
            module, {**os.environ, **own}, python=("-W", "ignore"), process_group=0
        )
        if idle:
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, self.pid, _NICE)

    def send(self, message: object) -> None:
        """Send a message; nothing where the process has ended."""
        with suppress(OSError):
            super().send(message)

    def ready(self, seconds: float = LOOK) -> bool:
        """Return whether a message is there within some seconds; see `OwnProcess`."""
        return super().ready(seconds)
