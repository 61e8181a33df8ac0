"""Memory of a burst: one row for each member, alike but for the values."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from kfuzz.core.errors import HarnessError
from kfuzz.core.recipe import TensorSpec
from kfuzz.execution.memory.placement import EXACT_BELOW, extent
from kfuzz.execution.memory.poison import Poison, poison_word
from kfuzz.execution.memory.touches import single_shape
from kfuzz.execution.memory.zones import (
    Slot,
    guard_bytes,
    next_slot,
    raw_memory,
    rounded,
    slot_room,
)

ROW_BYTES: Final = 512
"""Rows are multiples of this, so that memory is aligned alike in all of them."""


def fresh_poison(number: int) -> Poison:
    """Return what fresh memory holds in a member's call: it alternates."""
    return Poison.FINITE if number % 2 else Poison.NAN


class BurstArena:
    """Memory that the bursts of one kernel use in turn, grown as needed.

    Attributes:
        device: where the memory lies.
        live: where arguments lie.
        snapshot: their state before the calls.
        settled: whether the first call of a burst has been seen to allocate what the
            others do; None before that is known.
    """

    def __init__(self, device: torch.device | str) -> None:
        self.device = torch.device(device)
        self.settled: bool | None = None
        self.live = raw_memory(0, self.device)
        self.snapshot = raw_memory(0, self.device)
        self._own: list[_Own] = []

    def reserve(self, nbytes: int) -> None:
        """Make room for the arguments of a burst; invalidates those before."""
        if nbytes > self.live.numel():
            room = 1 << (nbytes - 1).bit_length()
            self.live = self.snapshot = raw_memory(0, self.device)
            self.live = raw_memory(room, self.device)
            self.snapshot = raw_memory(room, self.device)

    def shed(self, limit: int) -> None:
        """Give back what is kept for a kernel's allocations if it is more than that."""
        if sum(own.memory.numel() for own in self._own) > limit:
            self._own.clear()

    def own(self, number: int, nbytes: int) -> Tensor:
        """Return memory for one of a kernel's own allocations.

        What a kernel still holds from an earlier burst is not used again: its owner
        may rely on it, as caches do.

        Args:
            number: of the allocation in a call; each has memory of its own.
            nbytes: least size.
        """
        while len(self._own) <= number:
            self._own.append(_Own(raw_memory(0, self.device)))
        own = self._own[number]
        if nbytes > own.memory.numel() or not own.alone:
            del own  # given back before more is taken
            self._own[number] = _Own(raw_memory(0, self.device))
            room = 1 << (nbytes - 1).bit_length()
            self._own[number] = own = _Own(raw_memory(room, self.device))
        return own.memory


class _Own:
    """Memory for one allocation of a kernel, and who held it when it was made."""

    def __init__(self, memory: Tensor) -> None:
        self.memory = memory
        self._holders = _holders(memory)

    @property
    def alone(self) -> bool:
        """Whether nobody else holds it; not, if this torch does not tell."""
        return self._holders is not None and _holders(self.memory) == self._holders


def _holders(memory: Tensor) -> int | None:
    """Return how many objects hold a storage; None if this torch does not tell."""
    count = getattr(torch._C, "_storage_Use_Count", None)
    return None if count is None else int(count(memory.untyped_storage()._cdata))


@dataclass(frozen=True)
class _Lying:
    """One argument and where it lies in each row.

    Attributes:
        stop: first byte of the row that belongs to the next one.
    """

    spec: TensorSpec
    dtype: torch.dtype
    slot: Slot
    stop: int


class MemberRows:
    """The arguments of all members: in each row, those of one between guard zones.

    Shapes, strides, dtypes, alignment, guard zones and poison are those of
    `memory.place`. Members that are `apart` have all else as there too. The others are
    views of one storage: their storage offset counts from its start, `untyped_storage`
    holds all rows, and they share one version counter. A kernel that looks at these
    may behave otherwise than on a case alone, where alone it is judged.

    Attributes:
        members: how many rows.
        pitch: bytes from one row to the next.
        tensors: per argument the tensor of each member.
    """

    def __init__(
        self,
        arena: BurstArena,
        specs: Mapping[str, TensorSpec],
        values: Mapping[str, Tensor],
        *,
        members: int,
        alignment: int,
        around: Poison,
        unwritten: Collection[str] = (),
        apart: Collection[int] = (),
    ) -> None:
        """Place the arguments of all members.

        Args:
            arena: the memory; it is overwritten.
            specs: the recipes by parameter name, none of them sparse.
            values: per argument [members, *shape], contiguous; none of those of
                `unwritten`.
            members: how many.
            alignment: bytes, a power of two; see `memory.place`.
            around: what lies around the elements.
            unwritten: arguments whose elements hold fresh memory's poison.
            apart: members whose tensors have a storage of their own each, in the
                same rows; it costs each as much as many others.

        Raises:
            HarnessError: if values do not fit, elements overlap other than by a stride
                of 0, or the alignment is no power of two.
        """
        if alignment < 1 or alignment & (alignment - 1):
            raise HarnessError(f"alignment {alignment} is not a power of two")
        self.members = members
        self._arena = arena
        need = 0
        for name, spec in specs.items():
            _check(name, spec, values, members, unwritten)
            need += _room(name, spec, alignment)
        self.pitch = _up(max(need, 1), max(ROW_BYTES, 2 * alignment))
        arena.reserve(members * self.pitch)
        self._lying = _laid_out(arena.live.data_ptr(), specs, alignment)
        form = (members, self.pitch), (self.pitch, 1)
        self._rows = arena.live.as_strided(*form)
        self._poison(around)
        for name, spec in specs.items():
            if name not in unwritten:
                self._elements(name).copy_(_single(values[name], spec))
                continue
            for first in range(min(2, members)):
                word, value = poison_word(self._lying[name].dtype, fresh_poison(first))
                self._elements(name, word)[first::2].fill_(value)
        self._snapshot = arena.snapshot.as_strided(*form)
        self._snapshot.copy_(self._rows)
        self.tensors = {name: self.views(name) for name in specs}
        for name, tensors in self.tensors.items():
            for number in apart:
                tensors[number] = self._alone(name, number)

    @property
    def low(self) -> int:
        """Address of the first byte."""
        return self._rows.data_ptr()

    @property
    def high(self) -> int:
        """Address past the last byte."""
        return self.low + self.members * self.pitch

    @property
    def memory(self) -> Tensor:
        """All rows, uint8."""
        return self._rows

    def views(self, name: str) -> list[Tensor]:
        """Return the tensor of each member, as objects that no kernel has had."""
        return list(self.view(name).unbind(0))

    def view(self, name: str) -> Tensor:
        """Return the elements of an argument in all rows, [members, *shape]."""
        spec, dtype = self._lying[name].spec, self._lying[name].dtype
        return self._strided(name, dtype, spec.shape)

    def holds(self, start: int, stop: int) -> bool:
        """Whether the bytes between two addresses are of one argument of one member."""
        first = (start - self.low) % self.pitch
        last = first + stop - start
        slots = [lying.slot for lying in self._lying.values()]
        return any(slot.base <= first and last <= slot.stop for slot in slots)

    def restore(self, number: int) -> None:
        """Give a member's row its state before the calls."""
        self._rows[number].copy_(self._snapshot[number])

    def touched(self, *, free: Collection[str] = ()) -> Tensor:
        """Return in which rows a byte has changed since placed; bool [members].

        Does not wait for the device.

        Args:
            free: arguments whose elements may have; they hold the former ones
                afterwards.
        """
        for name in free:
            old = self._elements(name, _word(self._lying[name]), snapshot=True)
            self._elements(name, _word(self._lying[name])).copy_(old)
        now, was = (m.view(torch.int64) for m in (self._rows, self._snapshot))
        if now.device.type == "cpu" and torch.equal(now, was):
            return torch.zeros(self.members, dtype=torch.bool)
        return (now != was).any(1)

    def _alone(self, name: str, number: int) -> Tensor:
        """Return a member's argument in a storage that ends where it does."""
        lying = self._lying[name]
        spec, first = lying.spec, number * self.pitch
        return alone(
            self._arena.live, first + lying.slot.base, first + lying.slot.stop,
            lying.dtype, spec.shape, spec.element_strides, spec.offset,
        )  # fmt: skip

    def _poison(self, around: Poison) -> None:
        """Fill all rows; neighbours that take the same word at once."""
        stretches: list[tuple[int, torch.dtype, int]] = []
        for lying in self._lying.values():
            word, value = poison_word(lying.dtype, around)
            if stretches and stretches[-1][1:] == (word, value):
                stretches.pop()
            stretches.append((lying.stop, word, value))
        start = 0
        for number, (stop, word, value) in enumerate(stretches):
            if number == len(stretches) - 1:
                stop = self.pitch
            part = self._rows[:, start:stop] if len(stretches) > 1 else self._rows
            part.view(word).fill_(value)
            start = stop

    def _elements(
        self, name: str, dtype: torch.dtype | None = None, *, snapshot: bool = False
    ) -> Tensor:
        """Return elements in all rows, those that share memory once."""
        lying = self._lying[name]
        shape = single_shape(lying.spec)
        return self._strided(name, dtype or lying.dtype, shape, snapshot=snapshot)

    def _strided(
        self,
        name: str,
        dtype: torch.dtype,
        shape: Sequence[int],
        *,
        snapshot: bool = False,
    ) -> Tensor:
        lying = self._lying[name]
        size = lying.dtype.itemsize
        memory = self._arena.snapshot if snapshot else self._arena.live
        # The words of a complex number count twice.
        per = size // dtype.itemsize
        steps = [step * per for step in lying.spec.element_strides]
        offset = (lying.slot.base // size + lying.spec.offset) * per
        shape = (self.members, *shape)
        strides = [self.pitch // dtype.itemsize, *steps]
        if per > 1:
            shape, strides = (*shape, per), [*strides, 1]
        return memory.view(dtype).as_strided(shape, strides, offset)


def alone(
    memory: Tensor,
    start: int,
    stop: int,
    dtype: torch.dtype,
    shape: Sequence[int],
    strides: Sequence[int],
    offset: int = 0,
) -> Tensor:
    """Return a tensor in a storage of its own that is a part of some memory.

    Args:
        memory: uint8.
        start: first byte in it of the storage.
        stop: one past the last.
        dtype: element type.
        shape: sizes.
        strides: in elements.
        offset: elements in front of the first.
    """
    first = memory.storage_offset()
    storage = memory.untyped_storage()[first + start : first + stop]
    made = torch.empty(0, dtype=dtype, device=memory.device)
    made.set_(storage, offset, tuple(shape), tuple(strides))
    return made.data  # with a version counter of its own


def row_bytes(specs: Mapping[str, TensorSpec], alignment: int) -> int:
    """Return the bytes that the arguments of one member take, guard zones included.

    Twice as many are used: all rows are kept to compare with.
    """
    return sum(_room(name, spec, alignment) for name, spec in specs.items())


def _room(name: str, spec: TensorSpec, alignment: int) -> int:
    size = _dtype(spec).itemsize
    span, reach = extent(name, spec)
    nbytes, guard = (spec.offset + span) * size, guard_bytes(reach * size)
    return slot_room(nbytes, guard, max(alignment, size))


def _laid_out(
    address: int, specs: Mapping[str, TensorSpec], alignment: int
) -> dict[str, _Lying]:
    """Lay the first row out, which begins at an address."""
    used, placed = 0, {}
    for name, spec in specs.items():
        dtype = _dtype(spec)
        size = dtype.itemsize
        span, reach = extent(name, spec)
        align = max(alignment, size)
        slot = next_slot(
            address, used, (spec.offset + span) * size, guard_bytes(reach * size),
            alignment=align, exact=align < EXACT_BELOW,
        )  # fmt: skip
        used = rounded(slot.end)
        placed[name] = _Lying(spec, dtype, slot, used)
    return placed


def _check(
    name: str,
    spec: TensorSpec,
    values: Mapping[str, Tensor],
    members: int,
    unwritten: Collection[str],
) -> None:
    if name in unwritten:
        return
    given = values.get(name)
    found = None if given is None else (tuple(given.shape), given.dtype)
    wanted = ((members, *spec.shape), _dtype(spec))
    if found != wanted:
        what = f"values {found} of {members} members do not fit {wanted}"
        raise HarnessError(what, where=name)


def _single(values: Tensor, spec: TensorSpec) -> Tensor:
    """Cut every stride-0 axis of [members, *shape] down to one element."""
    for axis, n in enumerate(single_shape(spec)):
        if n != spec.shape[axis]:
            values = values.narrow(axis + 1, 0, 1)
    return values


def _word(lying: _Lying) -> torch.dtype:
    return poison_word(lying.dtype, Poison.NAN)[0]


def _dtype(spec: TensorSpec) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, spec.dtype)
    return dtype


def _up(number: int, step: int) -> int:
    return -(-number // step) * step
