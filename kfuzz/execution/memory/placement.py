"""Memory of arguments: one block that holds one or several between guard zones.

Blocks are filled with poison, keep what they held when placed, and report what has
changed since.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from kfuzz.core.errors import HarnessError
from kfuzz.core.recipe import Edge, TensorSpec
from kfuzz.execution.device.backends import backend_of
from kfuzz.execution.memory.fences import NoAddressSpace, sparse_memory
from kfuzz.execution.memory.poison import Poison, bits_of, fill_poison, poison_word
from kfuzz.execution.memory.slots import (
    EXACT_BELOW,
    ROUND_BYTES,
    Arena,
    Indices,
    Rows,
    Slot,
    edge_slot,
    element_offsets,
    find_touches,
    guard_bytes,
    next_slot,
    raw_memory,
    rounded,
    single_shape,
    slot_room,
    up,
)
from kfuzz.numerics.run import Touch

# A view that spans far more memory than it has elements.
#
# It lies in sparse memory, on a device in memory that is allocated as it is. Poison is
# written and compared only in windows: around the elements and at both ends. No work
# here is proportional to the span.

MARGIN_BYTES: Final = 4096
"""Poison on either side of a run of elements; its page exists anyway."""

WINDOW_BYTES: Final = 4 << 20
"""Poison around all runs together: many runs get narrower margins."""


def is_sparse(spec: TensorSpec, itemsize: int, device: torch.device) -> bool:
    """Whether a view is placed in memory that is filled in windows only."""
    nbytes = (spec.offset + spec.span) * itemsize
    least = backend_of(device).limits.sparse_bytes
    return nbytes > least and nbytes > 4 * spec.numel * itemsize


def _covered(low: Indices, high: Indices) -> Indices:
    """Return the integers of all intervals [low, high), ascending and once each."""
    order = np.argsort(low)
    low, high = low[order], np.maximum.accumulate(high[order])
    apart = np.flatnonzero(low[1:] > high[:-1]) + 1
    low, high = low[np.r_[0, apart]], high[np.r_[apart - 1, -1]]
    size = high - low
    before = np.cumsum(size) - size
    return np.repeat(low - before, size) + np.arange(int(size.sum()))


def _memory(nbytes: int, device: torch.device) -> Tensor:
    """Return memory for a view that spans so many bytes.

    On a device all of it exists: loads between the elements are legal, and must not
    fault.

    Raises:
        NoAddressSpace: if there is not as much.
    """
    if backend_of(device).has.on_host:
        return sparse_memory(nbytes)
    try:
        return raw_memory(nbytes, device)
    except torch.OutOfMemoryError:
        raise NoAddressSpace(
            f"the device has no {nbytes / 2**30:.3g} GiB for a view that spans them",
            where="kfuzz.execution.memory.placement",
        ) from None


EDGE_BYTES: Final = 256 << 20
"""Largest argument that lies at an edge on a device: its memory and the copy that it is
compared with are kept for the cases that follow."""


@dataclass(frozen=True)
class Argument:
    """What one argument needs of its memory.

    Attributes:
        form: its dtype, shape, strides and storage offset.
        nbytes: of its storage.
        guard: width of each zone.
        align: of its storage.
    """

    name: str
    spec: TensorSpec
    dtype: torch.dtype
    form: tuple[torch.dtype, tuple[int, ...], tuple[int, ...], int]
    nbytes: int
    guard: int
    align: int

    @classmethod
    def of(cls, name: str, spec: TensorSpec, alignment: int) -> "Argument":
        """Return what an argument needs.

        Raises:
            HarnessError: if elements overlap other than by a stride of 0, or the
                alignment is no power of two.
        """
        if alignment < 1 or alignment & (alignment - 1):
            raise HarnessError(f"alignment {alignment} is not a power of two")
        dtype: torch.dtype = getattr(torch, spec.dtype)
        span, reach = extent(name, spec)
        nbytes, guard = (spec.offset + span) * dtype.itemsize, reach * dtype.itemsize
        align = max(alignment, dtype.itemsize)
        form = dtype, spec.shape, spec.element_strides, spec.offset
        return cls(name, spec, dtype, form, nbytes, guard_bytes(guard), align)

    @property
    def exact(self) -> bool:
        """Whether its base is a multiple of the alignment, and not of its double."""
        return self.align < EXACT_BELOW

    @property
    def room(self) -> int:
        """Bytes that it takes at most, guard zones included."""
        return slot_room(self.nbytes, self.guard, self.align)

    def single(self, values: Tensor) -> Tensor:
        """Cut every stride-0 axis of [items, *shape] down to one element."""
        if self.spec.strides is not None and 0 in self.spec.strides:
            for axis, n in enumerate(single_shape(self.spec)):
                if n != self.spec.shape[axis]:
                    values = values.narrow(axis + 1, 0, 1)
        return values

    def changes(self, changed: Indices, slot: Slot) -> list[Touch]:
        """Return the touches of changed bytes, counted as the slot is."""
        size = self.dtype.itemsize
        origin = slot.base + self.spec.offset * size
        return find_touches(self.name, self.spec, size, changed - origin)


class Dense:
    """Rows that are compared as a whole, and the arguments in them, in order."""

    def __init__(
        self,
        memory: Tensor,
        snapshot: Tensor,
        placed: Sequence[tuple[Argument, Slot]],
        around: Poison,
        *,
        items: int,
        pitch: int,
        within: tuple[int, int],
    ) -> None:
        """Fill the rows with poison.

        Args:
            memory: uint8, flat.
            snapshot: as large, to keep the state in.
            placed: the arguments and their slots in a row, by ascending offset.
            around: which poison.
            items: how many rows.
            pitch: bytes from one to the next.
            within: first byte of a row, and one past the last, that are filled and
                compared.
        """
        self.placed = {argument.name: (argument, slot) for argument, slot in placed}
        self.rows = Rows(memory, items, pitch)
        self._snapshot = Rows(snapshot, items, pitch)
        self._first, self._last = within
        self._now = self.rows.columns(*within, torch.int64)
        self._was = self._snapshot.columns(*within, torch.int64)
        self._poison(around)

    def elements(self, name: str, *, was: bool = False) -> Tensor:
        """Return elements in all rows, those that share memory once.

        Args:
            name: the argument.
            was: those of the snapshot.
        """
        argument, slot = self.placed[name]
        rows = self._snapshot if was else self.rows
        return argument.single(rows.every(slot, argument.form))

    def snap(self) -> None:
        """Keep the present state to compare with."""
        self._was.copy_(self._now)

    def restore(self, number: int) -> None:
        """Give a row its state when placed."""
        self._now[number].copy_(self._was[number])

    def touched(self, free: Collection[str]) -> Tensor:
        """Return in which rows a byte has changed; see `Placement.touched`."""
        self._accept(free)
        on_host = backend_of(self._now.device).has.on_host
        if on_host and torch.equal(self._now, self._was):
            return torch.zeros(len(self._now), dtype=torch.bool)
        return (self._now != self._was).any(1)

    def touches(self, free: Collection[str]) -> list[Touch]:
        """Return what changed in the first row."""
        self._accept(free)
        if torch.equal(self._now, self._was):
            return []
        first = self._first
        now = self._now[0].view(torch.uint8).cpu().numpy()
        was = self._was[0].view(torch.uint8).cpu().numpy()
        found: list[Touch] = []
        starts = [slot.start - first for _, slot in self.placed.values()]
        starts[0] = 0
        ends = [*starts[1:], now.size]
        for (argument, slot), start, end in zip(
            self.placed.values(), starts, ends, strict=True
        ):
            changed = np.flatnonzero(now[start:end] != was[start:end])
            found += argument.changes(changed + (start + first), slot)
        return found

    def _accept(self, free: Collection[str]) -> None:
        """Have elements count as placed as they are now."""
        for name in free:
            if name in self.placed:
                now, was = self.elements(name), self.elements(name, was=True)
                bits_of(was).copy_(bits_of(now))

    def _poison(self, around: Poison) -> None:
        """Fill all rows: each argument's part, that of the last to their end."""
        first, ends = self._first, [rounded(s.end) for _, s in self.placed.values()]
        ends[-1] = self._last
        for (argument, _), stop in zip(self.placed.values(), ends, strict=True):
            word, value = poison_word(argument.dtype, around)
            self.rows.columns(first, stop, word).fill_(value)
            first = stop


class Sparse:
    """One argument in memory that is filled and compared in windows; a single row."""

    def __init__(self, argument: Argument, around: Poison, arena: Arena) -> None:
        a, device = argument, arena.device
        memory = _memory(a.nbytes + 2 * a.guard + 4 * a.align, device)
        slot = next_slot(
            memory.data_ptr(), 0, a.nbytes, a.guard, alignment=a.align, exact=a.exact
        )
        self.rows = Rows(memory)
        self.placed = {a.name: (a, slot)}
        self._words = memory[: memory.numel() // 8 * 8].view(torch.int64)
        places = torch.from_numpy(self._places(a.spec, a.dtype.itemsize, slot))
        self._index = places.to(device)
        pattern = torch.empty(ROUND_BYTES, dtype=torch.uint8, device=device)
        fill_poison(pattern, a.dtype, around)
        self._words[self._index] = pattern.view(torch.int64)[0]
        self.snap()

    def elements(self, name: str) -> Tensor:
        """Return elements, those that share memory once."""
        argument, slot = self.placed[name]
        whole = self.rows.isolated(0, slot, argument.form)
        return argument.single(whole.unsqueeze(0))

    def snap(self) -> None:
        """Keep the present state to compare with."""
        self._snapshot = self._words[self._index]

    def touches(self, free: Collection[str]) -> list[Touch]:
        """Return what changed."""
        changed = self._changed()
        return [t for a, slot in self.placed.values() for t in a.changes(changed, slot)]

    def _changed(self) -> Indices:
        """Return offsets in the memory of the bytes that changed, ascending."""
        now = self._words[self._index]
        differ = now != self._snapshot
        starts = self._index[differ].cpu().numpy() * 8
        pairs = (now[differ].cpu().numpy(), self._snapshot[differ].cpu().numpy())
        a, b = (words.view(np.uint8).reshape(-1, 8) for words in pairs)
        found: Indices = (starts[:, None] + np.arange(8))[a != b]
        return found

    def _places(self, spec: TensorSpec, itemsize: int, slot: Slot) -> Indices:
        """Return the numbers of the 8-byte words in all windows, ascending."""
        limit = self._words.numel()
        origin = slot.base + spec.offset * itemsize
        starts = np.sort(element_offsets(spec)) * itemsize + origin
        first = np.flatnonzero(np.diff(starts, prepend=-1) != itemsize)
        runs = np.stack([starts[first], starts[[*(first[1:] - 1), -1]] + itemsize])
        margin = min(MARGIN_BYTES, WINDOW_BYTES // runs.shape[1])
        margin = max(margin // ROUND_BYTES * ROUND_BYTES, ROUND_BYTES)
        ends = [[slot.start, slot.stop], [slot.base, slot.end]]
        low = np.concatenate([runs[0] - margin, ends[0]]) // 8
        high = -(-np.concatenate([runs[1] + margin, ends[1]]) // 8)
        return _covered(low.clip(0), high.clip(None, limit))


Block = Dense | Sparse


def side_by_side(
    arena: Arena, arguments: Sequence[Argument], items: int, pitch: int, around: Poison
) -> Dense:
    """Lay arguments out in the arena's one block, a row for each item."""
    used, placed = 0, []
    address = arena.live.data_ptr()
    for a in arguments:
        slot = next_slot(
            address, used, a.nbytes, a.guard, alignment=a.align, exact=a.exact
        )
        placed.append((a, slot))
        used = rounded(slot.end)
    # A single row is all of the block; it is filled and compared as far as it goes.
    single = items == 1
    return Dense(
        arena.live, arena.snapshot, placed, around, items=items,
        pitch=arena.live.numel() if single else pitch,
        within=(0, used if single else pitch),
    )  # fmt: skip


def is_at_edge(argument: Argument, edge: Edge, arena: Arena) -> bool:
    """Whether a page that faults is to lie beside an argument."""
    if edge.allocation is not None or edge.argument not in ("", argument.name):
        return False
    on_cpu = backend_of(arena.device).has.on_host
    return bool(argument.spec.numel) and (on_cpu or argument.nbytes <= EDGE_BYTES)


def at_edge(
    arena: Arena, number: int, argument: Argument, edge: Edge, around: Poison
) -> Dense:
    """Lay an argument out against one end of fenced memory."""
    a = argument
    need = rounded(a.nbytes + a.guard + edge.slack + 2 * a.align)
    buffer, snapshot = arena.fenced(number, need, readable=edge.readable)
    slot = edge_slot(edge, buffer, a.nbytes, a.guard, alignment=a.align)
    within = slot.start // ROUND_BYTES * ROUND_BYTES, rounded(slot.end)
    return Dense(
        buffer.memory, snapshot, [(a, slot)], around, items=1,
        pitch=buffer.memory.numel(), within=within,
    )  # fmt: skip


def check_values(argument: Argument, values: Mapping[str, Tensor], items: int) -> None:
    """Check that values fit an argument.

    Args:
        argument: what they are for.
        values: per argument [items, *shape].
        items: how many.

    Raises:
        HarnessError: naming the argument, if there are none, or if shape or dtype
            differ.
    """
    given = values.get(argument.name)
    shape, dtype = (items, *argument.spec.shape), argument.dtype
    if given is None or given.shape != shape or given.dtype is not dtype:
        found = None if given is None else (tuple(given.shape), given.dtype)
        what = f"values {found} do not fit shape {shape} and dtype {dtype}"
        raise HarnessError(what, where=argument.name)


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


# Placement: every tensor that a kernel is given lies between guard zones.
#
# The arguments of a case lie in a row, those of a batch in as many rows, alike but for
# the values. A case alone is a batch of one.

ROW_BYTES: Final = 512
"""Rows are multiples of this, so that memory is aligned alike in all of them."""


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


class Placement:
    """The tensors of one case or of a batch, and what has happened to their memory.

    Attributes:
        items: how many cases.
        every: per argument the tensor of each item, with the shape, strides, storage
            offset and dtype of its recipe. Those that are isolated have a storage of
            their own that starts at the aligned base and ends with the view. The
            others are views of one storage: their storage offset counts from its
            start, `untyped_storage` holds all rows, and they share one version
            counter. A kernel that looks at these may behave otherwise than on a case
            alone, where alone it is judged. An empty tensor's `data_ptr()` is 0, as
            everywhere in torch; its storage points between the guard zones.
    """

    def __init__(
        self,
        arena: Arena,
        specs: Mapping[str, TensorSpec],
        values: Mapping[str, Tensor],
        *,
        items: int,
        alignment: int,
        around: Poison,
        edge: Edge | None = None,
        unwritten: Collection[str] = (),
        fresh: Sequence[Poison] = (),
        isolated: Collection[int] = (0,),
    ) -> None:
        """Lay out, fill and keep the arguments of all items; see `place`.

        Args:
            arena: the memory; it is overwritten.
            specs: the recipes by parameter name; of several items none is sparse.
            values: per argument [items, *shape], but for those of `unwritten`.
            items: how many.
            alignment: bytes, a power of two.
            around: what lies around the elements.
            edge: which arguments lie beside a page that faults; of one item only.
            unwritten: arguments whose elements hold what fresh memory does.
            fresh: which poison that is in the first items; those after repeat it.
            isolated: items whose tensors have a storage of their own each, in the same
                rows; it costs each as much as many others.
        """
        self.items = items
        self._arena = arena
        self._unwritten = frozenset(unwritten)
        parts: list[Block] = []
        together: list[Argument] = []
        for number, (name, spec) in enumerate(specs.items()):
            argument = Argument.of(name, spec, alignment)
            if name not in unwritten:
                check_values(argument, values, items)
            if is_sparse(spec, argument.dtype.itemsize, arena.device):
                parts.append(Sparse(argument, around, arena))
            elif edge is not None and is_at_edge(argument, edge, arena):
                parts.append(at_edge(arena, number, argument, edge, around))
            else:
                together.append(argument)
        need = sum(argument.room for argument in together)
        pitch = up(max(need, 1), max(ROW_BYTES, 2 * alignment))
        arena.reserve(items * pitch)
        self._generation = arena.generation
        self._side_by_side: Dense | None = None
        if together:
            self._side_by_side = side_by_side(arena, together, items, pitch, around)
            parts.append(self._side_by_side)
        self._parts = parts
        self._part = {name: part for part in parts for name in part.placed}
        self.write(values, fresh)
        for part in parts:
            part.snap()
        self.every = {name: self._tensors(name, isolated) for name in specs}

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """The arguments of the first item."""
        return self.of(0)

    def of(self, number: int) -> dict[str, Tensor]:
        """Return the arguments of one item."""
        return {name: all_[number] for name, all_ in self.every.items()}

    @property
    def owned(self) -> list[tuple[int, int]]:
        """Addresses, first and one past the last, of memory that it has to itself."""
        return [(part.rows.low, part.rows.high) for part in self._parts]

    @property
    def rows(self) -> Rows:
        """The memory in which the arguments of a batch lie."""
        assert self._side_by_side is not None
        return self._side_by_side.rows

    def views(self, name: str) -> list[Tensor]:
        """Return the tensor of each item, as objects that no kernel has had."""
        part = self._part[name]
        argument, slot = part.placed[name]
        isolated = {0} if isinstance(part, Sparse) else ()
        return part.rows.tensors(isolated, slot, argument.form)

    def write(self, values: Mapping[str, Tensor], fresh: Sequence[Poison] = ()) -> None:
        """Write elements, and what fresh memory holds over those that have no values.

        Args:
            values: per argument [items, *shape]. Of elements that share memory by a
                stride of 0, the one at index 0 counts.
            fresh: the poison of the first items, which those after repeat; without it
                what has no values stays as it is.
        """
        for name, part in self._part.items():
            argument, _ = part.placed[name]
            elements = part.elements(name)
            if name not in self._unwritten:
                elements.copy_(argument.single(values[name]))
            for first, poison in enumerate(fresh if name in self._unwritten else ()):
                _, value = poison_word(argument.dtype, poison)
                bits_of(elements[first :: len(fresh)]).fill_(value)

    def restore(self, number: int) -> None:
        """Give an item of a batch its state when placed."""
        if self._side_by_side is not None:
            self._side_by_side.restore(number)

    def touched(self, free: Collection[str] = ()) -> Tensor:
        """Return in which items of a batch a byte has changed; bool [items].

        Does not wait for the device. A byte rewritten with its old value is no change.

        Args:
            free: arguments whose elements may have; as they are now, they count as
                placed from here on.
        """
        if self._side_by_side is None:
            return torch.zeros(self.items, dtype=torch.bool, device=self._arena.device)
        return self._side_by_side.touched(free)

    def touches(self, *, inplace: Collection[str] = ()) -> list[Touch]:
        """Compare all memory of the first item with its state when placed.

        Waits for the device. A byte rewritten with its old value is no touch.

        Args:
            inplace: arguments whose elements the kernel may change; see `touched`.

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
        backend_of(self._arena.device).wait(self._arena.device)
        found = [t for part in self._parts for t in part.touches(inplace)]
        if not found:
            return found
        order = list(self.every)
        found.sort(key=lambda touch: order.index(touch.argument))
        return [t for t in found if t.where != "element" or t.argument not in inplace]

    def _tensors(self, name: str, isolated: Collection[int]) -> list[Tensor]:
        """Return the tensor of an argument in each item."""
        part = self._part[name]
        argument, slot = part.placed[name]
        made = part.rows.tensors(isolated, slot, argument.form)
        if self.items == 1 and not isinstance(part, Sparse):
            memory = part.rows.memory[slot.start : slot.end]
            _REGIONS[made[0]] = Region(
                memory, slot.base - slot.start, slot.stop - slot.start
            )
        return made


def place(
    case_specs: Mapping[str, TensorSpec],
    values: Mapping[str, Tensor],
    *,
    device: torch.device | str,
    alignment: int,
    poison: Poison,
    arena: Arena | None = None,
    edge: Edge | None = None,
    unwritten: Collection[str] = (),
    fresh: Poison = Poison.NAN,
) -> Placement:
    """Lay a case's tensors out between guard zones: a batch of one.

    Around each argument: guard zone, storage from its base to the end of the view,
    guard zone. Guard zones, the storage in front of the view (its offset) and the
    padding between its elements hold the poison of the argument's dtype.

    An argument that lies at an edge has on that side, instead of the guard zone, a
    page that faults when touched. Its base keeps the alignment: at the end as many
    bytes of poison lie between the view and the page as that takes, at least
    `edge.slack`. At the start the base, not the view, touches the page: a storage
    offset lies between. Empty and sparse arguments have no edge, nor has on a device
    what is larger than `argument_blocks.EDGE_BYTES`.

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
        unwritten: arguments that have no values: they hold what fresh memory does.
        fresh: which poison that is.

    Raises:
        HarnessError: if values do not fit their recipe, if elements overlap other
            than by a stride of 0, or if the alignment is no power of two.
        NoAddressSpace: if a sparse view spans more than the system gives.
    """
    return Placement(
        Arena(device) if arena is None else arena,
        case_specs,
        as_batch(values),
        items=1,
        alignment=alignment,
        around=poison,
        edge=edge,
        unwritten=unwritten,
        fresh=(fresh,),
    )


def as_batch(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the values of one case as those of a batch of one."""
    return {name: given.unsqueeze(0) for name, given in values.items()}
