"""Arguments of billions of elements: placed, filled and compared in parts.

Nothing but the arguments and the results themselves is as large as they are.
"""

import sys
from collections.abc import Callable, Mapping
from typing import Final

import torch
from torch import Tensor

from kfuzz.core.recipe import TensorSpec, contiguous_strides
from kfuzz.execution.calls.environment import Call, call_once
from kfuzz.execution.device.backends import backend_of
from kfuzz.execution.interpreter.watch import watch
from kfuzz.execution.memory.allocations import GuardedAllocations
from kfuzz.execution.memory.poison import Poison
from kfuzz.execution.memory.rows import PoisonedSlot, Rows
from kfuzz.execution.memory.zones import (
    EXACT_BELOW,
    guard_bytes,
    next_slot,
    raw_memory,
    slot_room,
)
from kfuzz.execution.values.fills import stretch
from kfuzz.numerics.run import AllocationTouch, Expected, Touch

SLICE_ELEMENTS: Final = 1 << 23
"""Elements that are made, and judged, at once: 64 MiB of float64."""

WORKING_BYTES: Final = 64 * 8 * SLICE_ELEMENTS
"""What judging a slice may take: some sixty tensors of float64."""

MARGIN_BYTES: Final = 1 << 30
"""Left free on the device: contexts of other processes, compiled code."""


def lacking(wanted: int, device: torch.device) -> str:
    """Return what is missing for so many bytes beside the judge's, "" if nothing is."""
    free = backend_of(device).free_bytes(device)
    if free is None or wanted + WORKING_BYTES + MARGIN_BYTES <= free:
        return ""
    needed = (wanted + WORKING_BYTES + MARGIN_BYTES) / 2**30
    return f"needs {needed:.3g} GiB of memory, {free / 2**30:.3g} GiB are free"


class LargePlacement:
    """Contiguous arguments, each in memory of its own between guard zones.

    Attributes:
        tensors: the arguments by name; their elements are not set.
        elements: the same memory, flat.
    """

    def __init__(
        self,
        specs: Mapping[str, TensorSpec],
        *,
        device: torch.device,
        alignment: int,
        poison: Poison,
    ) -> None:
        """Allocate the arguments and poison the zones.

        Args:
            specs: contiguous recipes without offset.
            device: where they lie.
            alignment: bytes; as for `memory.place`.
            poison: what the zones hold.
        """
        self._guarded: dict[str, PoisonedSlot] = {}
        self.tensors: dict[str, Tensor] = {}
        # What a kernel does to the tensor objects that it is given is its own affair.
        self.elements: dict[str, Tensor] = {}
        for name, spec in specs.items():
            dtype: torch.dtype = getattr(torch, spec.dtype)
            rows = _row(spec.numel * dtype.itemsize, dtype.itemsize, device, alignment)
            self._guarded[name] = PoisonedSlot(rows, dtype, (poison,), zones_only=True)
            form = dtype, spec.shape, contiguous_strides(spec.shape), 0
            self.tensors[name] = rows.isolated(0, rows.slots[0], form)
            self.elements[name] = self.tensors[name].data.view(-1)

    def touches(self) -> list[Touch]:
        """Return what was written around the arguments; waits for the device."""
        return [
            Touch(name, *stray, guarded.dtype.itemsize)
            for name, guarded in self._guarded.items()
            for stray in guarded.strays()
        ]


def _row(nbytes: int, itemsize: int, device: torch.device, alignment: int) -> Rows:
    """Return memory for one argument."""
    align, guard = max(alignment, itemsize), guard_bytes(nbytes)
    memory = raw_memory(slot_room(nbytes, guard, align), device)
    slot = next_slot(
        memory.data_ptr(), 0, nbytes, guard, alignment=align, exact=align < EXACT_BELOW
    )
    return Rows(memory, (slot,))


def fill_stretches(
    elements: Tensor, spec: TensorSpec, *, at_once: int, step: Callable[[], None]
) -> None:
    """Write an argument's values a stretch at a time."""
    for start in range(0, spec.numel, at_once):
        step()
        stop = min(start + at_once, spec.numel)
        elements[start:stop] = stretch(spec, start, stop, elements.device)


def run_large(
    call: Callable[[], object], *, device: torch.device, fresh: Poison, config: int = 0
) -> tuple[Call, tuple[AllocationTouch, ...]]:
    """Call a kernel once; its own allocations are guarded while they fit.

    Args:
        call: takes nothing.
        device: where it runs.
        fresh: what memory holds that the kernel allocates.
        config: which autotune configuration runs, modulo their number.

    Returns:
        What came of it, its results in its own memory, and the writes around the
        kernel's own allocations.
    """
    free = backend_of(device).free_bytes(device)
    limit = sys.maxsize if free is None else max(free - WORKING_BYTES, 0)
    allocations = GuardedAllocations(device, fresh, limit=limit)
    with watch(config=config):
        made = call_once(call, device, allocations)
    return made, tuple(allocations.touches()) if made.raised is None else ()


def wanted_bytes(
    specs: Mapping[str, TensorSpec], expected: Mapping[str, Expected]
) -> int:
    """Return the bytes of arguments and results.

    Results count twice: memory is taken plainly, then between guard zones.
    """
    total = 0
    for spec in specs.values():
        total += spec.numel * getattr(torch, spec.dtype).itemsize
    for wanted in expected.values():
        total += 2 * torch.Size(wanted.shape).numel() * wanted.dtype.itemsize
    return total
