"""An observed call as text and bytes in shared memory, and back."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from kfuzz.core.recipe import Scalar
from kfuzz.monitor.ring import rounded
from kfuzz.monitor.seen import Returned, Seen
from kfuzz.monitor.snapshot import Change, TensorCopy
from kfuzz.monitor.subjects.references import HOLE, Structure
from kfuzz.monitor.subjects.subject import dtype_name, is_plain, raw, scalar_of
from kfuzz.numerics.footprints import Footprint


def can_send(seen: Seen) -> bool:
    """Whether a call is made of named tensors and plain scalars alone."""
    if seen.rest is None:
        return True
    structure: Structure = seen.rest
    scalars = [x for x in structure.leaves if x is not HOLE]
    named = len(structure.leaves) == len(seen.tensors) + len(seen.scalars)
    return named and all(map(is_plain, scalars))


def room_for(seen: Seen) -> int:
    """Return the bytes of shared memory that a call takes."""
    copies = [*seen.tensors.values(), *seen.returned.leaves]
    return sum(_size(c) for c in copies if isinstance(c, TensorCopy))


def _size(copy: TensorCopy) -> int:
    return rounded(copy.values.numel() * copy.values.element_size())


class Writer:
    """Writes calls to shared memory, each from its beginning on."""

    def __init__(self, memory: Tensor) -> None:
        self._memory = memory
        self._at = 0

    def written(self, seen: Seen) -> dict[str, Any]:
        """Return a call as JSON holds it, its elements written to the memory."""
        self._at = 0
        returned = seen.returned
        leaves = [x if isinstance(x, str) else self._tensor(x) for x in returned.leaves]
        return {
            "tensors": {n: self._tensor(c) for n, c in seen.tensors.items()},
            "scalars": {n: scalar_of(v, n) for n, v in seen.scalars.items()},
            "leaves": leaves,
            "form": returned.form,
            "kind": returned.kind,
            "nest": returned.nest,
            "changed": {n: asdict(c) for n, c in seen.changed.items()},
            "handed": seen.handed,
            "is_compiled": seen.is_compiled,
            "tf32": sorted(seen.tf32),
            "is_named": seen.rest is not None,
        }

    def _tensor(self, copy: TensorCopy) -> dict[str, Any]:
        elements = raw(copy.values)
        self._memory[self._at : self._at + elements.numel()].copy_(elements)
        at, self._at = self._at, self._at + _size(copy)
        return {
            "at": at,
            "shape": copy.shape,
            "strides": copy.strides,
            "offset": copy.offset,
            "dtype": dtype_name(copy.dtype),
            "device": str(copy.device),
            "address": copy.footprint.address,
        }


def read(data: Mapping[str, Any], memory: Tensor) -> Seen:
    """Return a call; its tensors lie in the memory."""
    tensors = {n: _copy(d, memory) for n, d in data["tensors"].items()}
    leaves = tuple(
        x if isinstance(x, str) else _copy(x, memory) for x in data["leaves"]
    )
    scalars: dict[str, Scalar] = dict(data["scalars"])
    structure = None
    if data["is_named"]:
        holes = {n: c.values for n, c in tensors.items()}
        given = {**holes, **scalars}
        structure, _ = Structure.of(given, (), given)
    return Seen(
        tensors,
        scalars,
        Returned(leaves, data["form"], data["kind"], data["nest"]),
        {n: Change(**d) for n, d in data["changed"].items()},
        data["handed"],
        structure,
        data["is_compiled"],
        frozenset(data["tf32"]),
    )


def _copy(data: Mapping[str, Any], memory: Tensor) -> TensorCopy:
    dtype: torch.dtype = getattr(torch, data["dtype"])
    shape, strides = tuple(data["shape"]), tuple(data["strides"])
    nbytes = torch.Size(shape).numel() * dtype.itemsize
    values = memory[data["at"] : data["at"] + nbytes].view(dtype).reshape(shape)
    return TensorCopy(
        values,
        shape,
        strides,
        data["offset"],
        dtype,
        torch.device(data["device"]),
        Footprint(data["address"], shape, strides, dtype.itemsize),
    )
