"""Placement: every tensor a kernel is given lies between guard zones."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from kfuzz.core.errors import HarnessError
from kfuzz.core.recipe import Edge, TensorSpec
from kfuzz.execution.device.pages import Pool
from kfuzz.execution.memory.blocks import Dense, Placed, Sparse, single
from kfuzz.execution.memory.buffers import Rooms
from kfuzz.execution.memory.poison import Poison
from kfuzz.execution.memory.touches import element_offsets, single_shape
from kfuzz.execution.memory.windows import Windows, is_sparse
from kfuzz.execution.memory.zones import (
    edge_slot,
    guard_bytes,
    next_slot,
    raw_memory,
    rounded,
    slot_room,
)
from kfuzz.numerics.run import Touch

EXACT_BELOW: Final = 64
"""Alignments under this many bytes are given exactly, never by luck a larger one;
from there on torch's own allocators align alike."""


EDGE_BYTES: Final = 256 << 20
"""Largest argument that lies at an edge on a device: its room and the copy that it is
compared with are kept for the cases that follow."""


@dataclass(frozen=True)
class Region:
    """The memory in which an argument lies alone, guard zones included.

    Attributes:
        memory: uint8, from the first byte of the zone in front to the last behind.
        base: where the argument's storage begins in it.
        stop: where that ends.
    """

    memory: Tensor
    base: int
    stop: int


_REGIONS: Final = WeakIdKeyDictionary()


def region_of(tensor: Tensor) -> Region | None:
    """Return the region of an argument as it was placed, None for another tensor."""
    found: Region | None = _REGIONS.get(tensor)  # type: ignore[no-untyped-call]
    return found


class Arena:
    """Memory that placements use in turn, grown as needed.

    One placement lives in it at a time: the next one overwrites the tensors of the
    last. What must outlive the next case has to be cloned.

    Attributes:
        device: where the memory lies.
        generation: how many placements have used it.
        rooms: memory beside pages that fault, for arguments at an edge.
        pool: such memory for what a kernel allocates, on a device only.
    """

    def __init__(self, device: torch.device | str) -> None:
        self.device = torch.device(device)
        self.generation = 0
        self.rooms = Rooms(self.device)
        self.pool = None if self.device.type == "cpu" else Pool(self.device)
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
        parts: list[Dense | Sparse],
        tensors: dict[str, Tensor],
    ) -> None:
        self.tensors = tensors
        self._arena = arena
        self._generation = arena.generation
        self._parts = parts
        for part in parts:
            part.snap()

    @property
    def owned(self) -> list[tuple[int, int]]:
        """Addresses, first and one past the last, of memory that it has to itself."""
        found = []
        for memory in {id(p.memory): p.memory for p in self._placed}.values():
            start = memory.data_ptr()
            found.append((start, start + memory.numel()))
        return found

    @property
    def _placed(self) -> list[Placed]:
        return [placed for part in self._parts for placed in part.placed]

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
                where="kfuzz.execution.memory.placement",
                fix="Check a placement before placing the next case in its arena",
            )
        if self._arena.device.type == "cuda":
            torch.cuda.synchronize(self._arena.device)
        found = [t for part in self._parts for t in part.touches(inplace)]
        order = list(self.tensors)
        found.sort(key=lambda touch: order.index(touch.argument))
        return [t for t in found if t.where != "element" or t.argument not in inplace]


@dataclass(frozen=True)
class _Wanted:
    """What one argument needs of its memory."""

    name: str
    spec: TensorSpec
    dtype: torch.dtype
    nbytes: int
    guard: int
    align: int

    @property
    def exact(self) -> bool:
        return self.align < EXACT_BELOW


def place(
    case_specs: Mapping[str, TensorSpec],
    values: Mapping[str, Tensor],
    *,
    device: torch.device | str,
    alignment: int,
    poison: Poison,
    arena: Arena | None = None,
    edge: Edge | None = None,
) -> Placement:
    """Lay a case's tensors out between guard zones.

    Around each argument: guard zone, storage from its base to the end of the view,
    guard zone. Guard zones, the storage in front of the view (its offset) and the
    slack between its elements hold the poison of the argument's dtype.

    An argument that lies at an edge has on that side, instead of the guard zone, a
    page that faults when touched. Its base keeps the alignment: at the end as many
    bytes of poison lie between the view and the page as that takes, at least
    `edge.slack`. At the start the base, not the view, touches the page: a storage
    offset lies between. Empty and sparse arguments have no edge, nor has on a device
    what is larger than `EDGE_BYTES`.

    A view of few elements in far more memory than they take (`windows.is_sparse`)
    lies in memory of its own, poisoned and compared around its elements and at both
    ends only.

    Args:
        case_specs: the recipes by parameter name.
        values: per argument its logical elements, in the recipe's shape and dtype.
            Of elements that share memory by a stride of 0, the one at index 0
            counts.
        device: where the tensors are to lie; `arena`'s device where one is given.
        alignment: bytes, a power of two. Each base is a multiple of it (or of the
            item size, if that is larger) and, below `EXACT_BELOW` and away from
            edges, not of its double. A storage offset shifts the view from there.
        poison: which poison.
        arena: memory to use again; a fresh one by default.
        edge: which arguments lie beside a page that faults.

    Raises:
        HarnessError: if values do not fit their recipe, if elements overlap other
            than by a stride of 0, or if the alignment is no power of two.
        NoAddressSpace: if a sparse view spans more than the system gives.
    """
    if alignment < 1 or alignment & (alignment - 1):
        raise HarnessError(f"alignment {alignment} is not a power of two")
    arena = Arena(device) if arena is None else arena
    on_cpu = arena.device.type == "cpu"
    together: list[_Wanted] = []
    parts: list[Dense | Sparse] = []
    windowed: set[str] = set()
    for number, (name, spec) in enumerate(case_specs.items()):
        _check_values(name, spec, values)
        dtype: torch.dtype = getattr(torch, spec.dtype)
        size = dtype.itemsize
        span, reach = extent(name, spec)
        nbytes, guard = (spec.offset + span) * size, guard_bytes(reach * size)
        want = _Wanted(name, spec, dtype, nbytes, guard, max(alignment, size))
        if is_sparse(spec, size, arena.device):
            parts.append(_sparse(want, poison, arena.device))
            windowed.add(name)
        elif span and edge is not None and _is_at_edge(want, edge, on_cpu=on_cpu):
            parts.append(_at_edge(arena, number, want, edge, poison))
        else:
            together.append(want)
    arena.reserve(sum(slot_room(w.nbytes, w.guard, w.align) for w in together))
    if together:
        parts.append(_side_by_side(arena, together, poison))
    placed = {p.name: p for part in parts for p in part.placed}
    tensors = {}
    for name in case_specs:
        p = placed[name]
        first = p.memory.storage_offset() + p.slot.base
        storage = p.memory.untyped_storage()[first : first + p.slot.stop - p.slot.base]
        tensor = torch.empty(0, dtype=p.dtype, device=arena.device)
        tensor.set_(storage, p.spec.offset, p.spec.shape, p.spec.element_strides)
        single(tensor, p.spec).copy_(single(values[p.name], p.spec))
        # .data starts a version counter of its own: a kernel's caller sees 0.
        tensors[p.name] = tensor.data
        if name not in windowed:
            slot, memory = p.slot, p.memory[p.slot.start : p.slot.end]
            _REGIONS[tensors[p.name]] = Region(
                memory, slot.base - slot.start, slot.stop - slot.start
            )
    return Placement(arena, parts, tensors)


def _side_by_side(arena: Arena, wanted: Sequence[_Wanted], poison: Poison) -> Dense:
    """Lay arguments out in the arena's one block."""
    used, placed = 0, []
    address = arena.live.data_ptr()
    for w in wanted:
        slot = next_slot(
            address, used, w.nbytes, w.guard, alignment=w.align, exact=w.exact
        )
        placed.append(Placed(w.name, w.spec, w.dtype, arena.live, slot))
        used = rounded(slot.end)
    return Dense(arena.live, arena.snapshot, placed, poison)


def _is_at_edge(want: _Wanted, edge: Edge, *, on_cpu: bool) -> bool:
    """Whether a page that faults is to lie beside an argument."""
    if edge.allocation is not None or edge.argument not in ("", want.name):
        return False
    return on_cpu or want.nbytes <= EDGE_BYTES


def _at_edge(
    arena: Arena, number: int, want: _Wanted, edge: Edge, poison: Poison
) -> Dense:
    """Lay an argument out against one end of its room, a guard zone on the other."""
    need = rounded(want.nbytes + want.guard + edge.slack + 2 * want.align)
    room = arena.rooms.room(number, need, readable=edge.readable)
    slot = edge_slot(
        edge, room.memory.numel(), room.start, room.stop, want.nbytes, want.guard,
        alignment=want.align,
    )  # fmt: skip
    placed = Placed(want.name, want.spec, want.dtype, room.memory, slot)
    return Dense(room.memory, room.snapshot, [placed], poison)


def _sparse(want: _Wanted, poison: Poison, device: torch.device) -> Sparse:
    windows = Windows(
        want.spec, want.dtype, guard=want.guard, alignment=want.align,
        exact=want.exact, poison=poison, device=device,
    )  # fmt: skip
    placed = Placed(want.name, want.spec, want.dtype, windows.memory, windows.slot)
    return Sparse(windows, placed)


def _check_values(name: str, spec: TensorSpec, values: Mapping[str, Tensor]) -> None:
    given = values.get(name)
    found = None if given is None else (tuple(given.shape), given.dtype)
    if found != (spec.shape, getattr(torch, spec.dtype)):
        what = f"values {found} do not fit shape {spec.shape} and dtype {spec.dtype}"
        raise HarnessError(what, where=name)


def extent(name: str, spec: TensorSpec) -> tuple[int, int]:
    """Return the span of a view and how far a stray index may reach, in elements.

    Stray indices: one row too many, or all elements where a stride of 0 was ignored.

    Raises:
        HarnessError: if elements overlap other than by a stride of 0.
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
