"""Destinations: memory that a kernel is given for its results."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from kfuzz.core.recipe import Destination
from kfuzz.execution.memory.poison import Poison, poison_bytes
from kfuzz.execution.memory.touches import element_offsets
from kfuzz.execution.memory.writes import WriteMap


def write_maps(
    destinations: Mapping[str, Destination], poison: Poison
) -> dict[str, WriteMap]:
    """Return maps in which the elements are unwritten; gaps between them are not.

    A bool has no spare bits for poison: all of it counts as written.
    """
    made = {}
    for name, place in destinations.items():
        dtype, spec = getattr(torch, place.dtype), place.spec()
        size = dtype.itemsize
        writes = WriteMap(spec.span * size, size, poison_bytes(dtype, poison))
        gaps = np.setdiff1d(np.arange(spec.span), element_offsets(spec))
        if dtype is torch.bool:
            writes.mark_all()
        elif gaps.size:
            writes.mark(gaps * size, size)
        made[name] = writes
    return made


def handed_back(returned: object, given: Sequence[Tensor]) -> bool:
    """Whether a kernel returned nothing, or the destinations in their order."""
    if returned is None:
        return True
    items = returned if isinstance(returned, tuple | list) else (returned,)
    if len(items) != len(given):
        return False
    return all(
        isinstance(item, Tensor)
        and item.layout is torch.strided
        and _place(item) == _place(tensor)
        for item, tensor in zip(items, given, strict=True)
    )


def _place(tensor: Tensor) -> tuple[object, ...]:
    place = tensor.data_ptr() if tensor.numel() else 0
    return place, tensor.shape, tensor.stride(), tensor.dtype, tensor.device
