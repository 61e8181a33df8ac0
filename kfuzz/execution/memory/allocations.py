"""Memory beside pages that fault, for what a kernel allocates itself on a device."""

import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any, Final

import torch
import torch.utils._device
from torch import Tensor

from kfuzz.core.errors import HarnessError
from kfuzz.core.recipe import Edge
from kfuzz.core.verdict import Allocation
from kfuzz.execution.calls.patches import Patches
from kfuzz.execution.calls.torch_state import foreign_name
from kfuzz.execution.device.backends import backend_of
from kfuzz.execution.memory.fences import Pool
from kfuzz.execution.memory.placement import ROW_BYTES
from kfuzz.execution.memory.poison import ALTERNATING, Poison, poison_bytes
from kfuzz.execution.memory.slots import (
    PoisonedSlot,
    Rows,
    Slot,
    WriteMap,
    alignment_on,
    edge_slot,
    guard_bytes,
    next_slot,
    raw_memory,
    rounded,
    slot_room,
    up,
)
from kfuzz.numerics.formats import Uncompiled
from kfuzz.numerics.run import AllocationTouch

EDGE_ALIGNMENT: Final = 256
"""What CUDA's programming guide promises of any allocation; the less of it, the fewer
bytes between an allocation and the page behind it."""

EDGE_ALLOCATIONS: Final = 64
"""Allocations of one call that get fenced memory of their own, of which each takes as
much as the device maps at once, 2 MiB."""

EDGE_TOTAL_BYTES: Final = 1 << 30
"""Fenced memory of one call; past this much, allocations lie between guard zones."""


# A kernel's own allocations: poisoned, and between guard zones.

BLOCK_BYTES: Final = 256 * 1024
"""Memory is taken from torch in blocks of this size: a dozen small tensors each."""

TOTAL_BYTES: Final = 1 << 30
"""Guarded memory is kept until checked; past this much, allocations go unguarded
rather than exhaust the machine."""

_aten = torch.ops.aten
_ALLOCATORS: Final = frozenset(
    (
        _aten.empty.memory_format,  # the legacy constructors arrive here too
        _aten.empty_like.default,
        _aten.empty_strided.default,
        _aten.new_empty.default,
        _aten.new_empty_strided.default,
        _aten.empty_permuted.default,
    )
)
_RESIZES: Final = frozenset((_aten.resize_.default, _aten.resize_as_.default))


@dataclass(frozen=True)
class Allocated:
    """One guarded allocation.

    Attributes:
        guarded: where its storage lies.
        shape: that of the tensor when allocated.
        writes: which of its elements have been written.
    """

    guarded: PoisonedSlot
    shape: tuple[int, ...]
    writes: WriteMap

    @property
    def address(self) -> int:
        """The address of its first byte."""
        return self.guarded.rows.low + self.guarded.slot.base

    @property
    def nbytes(self) -> int:
        """Its size."""
        return self.guarded.slot.stop - self.guarded.slot.base

    @property
    def dtype(self) -> torch.dtype:
        """Its dtype when allocated."""
        return self.guarded.dtype

    @property
    def described(self) -> str:
        """Its dtype and shape when allocated."""
        return f"{str(self.dtype).removeprefix('torch.')}{list(self.shape)}"


class GuardedAllocations(Uncompiled):  # type: ignore[no-untyped-call]
    """A mode in which `torch.empty` and its kin return guarded, poisoned storage.

    Shapes, strides, dtypes and storage sizes are those that torch gives. Empty
    tensors, other devices, pinned memory and layouts other than strided pass
    through, as does every other operator. Its memory is kept until the mode object
    goes, so a write through a stale pointer is still seen.

    At an edge on a device each of the first allocations has memory of its own, which
    a page that faults follows or precedes.

    Limits: what C++ code allocates within an operator, what torch.compile
    generates, and `UntypedStorage` constructors are below the mode and go
    unguarded; `UntypedStorage.resize_` refuses to grow guarded storage.

    Attributes:
        device: whose allocations are guarded.
        poison: what they are filled with.
        limit: bytes of guarded memory past which allocations go unguarded.
        unguarded: allocations let through because of that.
        extended: tensors whose guarded storage refused to grow, and was replaced.
        foreign: torch's own operators that computed, in the order of the first call
            of each.
    """

    def __init__(
        self,
        device: torch.device | str,
        poison: Poison,
        *,
        limit: int | None = None,
        edge: Edge | None = None,
        pool: Pool | None = None,
    ) -> None:
        """Guard nothing yet.

        Args:
            device: whose allocations are guarded.
            poison: what they are filled with.
            limit: bytes of guarded memory, `TOTAL_BYTES` by default.
            edge: which of them lie beside a page that faults.
            pool: where such memory comes from; without it nothing lies at an edge.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self.device = torch.device(device)
        self.poison = poison
        self.limit = TOTAL_BYTES if limit is None else limit
        self.unguarded = 0
        self.extended = 0
        self.foreign: dict[str, None] = {}
        self._allocations: list[Allocated] = []
        self._owned: dict[int, Allocated] = {}
        self._block: Tensor | None = None
        self._used = 0
        self._total = 0
        self._edge = None if pool is None else edge
        self._pool = pool
        self._at_edge = 0  # bytes

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run one operator, replacing the storage of what it allocates."""
        kwargs = {} if kwargs is None else kwargs
        if func in _ALLOCATORS:
            made = func(*args, **kwargs)
            if not kwargs.get("pin_memory"):
                self.guard(made)
            return made
        if func in _RESIZES:
            return self._resize(func, args, kwargs)
        self._mark_written(func, args, kwargs)
        name = foreign_name(func, args, kwargs)
        if name is not None:
            self.foreign[name] = None
        try:
            return func(*args, **kwargs)
        except RuntimeError as error:
            # An `out=` that torch must enlarge: guarded storage cannot grow. torch
            # resizes before it computes, so the operator can be run again.
            # Those of an earlier call too: a kernel may keep its workspace.
            outs = [
                v for v in kwargs.values() if isinstance(v, Tensor) and self._covers(v)
            ]
            if not (outs and _refused(error)):
                raise
            for out in outs:
                self._release(out)
            return func(*args, **kwargs)

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let torch.compile compile: under other modes it silently runs eagerly."""
        return True

    def touches(self) -> list[AllocationTouch]:
        """Return the writes outside all allocations so far; waits for the device."""
        allocations = list(self._allocations)
        if not allocations:
            return []
        backend_of(self.device).wait(self.device)
        flags = torch.cat([made.guarded.touched() for made in allocations]).tolist()
        return [
            AllocationTouch(
                number, made.shape, str(made.dtype).removeprefix("torch."), *stray
            )
            for number, made in enumerate(allocations)
            if flags[number]
            for stray in made.guarded.strays()
        ]

    def changed(self) -> Tensor:
        """Return whether there are such writes: a bool on the device, not awaited."""
        if not self._allocations:
            return torch.zeros((), dtype=torch.bool, device=self.device)
        return torch.cat([made.guarded.touched() for made in self._allocations]).any()

    @property
    def made(self) -> int:
        """Guarded allocations so far."""
        return len(self._allocations)

    def regions(self) -> list[Allocated]:
        """Return every allocation so far."""
        return list(self._allocations)

    def beside(self) -> Allocation | None:
        """Return the one allocation that was to lie at the edge, if it was made."""
        number = None if self._edge is None else self._edge.allocation
        if number is None or number >= len(self._allocations):
            return None
        made = self._allocations[number]
        size = made.dtype.itemsize
        return Allocation(f"its own {made.described}", made.nbytes // size, size)

    def blocks(self) -> list[tuple[int, int]]:
        """Return the address ranges in which the allocations and their zones lie."""
        found = (made.guarded.rows for made in self._allocations)
        return list(dict.fromkeys((rows.low, rows.high) for rows in found))

    def _mark_written(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Take what an operator may write for written, the whole storage."""
        schema = getattr(func, "_schema", None)
        if not self._owned or schema is None or not schema.is_mutable:
            return
        for position, argument in enumerate(schema.arguments):
            if argument.is_write:
                given = kwargs.get(argument.name)
                if given is None and position < len(args):
                    given = args[position]
                for value in given if isinstance(given, list | tuple) else (given,):
                    if self._owns(value):
                        storage = value.untyped_storage()
                        self._owned[storage.data_ptr()].writes.mark_all()

    def guard(self, made: Tensor) -> None:
        """Move a fresh tensor to guarded storage of the same size, if it qualifies."""
        if is_guarded(made, self.device):
            self._adopt(made, keep=0)

    def _covers(self, tensor: Tensor) -> bool:
        return _lies_on(tensor, self.device)

    def _owns(self, value: object) -> bool:
        return (
            isinstance(value, Tensor)
            and value.layout is torch.strided
            and value.untyped_storage().data_ptr() in self._owned
        )

    def _adopt(self, tensor: Tensor, *, keep: int) -> None:
        """Give a tensor guarded storage, copying its first `keep` bytes."""
        old = tensor.untyped_storage()
        nbytes = old.nbytes()
        guard = guard_bytes(nbytes)
        room = slot_room(nbytes, guard, alignment_on(tensor.device))
        if self._total + room > self.limit:
            self.unguarded += 1
            return
        self._total += room
        found = self._beside_fence(nbytes, guard)
        block, slot = found or self._in_block(tensor.device, nbytes, guard)
        rows = Rows(block)
        guarded = PoisonedSlot(rows, slot, tensor.dtype, (self.poison,))
        storage = rows.storage(0, slot)
        if keep:
            storage[:keep].copy_(old[:keep])
        shape = tuple(tensor.shape)
        pattern = poison_bytes(tensor.dtype, self.poison)
        writes = WriteMap(nbytes, tensor.dtype.itemsize, pattern)
        if keep or tensor.dtype is torch.bool:  # a bool has no spare bits for poison
            writes.mark_all()
        made = Allocated(guarded, shape, writes)
        self._owned[storage.data_ptr()] = made
        self._allocations.append(made)
        tensor.set_(storage, tensor.storage_offset(), shape, tensor.stride())

    def _beside_fence(self, nbytes: int, guard: int) -> tuple[Tensor, Slot] | None:
        """Return where the next allocation lies beside a fence, None if it does not."""
        edge, number = self._edge, len(self._allocations)
        if edge is None or edge.argument or edge.allocation not in (None, number):
            return None
        need = rounded(nbytes + guard + edge.slack + 2 * EDGE_ALIGNMENT)
        if number >= EDGE_ALLOCATIONS or self._at_edge + need > EDGE_TOTAL_BYTES:
            return None
        assert self._pool is not None
        try:
            room = self._pool.take(need, readable=edge.readable)
        except HarnessError:  # no fault of the kernel, whose call this is
            return None
        self._at_edge += need
        slot = edge_slot(edge, room, nbytes, guard, alignment=EDGE_ALIGNMENT)
        return room.memory, slot

    def _in_block(
        self, device: torch.device, nbytes: int, guard: int
    ) -> tuple[Tensor, Slot]:
        """Return where the next allocation lies beside others."""
        align = alignment_on(device)
        room = slot_room(nbytes, guard, align)
        block = self._block
        if block is None or self._used + room > block.numel():
            block = raw_memory(max(room, BLOCK_BYTES), device)
            self._block, self._used = block, 0
        slot = next_slot(
            block.data_ptr(), self._used, nbytes, guard, alignment=align, exact=False
        )
        self._used = rounded(slot.end)
        return block, slot

    def _resize(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run a `resize_`; what grows from nothing or guarded storage is guarded."""
        tensor: Tensor = args[0]
        if not self._covers(tensor):
            return func(*args, **kwargs)
        before = tensor.untyped_storage().nbytes()
        owned = self._owns(tensor)
        try:
            result = func(*args, **kwargs)
        except RuntimeError as error:
            # The storage may be guarded since an earlier call: a workspace.
            if not _refused(error):
                raise
            owned = True
            self._release(tensor)
            result = func(*args, **kwargs)
        if tensor.untyped_storage().nbytes() > before and (owned or not before):
            self._adopt(tensor, keep=before)
        return result

    def _release(self, tensor: Tensor) -> None:
        """Give a tensor whose resize was refused plain storage, to be resized again.

        The refusal leaves its sizes larger than its storage, so it is emptied; the
        bytes stay, as for `resize_`. Its views keep the old storage.
        """
        self.extended += 1
        storage = tensor.untyped_storage().clone()  # type: ignore[no-untyped-call]
        tensor.set_(storage, tensor.storage_offset(), (0,), (1,))


def is_guarded(made: Tensor, device: torch.device) -> bool:
    """Whether a tensor that was just allocated gets guarded storage."""
    return bool(made.numel()) and _lies_on(made, device)


def _lies_on(tensor: Tensor, device: torch.device) -> bool:
    return (
        type(tensor) is Tensor
        and tensor.layout is torch.strided
        and tensor.device.type == device.type
        and device.index in (None, tensor.device.index)
    )


def _refused(error: RuntimeError) -> bool:
    return "not resizable" in str(error)


# The functions of torch, as Python finds them, that give fresh memory.

Function = Callable[..., Any]

# Functions that give fresh memory, with their owners: whether a tensor comes first.
_FRESH: Final[tuple[tuple[Any, str, bool], ...]] = (
    (torch, "empty", False),
    (torch, "empty_strided", False),
    (torch, "empty_permuted", False),
    (torch, "empty_like", True),
    (Tensor, "new_empty", True),
    (Tensor, "new_empty_strided", True),
)
# Others that give memory, or more of it; the first is of torch.Tensor(2, 3) too.
_ASIDE: Final[tuple[tuple[Any, str], ...]] = (
    (Tensor, "__init__"),
    (Tensor, "new"),
    (Tensor, "resize_"),
    (Tensor, "resize_as_"),
)


@dataclass(frozen=True)
class Place:
    """Where such a function is found.

    Attributes:
        owner: a module or a class.
        name: of the attribute.
        of: torch's name of the function.
        of_tensor: whether it takes a tensor before the sizes.
        function: what it was found to hold.
    """

    owner: Any
    name: str
    of: str
    of_tensor: bool
    function: Function


def places() -> list[Place]:
    """Return where functions that give fresh memory are found now.

    Modules that took a function's name over are among them, but for torch's own. What
    a kernel keeps as a default, in a closure or in a container is not found.
    """
    own = [Place(o, name, name, of, getattr(o, name)) for o, name, of in _FRESH]
    found = _taken_over(len(sys.modules))
    return [*own, *(p for p in found if vars(p.owner).get(p.name) is p.function)]


def others() -> list[tuple[Any, str, Function]]:
    """Return other functions that give memory, or more of it: owner, name and value."""
    return [(owner, name, getattr(owner, name)) for owner, name in _ASIDE]


def nothing(*args: Any, **kwargs: Any) -> None:
    """Stand for `object.__init__`, which minds arguments where it is called itself."""


@cache
def _taken_over(modules: int) -> list[Place]:
    """Return what modules took over, as long as so many of them are imported."""
    # torch's own table of them: filled later, it would hold replacements.
    torch.utils._device._device_constructors()
    sought = {id(getattr(o, name)): (name, of) for o, name, of in _FRESH}
    found = []
    for module_name, module in list(sys.modules.items()):
        if type(module) is not ModuleType or module_name.partition(".")[0] == "torch":
            continue
        for held, value in list(vars(module).items()):
            if id(value) in sought:
                found.append(Place(module, held, *sought[id(value)], value))
    return found


# A kernel's own allocations in a batch: noted in one call, prepared for all.
#
# A dispatch mode that guards each allocation costs a call more than most kernels. Where
# everything that it would guard comes through torch's Python functions, these hand out
# memory that was poisoned and put between guard zones for all items at once: what the
# first item asks for is made for the others too.

_Plain = bool | int | torch.dtype | torch.device | torch.layout | torch.memory_format


@dataclass(frozen=True)
class _Noted:
    """One call that allocates.

    Attributes:
        name: the function.
        like: the tensor that it was given first; None for a function of sizes.
        args: the other positional arguments.
        kwargs: the keyword arguments.
        tensors: what it gives each item; None where that is nothing to guard.
    """

    name: str
    like: tuple[Any, ...] | None
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    tensors: tuple[Tensor, ...] | None


class Prepared:
    """A context in which calls that allocate give prepared memory.

    What the first item's call asks for, while `recording`, the others are given too.
    It is poisoned as the item's number says, aligned as torch's allocators do, and
    lies between guard zones; shape and strides are those that torch gives. One
    allocation of all items is one storage, so that its tensors have storage offsets,
    and one version counter, but for those of items that are isolated.

    Attributes:
        first: number of the first item.
        row: of the item whose call is under way, counted from the first.
        at: calls that have allocated in it.
        count: how many there are to be.
        columns: what has been prepared.
        sound: whether all that was to be guarded in the first item's call was.
        error: what prevented memory from being prepared.
    """

    def __init__(
        self,
        device: torch.device,
        first: int,
        items: int,
        isolated: Collection[int] = (),
    ) -> None:
        """Prepare nothing yet.

        Args:
            device: where memory is made.
            first: number of the first item.
            items: how many.
            isolated: numbers of items whose memory is a storage of its own each; the
                first is one in any case, or a function that enlarges what it is given
                would find room there.
        """
        self.first = first
        self.row = self.at = self.count = 0
        self.columns: list[Rows] = []
        self._guarded: list[PoisonedSlot] = []
        self._poisons = ALTERNATING[first % 2 :] + ALTERNATING[: first % 2]
        self.sound = True
        self.error: Exception | None = None
        self._device = device
        self._items = items
        self._isolated = {0, *(n - first for n in isolated if n >= first)}
        self._usual: set[str] = set()
        self._sequence: list[_Noted] = []
        self._bytes = 0
        self._watch: _Watch | None = None
        self._patches = Patches()

    def __enter__(self) -> "Prepared":
        try:
            for at in places():
                made = self._replacement(at.of, at.function, at.of_tensor)
                self._patches.set(at.owner, at.name, made)
            for owner, name, true in others():
                self._patches.set(owner, name, self._noting(name, true))
        except BaseException:
            self._patches.undo()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._patches.undo()

    def recording(self) -> "_Watch":
        """Return a context for the call of the first item.

        All of it can be prepared for the others if it is `sound` afterwards. It is not
        where memory was to be guarded that came another way: from C++, from a
        constructor, by growing, from another thread.
        """
        self._watch = _Watch(self._device, self._poisons[0])
        return self._watch

    def recorded(self) -> None:
        """End the recording."""
        assert self._watch is not None
        self.sound = self.sound and not self._watch.saw
        self._watch = None
        self.count = len(self._sequence)

    def touched(self) -> Tensor | None:
        """Return per item whether a byte around its memory has changed.

        A bool tensor [items] on the device, not waited for; None if nothing was
        prepared.
        """
        if not self._guarded:
            return None
        found = [guarded.touched() for guarded in self._guarded]
        return torch.stack(found).any(0)[: self._items]

    def _replacement(self, name: str, true: Function, of_tensor: bool) -> Function:
        # All in one function: every call of the kernel goes through it.
        sequence = self._sequence

        def allocate(*args: Any, **kwargs: Any) -> Any:
            at = self.at
            if at < self.count:
                made = sequence[at]
                if (
                    made.name is name
                    and args[of_tensor:] == made.args
                    and kwargs == made.kwargs
                    and (not of_tensor or (args and made.like == _form(args[0])))
                ):
                    self.at = at + 1
                    given = made.tensors
                    return true(*args, **kwargs) if given is None else given[self.row]
            return self._other(name, true, of_tensor, args, kwargs)

        return allocate

    def _noting(self, name: str, true: Function) -> Function:
        """Return a function by which memory may come another way than recorded."""
        act = nothing if true is object.__init__ else true

        def noting(*args: Any, **kwargs: Any) -> Any:
            if self._watch is not None:  # which sees whether it does
                self._usual.add(name)
            elif name not in self._usual:
                self.at = self.count + 1
            return act(*args, **kwargs)

        return noting

    def _other(
        self,
        name: str,
        true: Function,
        of_tensor: bool,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Make a call that is not as recorded, or record it."""
        watch = self._watch
        if watch is None:
            self.at = self.count + 1  # from here on nothing is as recorded
            return true(*args, **kwargs)
        if threading.get_ident() != watch.thread:
            self.sound = False
        if watch.inside or not self.sound:
            return true(*args, **kwargs)
        watch.inside += 1  # what allocates now is no matter of the kernel's
        try:
            made = true(*args, **kwargs)
            try:
                given = self._noted(name, of_tensor, args, kwargs, made)
            except RuntimeError as error:  # kfuzz's own
                self.sound, self.error, given = False, error, made
        finally:
            watch.inside -= 1
        if not self.sound:
            watch.guard(made)
        return given

    def _noted(
        self,
        name: str,
        of_tensor: bool,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        made: Any,
    ) -> Any:
        """Prepare for all items what a call gave the first one.

        Returns:
            What takes the place of `made`.
        """
        like = None
        self.sound = False
        if of_tensor:
            like, args = _form(args[0]) if args else None, args[1:]
            if like is None:
                return made
        if type(made) is not Tensor or made.requires_grad:
            return made
        if not _plain((args, tuple(kwargs.values()))):
            return made
        tensors = None
        if is_guarded(made, self._device) and not kwargs.get("pin_memory"):
            tensors = self._column(made)
            if tensors is None:
                return made
        own = {key: _copied(value) for key, value in kwargs.items()}
        self._sequence.append(_Noted(name, like, _copied(args), own, tensors))
        self.at += 1
        self.sound = True
        return made if tensors is None else tensors[0]

    def _column(self, made: Tensor) -> tuple[Tensor, ...] | None:
        """Prepare memory like a tensor's, a row for each item; None if it is too much.

        Returns:
            The tensor of each item.
        """
        nbytes = made.untyped_storage().nbytes()
        guard, align = guard_bytes(nbytes), alignment_on(self._device)
        pitch = up(max(slot_room(nbytes, guard, align), 1), ROW_BYTES)
        poisons = self._poisons
        need = up(self._items, len(poisons)) * pitch
        self._bytes += need
        if self._bytes > TOTAL_BYTES:
            return None
        with torch._C._DisableTorchDispatch():  # it costs each call as much again
            # What a kernel still holds of an earlier batch's is not given again.
            memory = raw_memory(need, self._device)
            slot = next_slot(
                memory.data_ptr(), 0, nbytes, guard, alignment=align, exact=False
            )
            rows = Rows(memory, need // pitch, pitch)
            self._guarded.append(PoisonedSlot(rows, slot, made.dtype, poisons))
            form = made.dtype, made.shape, made.stride(), 0
            tensors = rows.tensors(self._isolated, slot, form)
        self.columns.append(rows)  # views of it are looked at from here on
        return tuple(tensors)


class _Watch(GuardedAllocations):  # type: ignore[no-untyped-call]
    """Guards memory that comes another way than through the replaced functions."""

    def __init__(self, device: torch.device, poison: Poison) -> None:
        super().__init__(device, poison)
        self.inside = 0
        self.thread = threading.get_ident()

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run one operator; guard what it allocates if it is the kernel's."""
        if self.inside:
            return func(*args, **(kwargs or {}))
        return super().__torch_dispatch__(func, types, args, kwargs)

    @property
    def saw(self) -> bool:
        """Whether any memory came another way."""
        return bool(self.made or self.unguarded or self.extended)


def _form(like: Any) -> tuple[Any, ...] | None:
    """Return what decides what is made like a tensor; None of anything else."""
    if (
        type(like) not in (Tensor, torch.nn.Parameter)
        or like.layout is not torch.strided
    ):
        return None
    return type(like), like.dtype, like.shape, like.stride(), like.device


def _plain(value: Any) -> bool:
    """Whether a value is compared by what it holds, and is no tensor."""
    if isinstance(value, tuple | list):
        return all(_plain(item) for item in value)
    return value is None or isinstance(value, _Plain | str)


def _copied(value: Any) -> Any:
    """Return a value that its owner cannot change any more."""
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return tuple(_copied(item) for item in value) if isinstance(value, tuple) else value
