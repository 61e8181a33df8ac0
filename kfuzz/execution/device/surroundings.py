"""What a call on a GPU is made to meet: stale memory, other work, an earlier error."""

from enum import StrEnum
from functools import cache
from typing import Final

import torch
from torch import Tensor

from kfuzz.core.errors import HarnessError
from kfuzz.cuda.runtime import Runtime, forget_errors, take_unchecked, torch_runtime
from kfuzz.execution.device.backends import backend_of, is_lost
from kfuzz.execution.device.stale import (
    compile_fill,
    fill_shared,
    poison_free,
    poison_shared,
)
from kfuzz.execution.memory.poison import Poison
from kfuzz.numerics.run import UncheckedLaunch

HOLD_CYCLES: Final = 8_000_000
"""Clock cycles, 4 to 5 ms, for which multiprocessors are held: longer than a small
kernel takes from its launch to its end."""

COPIES: Final = 32
COPY_BYTES: Final = 32 << 20
"""Each copy moves more than half of a second-level cache: 32 take some 2 ms."""


class Company(StrEnum):
    """What runs beside a call.

    Attributes:
        NONE: nothing.
        HELD: a kernel that holds half of the multiprocessors.
        STIRRED: copies that keep memory busy.
    """

    NONE = "none"
    HELD = "held"
    STIRRED = "stirred"


class Surroundings:
    """What lies and runs beside a kernel on one GPU.

    Attributes:
        lacking: what cannot be done here and why, one line each.
    """

    def __init__(self, device: torch.device, runtime: Runtime | None) -> None:
        self.lacking: dict[str, None] = {}
        self._device = device
        self._runtime = runtime
        self._compiles = self._sees_free = True
        if runtime is None:
            text = "failed launches and stale memory below Python go unseen: torch's"
            self.lacking[f"{text} GPU runtime was not found"] = None

    def forget_errors(self) -> None:
        """Clear what an earlier call left in the runtime."""
        forget_errors(self._runtime)

    def take_unchecked(self) -> UncheckedLaunch | None:
        """Return the failed launch that the call just made left, and clear it."""
        return take_unchecked(self._runtime)

    def prepare(self) -> None:
        """Compile what the other methods launch, which takes a while."""
        if self._compiles:
            try:
                compile_fill(self._device)
            except HarnessError as error:
                self._without_kernels(error)

    def poison(self, poison: Poison) -> None:
        """Poison free memory, then shared memory, as far as that can be done."""
        if self._runtime is not None and self._sees_free:
            try:
                poison_free(self._device, poison, self._runtime)
            except (HarnessError, RuntimeError) as error:
                if is_lost(self._device):
                    raise
                # An allocator other than torch's own tells nothing of its blocks.
                self._sees_free = False
                self.lacking[f"free memory is not poisoned: {error}"] = None
        if self._compiles:
            try:
                poison_shared(self._device, poison)
            except HarnessError as error:
                self._without_kernels(error)

    def begin(self, company: Company, poison: Poison) -> bool:
        """Start what is to run beside the next call.

        Args:
            company: what runs.
            poison: what it leaves in shared memory.

        Returns:
            Whether it could be started.
        """
        if company is Company.STIRRED:
            try:
                stir_memory(self._device)
            except torch.OutOfMemoryError:
                return False
        if company is Company.HELD and self._compiles:
            try:
                hold_multiprocessors(self._device, poison)
            except HarnessError as error:
                self._without_kernels(error)
        return company is not Company.HELD or self._compiles

    def _without_kernels(self, error: HarnessError) -> None:
        self._compiles = False
        text = "shared memory is not poisoned and no multiprocessor held"
        self.lacking[f"{text}: {error}"] = None


def surroundings_of(device: torch.device) -> Surroundings | None:
    """Return a device's surroundings; None for the host."""
    return backend_of(device).surroundings(device)


@cache
def surroundings_on(device: torch.device) -> Surroundings:
    """Return a GPU's surroundings, one object for a process."""
    return Surroundings(device, torch_runtime())


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
