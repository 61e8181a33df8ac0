"""Arguments of billions of elements: placed, filled and compared in parts.

Nothing but the arguments and the results themselves is as large as they are.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from kfuzz.core.recipe import TensorSpec, contiguous_strides
from kfuzz.execution.calls.run import call_once
from kfuzz.execution.interpreter.watch import watch
from kfuzz.execution.memory.allocations import GuardedAllocations
from kfuzz.execution.memory.placement import EXACT_BELOW
from kfuzz.execution.memory.poison import Poison, fill_poison, poison_word
from kfuzz.execution.memory.zones import (
    Slot,
    guard_bytes,
    next_slot,
    raw_memory,
    slot_room,
)
from kfuzz.execution.processes.limits import allowance
from kfuzz.execution.values.stretches import stretch
from kfuzz.numerics.run import AllocationTouch, Expected, Raised, Touch, UncheckedLaunch

SLICE_ELEMENTS: Final = 1 << 23
"""Elements that are made, and judged, at once: 64 MiB of float64."""

WORKING_BYTES: Final = 64 * 8 * SLICE_ELEMENTS
"""What judging a slice may take: some sixty tensors of float64."""

MARGIN_BYTES: Final = 1 << 30
"""Left free on the device: contexts of other processes, compiled code."""


def free_bytes(device: torch.device) -> int | None:
    """Return how much memory a device has to give now, None where nothing limits it."""
    if device.type != "cuda":
        return allowance()
    torch.cuda.empty_cache()
    return int(torch.cuda.mem_get_info(device)[0])


def lacking(wanted: int, device: torch.device) -> str:
    """Return what is missing for so many bytes beside the judge's, "" if nothing is."""
    free = free_bytes(device)
    if free is None or wanted + WORKING_BYTES + MARGIN_BYTES <= free:
        return ""
    needed = (wanted + WORKING_BYTES + MARGIN_BYTES) / 2**30
    return f"needs {needed:.3g} GiB of memory, {free / 2**30:.3g} GiB are free"


@dataclass(frozen=True)
class _Zoned:
    """One argument between its guard zones."""

    memory: Tensor
    slot: Slot
    tensor: Tensor


class LargePlacement:
    """Contiguous arguments, each in memory of its own between guard zones.

    Attributes:
        tensors: the arguments by name; their elements are not set.
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
        self._poison = poison
        self._zoned = {
            name: _zoned(spec, device, alignment, poison)
            for name, spec in specs.items()
        }
        # .data starts a version counter of its own: a kernel's caller sees 0.
        self.tensors = {n: z.tensor.data for n, z in self._zoned.items()}
        # What a kernel does to the tensor objects that it is given is its own affair.
        self.elements = {n: z.tensor.view(-1) for n, z in self._zoned.items()}

    def touches(self) -> list[Touch]:
        """Return what was written around the arguments; waits for the device."""
        found = []
        for name, zoned in self._zoned.items():
            slot, dtype = zoned.slot, zoned.tensor.dtype
            word, value = poison_word(dtype, self._poison)
            before = zoned.memory[slot.start : slot.base].view(word)
            after = zoned.memory[slot.stop : slot.end].view(word)
            wrong = (before != value).nonzero().flatten()
            if wrong.numel():
                far = before.numel() - int(wrong[-1])
                touch = Touch(name, "before", wrong.numel(), far, dtype.itemsize)
                found.append(touch)
            wrong = (after != value).nonzero().flatten()
            if wrong.numel():
                far = int(wrong[0]) + 1
                touch = Touch(name, "after", wrong.numel(), far, dtype.itemsize)
                found.append(touch)
        return found


def _zoned(
    spec: TensorSpec, device: torch.device, alignment: int, poison: Poison
) -> _Zoned:
    dtype: torch.dtype = getattr(torch, spec.dtype)
    nbytes = spec.numel * dtype.itemsize
    align, guard = max(alignment, dtype.itemsize), guard_bytes(nbytes)
    memory = raw_memory(slot_room(nbytes, guard, align), device)
    slot = next_slot(
        memory.data_ptr(), 0, nbytes, guard, alignment=align, exact=align < EXACT_BELOW
    )
    for zone in ((slot.start, slot.base), (slot.stop, slot.end)):
        fill_poison(memory[slice(*zone)], dtype, poison)
    tensor = torch.empty(0, dtype=dtype, device=device)
    storage = memory.untyped_storage()[slot.base : slot.stop]
    tensor.set_(storage, 0, spec.shape, contiguous_strides(spec.shape))
    return _Zoned(memory, slot, tensor)


def fill_stretches(
    elements: Tensor, spec: TensorSpec, *, at_once: int, step: Callable[[], None]
) -> None:
    """Write an argument's values a stretch at a time.

    Args:
        elements: its memory, flat.
        spec: its recipe, see `stretches.can_stretch`.
        at_once: elements of a stretch.
        step: called before each.
    """
    for start in range(0, spec.numel, at_once):
        step()
        stop = min(start + at_once, spec.numel)
        elements[start:stop] = stretch(spec, start, stop, elements.device)


@dataclass(frozen=True)
class LargeRun:
    """What one call on large arguments left.

    Attributes:
        returned: what the kernel returned, in its own memory.
        raised: the exception, if one left the kernel.
        strays: writes around the kernel's own allocations.
        unchecked: a launch that failed on a GPU though the call returned.
    """

    returned: object = None
    raised: Raised | None = None
    strays: tuple[AllocationTouch, ...] = ()
    unchecked: UncheckedLaunch | None = None


def run_large(
    call: Callable[..., Any],
    arguments: list[Tensor],
    scalars: Mapping[str, object],
    *,
    device: torch.device,
    fresh: Poison,
    config: int = 0,
) -> LargeRun:
    """Call a kernel once; its own allocations are guarded while they fit.

    Args:
        call: takes the tensors, and the scalars by keyword.
        arguments: the tensors, then the destinations.
        scalars: the keywords.
        device: where it runs.
        fresh: what memory holds that the kernel allocates.
        config: which autotune configuration runs, modulo their number.
    """
    free = free_bytes(device)
    limit = sys.maxsize if free is None else max(free - WORKING_BYTES, 0)
    allocations = GuardedAllocations(device, fresh, limit=limit)
    with watch(config=config):
        returned, raised, unchecked = call_once(call, arguments, scalars, allocations)
    if raised is not None:
        return LargeRun(raised=raised)
    strays = tuple(allocations.touches())
    return LargeRun(returned, None, strays, unchecked)


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
