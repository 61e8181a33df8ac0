"""A kernel's own allocations: poisoned, and between guard zones."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from kfuzz.core.recipe import Edge
from kfuzz.core.verdict import Allocation
from kfuzz.execution.calls.foreign import foreign_name
from kfuzz.execution.device.backends import backend_of
from kfuzz.execution.device.gpu_fences import Pool
from kfuzz.execution.memory.own_fences import OwnEdges
from kfuzz.execution.memory.poison import Poison, poison_bytes
from kfuzz.execution.memory.rows import PoisonedSlot, Rows
from kfuzz.execution.memory.writes import WriteMap
from kfuzz.execution.memory.zones import (
    Slot,
    alignment_on,
    guard_bytes,
    next_slot,
    raw_memory,
    rounded,
    slot_room,
)
from kfuzz.numerics.run import AllocationTouch

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


class GuardedAllocations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode in which `torch.empty` and its kin return guarded, poisoned storage.

    Shapes, strides, dtypes and storage sizes are those that torch gives. Empty
    tensors, other devices, pinned memory and layouts other than strided pass
    through, as does every other operator. Its memory is kept until the mode object
    goes, so a write through a stale pointer is still seen.

    At an edge on a device each of the first allocations has memory of its own, which
    a page that faults follows or precedes (`OwnEdges`).

    Limits: what C++ code allocates within an operator, what torch.compile
    generates, and `UntypedStorage` constructors are below the mode and go
    unguarded; `UntypedStorage.resize_` refuses to grow guarded storage.

    Attributes:
        device: whose allocations are guarded.
        poison: what they are filled with.
        limit: bytes of guarded memory past which allocations go unguarded.
        unguarded: allocations let through because of that.
        grown: tensors whose guarded storage refused to grow, and was replaced.
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
        self.grown = 0
        self.foreign: dict[str, None] = {}
        self._allocations: list[Allocated] = []
        self._owned: dict[int, Allocated] = {}
        self._block: Tensor | None = None
        self._used = 0
        self._total = 0
        self._edges = None
        if edge is not None and pool is not None:
            self._edges = OwnEdges(edge, pool)

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

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # True would wrap each call and import torch._dynamo, which takes seconds.
        return False

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
        number = None if self._edges is None else self._edges.edge.allocation
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
        found = None
        if self._edges is not None:
            found = self._edges.take(len(self._allocations), nbytes, guard)
        block, slot = found or self._in_block(tensor.device, nbytes, guard)
        rows = Rows(block, (slot,))
        guarded = PoisonedSlot(rows, tensor.dtype, (self.poison,))
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
        self.grown += 1
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
