"""Work that keeps a GPU busy while a kernel runs: on streams of its own."""

from functools import cache
from typing import Final

import torch
from torch import Tensor

from kfuzz.execution.device.stale import fill_shared
from kfuzz.execution.memory.poison import Poison

HOLD_CYCLES: Final = 8_000_000
"""Clock cycles, 4 to 5 ms, for which multiprocessors are held: longer than a small
kernel takes from its launch to its end."""

COPIES: Final = 32
COPY_BYTES: Final = 32 << 20
"""Each copy moves more than half of a second-level cache: 32 take some 2 ms."""


def hold_multiprocessors(device: torch.device, poison: Poison) -> None:
    """Start a kernel that takes half of the multiprocessors for a bounded time.

    It takes all their shared memory, so that no block that needs any runs beside it.

    Args:
        device: a GPU.
        poison: what its shared memory is left with.

    Raises:
        HarnessError: where CUDA C++ cannot be compiled or launched.
    """
    fill_shared(device, poison, each=0.5, cycles=HOLD_CYCLES, stream=_stream(device))


def stir_memory(device: torch.device) -> None:
    """Start copies that keep a GPU's memory busy for a bounded time."""
    source, target = _buffers(device)
    with torch.cuda.stream(_stream(device)):
        for _ in range(COPIES):
            target.copy_(source, non_blocking=True)


# Streams of torch's do not wait for the default one, nor it for them. A high priority
# keeps it apart from those that a kernel takes from torch's pool.
@cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]


@cache
def _buffers(device: torch.device) -> tuple[Tensor, Tensor]:
    source = torch.zeros(COPY_BYTES, dtype=torch.uint8, device=device)
    return source, torch.zeros_like(source)
