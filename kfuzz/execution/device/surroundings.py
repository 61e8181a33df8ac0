"""What a call on a GPU is made to meet: stale memory, other work, an earlier error."""

from enum import StrEnum
from functools import cache

import torch

from kfuzz.core.errors import HarnessError
from kfuzz.execution.device.company import hold_multiprocessors, stir_memory
from kfuzz.execution.device.devices import is_lost
from kfuzz.execution.device.launches import forget_errors, take_unchecked
from kfuzz.execution.device.runtime import Runtime, runtime_of
from kfuzz.execution.device.stale import (
    compile_fill,
    poison_free,
    poison_shared,
)
from kfuzz.execution.memory.poison import Poison
from kfuzz.numerics.run import UncheckedLaunch


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


@cache
def surroundings_of(device: torch.device) -> Surroundings | None:
    """Return a device's surroundings, one object for a process; None for the CPU."""
    if device.type != "cuda":
        return None
    return Surroundings(device, runtime_of(device))
