"""How the tensors of a call lie in a slot of the device gate's."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from kfuzz.monitor.gate.device import MEASURED
from kfuzz.monitor.gate.gate_kernel import MOST
from kfuzz.monitor.ring import rounded
from kfuzz.monitor.snapshot import TensorCopy, can_copy
from kfuzz.numerics.footprints import Footprint

# Sizes are passed as 32 bits.
_MOST_ELEMENTS: Final = 1 << 30
_ALIGNED: Final = 16
# What is only copied, is copied as these: Triton does not know all dtypes.
_RAW: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass
class Plan:
    """What is the same for all tensors of some shapes, strides and dtypes.

    Attributes:
        places: per tensor its byte offset in a slot, shape, strides and dtype.
        used: bytes of the slot up to their end.
        padding: addresses, of nothing, in the place of those that kernels take more.
        numbers: elements of each tensor that kernels take, then byte offsets of these.
        measured: bits of those of which a statistic is made.
        decide: launches the kernel of that name on such tensors, once it was compiled.
        keep_results: likewise.
    """

    places: tuple[tuple[int, tuple[int, ...], tuple[int, ...], torch.dtype], ...]
    used: int
    padding: tuple[int, ...]
    numbers: tuple[int, ...]
    measured: int
    decide: Callable[..., object] | None = None
    keep_results: Callable[..., object] | None = None

    @property
    def count(self) -> int:
        """Tensors."""
        return len(self.places)

    def given(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return as many tensors as kernels take."""
        taken = [
            x if x.dtype in MEASURED else x.view(_RAW[x.element_size()])
            for x in tensors
        ]
        return (*taken, *[taken[0]] * len(self.padding))

    def copies(
        self, slot: Tensor, addresses: Sequence[int], device: torch.device
    ) -> list[TensorCopy]:
        """Return the copies that lie in the bytes of a slot."""
        made = []
        for place, address in zip(self.places, addresses, strict=True):
            start, shape, strides, dtype = place
            size = dtype.itemsize
            whole = slot[start : start + _span(shape, strides) * size].view(dtype)
            made.append(
                TensorCopy(
                    torch.as_strided(whole, shape, strides, whole.storage_offset()),
                    shape,
                    strides,
                    address % max(_ALIGNED, size) // size,
                    dtype,
                    device,
                    Footprint(address, shape, strides, size),
                )
            )
        return made


def planned(
    tensors: Sequence[Tensor], start: int, device: torch.device, capacity: int
) -> Plan | None:
    """Return where copies of tensors go; None where they cannot be kept.

    Args:
        tensors: plain ones, with strides.
        start: bytes of the slot that are taken.
        device: where the tensors lie if they can be kept.
        capacity: bytes of a slot.
    """
    if not 0 < len(tensors) <= MOST.value:
        return None
    places, sizes, measured = [], [], 0
    for i, x in enumerate(tensors):
        shape, strides = tuple(x.shape), x.stride()
        span, count = _span(shape, strides), x.numel()
        if span > count or count >= _MOST_ELEMENTS or x.device != device:
            return None
        if not can_copy(x):
            return None
        if x.dtype not in MEASURED and x.element_size() not in _RAW:
            return None
        places.append((start, shape, strides, x.dtype))
        sizes.append(span)
        measured |= (x.dtype in MEASURED) << i
        start += rounded(span * x.element_size())
    if start > capacity:
        return None
    none = (0,) * (MOST.value - len(tensors))
    offsets = [place[0] for place in places]
    numbers = (*sizes, *none, *offsets, *none)
    return Plan(tuple(places), start, none, numbers, measured)


def _span(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Return the elements between a tensor's first and its last, both included."""
    if 0 in shape:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
