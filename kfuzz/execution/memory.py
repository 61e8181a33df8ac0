"""Placement: every tensor a kernel is given lies between guard zones."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor

from kfuzz.core.errors import HarnessError
from kfuzz.core.recipe import TensorSpec
from kfuzz.execution.poison import Poison, fill_poison
from kfuzz.execution.touches import Touch, element_offsets, find_touches, single_shape
from kfuzz.execution.zones import (
    Slot,
    guard_bytes,
    next_slot,
    raw_memory,
    rounded,
    slot_room,
)

EXACT_BELOW: Final = 64
"""Alignments under this many bytes are given exactly, never by luck a larger one;
from there on torch's own allocators align alike."""


class Arena:
    """Memory that placements use in turn, grown as needed.

    One placement lives in it at a time: the next one overwrites the tensors of the
    last. What must outlive the next case has to be cloned.

    Attributes:
        device: where the memory lies.
        generation: how many placements have used it.
    """

    def __init__(self, device: torch.device | str) -> None:
        self.device = torch.device(device)
        self.generation = 0
        self.live = raw_memory(0, self.device)
        self.snapshot = raw_memory(0, self.device)

    def reserve(self, nbytes: int) -> None:
        """Make room for a placement; invalidates the one before.

        Args:
            nbytes: bytes needed in all, guard zones included.
        """
        self.generation += 1
        if nbytes > self.live.numel():
            room = 1 << (nbytes - 1).bit_length()
            self.live = raw_memory(room, self.device)
            self.snapshot = raw_memory(room, self.device)


@dataclass(frozen=True)
class _Placed:
    name: str
    spec: TensorSpec
    dtype: torch.dtype
    slot: Slot


class Placement:
    """The tensors of one case, and what has happened to their memory since.

    Attributes:
        tensors: one per argument, with the shape, strides, storage offset and dtype
            of its recipe; each has a storage of its own that starts at the aligned
            base and ends with the view. An empty tensor's `data_ptr()` is 0, as
            everywhere in torch; its storage points between the guard zones.
    """

    def __init__(
        self,
        arena: Arena,
        placed: list[_Placed],
        tensors: dict[str, Tensor],
        used: int,
    ) -> None:
        self.tensors = tensors
        self._arena = arena
        self._generation = arena.generation
        self._placed = placed
        self._live = arena.live[:used].view(torch.int64)
        self._snapshot = arena.snapshot[:used].view(torch.int64)
        self._snapshot.copy_(self._live)

    def touches(self, *, inplace: Collection[str] = ()) -> list[Touch]:
        """Compare all memory of the placement with its state when placed.

        Waits for the device. A byte rewritten with its old value is no touch.

        Args:
            inplace: arguments whose elements the kernel may change.

        Returns:
            At most one touch per argument and place, in the order of the arguments.

        Raises:
            HarnessError: if the arena has been given to another placement since.
        """
        if self._arena.generation != self._generation:
            raise HarnessError(
                "this placement's memory was reused by a later one",
                where="kfuzz.execution.memory",
                fix="Check a placement before placing the next case in its arena",
            )
        if self._live.is_cuda:
            torch.cuda.synchronize(self._live.device)
        if torch.equal(self._live, self._snapshot):
            return []
        if inplace and torch.equal(self._with_old_elements(inplace), self._snapshot):
            return []
        now = self._live.view(torch.uint8).cpu().numpy()
        was = self._snapshot.view(torch.uint8).cpu().numpy()
        found: list[Touch] = []
        ends = [p.slot.start for p in self._placed[1:]] + [now.size]
        for placed, end in zip(self._placed, ends, strict=True):
            name, spec, size = placed.name, placed.spec, placed.dtype.itemsize
            start = placed.slot.start
            origin = placed.slot.base + spec.offset * size
            changed = np.flatnonzero(now[start:end] != was[start:end])
            found += find_touches(name, spec, size, changed + (start - origin))
        return [t for t in found if t.where != "element" or t.argument not in inplace]

    def _with_old_elements(self, names: Collection[str]) -> Tensor:
        copy = self._live.clone()
        for placed in self._placed:
            if placed.name in names:
                old = _single(_view(self._snapshot, placed), placed.spec)
                _single(_view(copy, placed), placed.spec).copy_(old)
        return copy


def place(
    case_specs: Mapping[str, TensorSpec],
    values: Mapping[str, Tensor],
    *,
    device: torch.device | str,
    alignment: int,
    poison: Poison,
    arena: Arena | None = None,
) -> Placement:
    """Lay a case's tensors out between guard zones.

    Around each argument: guard zone, storage from its base to the end of the view,
    guard zone. Guard zones, the storage in front of the view (its offset) and the
    slack between its elements hold the poison of the argument's dtype.

    Args:
        case_specs: the recipes by parameter name.
        values: per argument its logical elements, in the recipe's shape and dtype.
            Of elements that share memory by a stride of 0, the one at index 0
            counts.
        device: where the tensors are to lie; `arena`'s device where one is given.
        alignment: bytes, a power of two. Each base is a multiple of it (or of the
            item size, if that is larger) and, below `EXACT_BELOW`, not of its
            double. A storage offset shifts the view from there.
        poison: which poison.
        arena: memory to use again; a fresh one by default.

    Raises:
        HarnessError: if values do not fit their recipe, if elements overlap other
            than by a stride of 0, or if the alignment is no power of two.
    """
    if alignment < 1 or alignment & (alignment - 1):
        raise HarnessError(f"alignment {alignment} is not a power of two")
    arena = Arena(device) if arena is None else arena
    wanted = []
    room = 0
    for name, spec in case_specs.items():
        _check_values(name, spec, values)
        dtype: torch.dtype = getattr(torch, spec.dtype)
        size = dtype.itemsize
        span, reach = _extent(name, spec)
        nbytes, guard = (spec.offset + span) * size, guard_bytes(reach * size)
        align = max(alignment, size)
        room += slot_room(nbytes, guard, align)
        wanted.append((name, spec, dtype, nbytes, guard, align))
    arena.reserve(room)
    used, placed = 0, []
    address = arena.live.data_ptr()
    for name, spec, dtype, nbytes, guard, align in wanted:
        exact = align < EXACT_BELOW
        slot = next_slot(address, used, nbytes, guard, alignment=align, exact=exact)
        placed.append(_Placed(name, spec, dtype, slot))
        used = rounded(slot.end)
    tensors = {}
    memory = arena.live.untyped_storage()
    for p in placed:
        fill_poison(arena.live[p.slot.start : p.slot.end], p.dtype, poison)
        storage = memory[p.slot.base : p.slot.stop]
        tensor = torch.empty(0, dtype=p.dtype, device=arena.device)
        tensor.set_(storage, p.spec.offset, p.spec.shape, p.spec.element_strides)
        _single(tensor, p.spec).copy_(_single(values[p.name], p.spec))
        # .data starts a version counter of its own: a kernel's caller sees 0.
        tensors[p.name] = tensor.data
    return Placement(arena, placed, tensors, used)


def _check_values(name: str, spec: TensorSpec, values: Mapping[str, Tensor]) -> None:
    given = values.get(name)
    found = None if given is None else (tuple(given.shape), given.dtype)
    if found != (spec.shape, getattr(torch, spec.dtype)):
        what = f"values {found} do not fit shape {spec.shape} and dtype {spec.dtype}"
        raise HarnessError(what, where=name)


def _extent(name: str, spec: TensorSpec) -> tuple[int, int]:
    """Return the span of a view and how far a stray index may reach, in elements.

    Stray indices: one row too many, or all elements where a stride of 0 was ignored.
    """
    numel = math.prod(spec.shape)
    if numel == 0:
        return 0, 0
    span, reach, apart = 1, numel, True
    for step, n in sorted(zip(spec.element_strides, spec.shape, strict=True)):
        if n > 1 and step:
            # Sufficient for disjoint elements; what fails it is counted below.
            apart = apart and step >= span
            span += (n - 1) * step
            reach = max(reach, step)
    if not apart and len(np.unique(element_offsets(spec))) < math.prod(
        single_shape(spec)
    ):
        what = f"elements overlap (shape {spec.shape}, strides {spec.strides})"
        fix = "Only a stride of 0 may make elements share memory"
        raise HarnessError(what, where=name, fix=fix)
    return span, reach


def _single(tensor: Tensor, spec: TensorSpec) -> Tensor:
    """Cut every stride-0 axis of a view down to one element."""
    if spec.strides is None or 0 not in spec.strides:
        return tensor
    for axis, step in enumerate(spec.strides):
        if step == 0 and spec.shape[axis] > 1:
            tensor = tensor.narrow(axis, 0, 1)
    return tensor


def _view(words: Tensor, placed: _Placed) -> Tensor:
    """Return an argument's view over a copy of the placement's memory."""
    typed = words.view(torch.uint8)[placed.slot.base : placed.slot.stop]
    spec = placed.spec
    typed = typed.view(placed.dtype)
    start = typed.storage_offset() + spec.offset
    return typed.as_strided(spec.shape, spec.element_strides, start)
