"""What was seen of one call: the arguments before it, and what it left."""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from kfuzz.core.dtypes import DTYPES
from kfuzz.core.recipe import span_of
from kfuzz.numerics.accumulation import as_integers, identical
from kfuzz.numerics.formats import Footprint

PLAIN: Final = frozenset({Tensor, torch.nn.Parameter})
"""The classes of tensors that are copied; a subclass may be anything."""

_COPIED: Final = frozenset(getattr(torch, name) for name in DTYPES)
# Views of unsliced tensors begin at such a multiple of bytes.
_ALIGNED: Final = 16
_TO_COME: Final = ""  # in the place of a copy


@dataclass(frozen=True)
class TensorCopy:
    """One tensor as it was.

    Attributes:
        values: its elements on the CPU, in the ring's memory; not yet there until
            the snapshot has been waited for.
        device: the original's.
        footprint: where the original's elements lay.
    """

    values: Tensor
    device: torch.device
    footprint: Footprint

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes."""
        return self.footprint.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """The original's, in elements."""
        return self.footprint.strides

    @property
    def offset(self) -> int:
        """Elements from an address of 16 bytes' alignment to the first one."""
        size = self.footprint.itemsize
        return self.footprint.address % max(_ALIGNED, size) // size

    @property
    def dtype(self) -> torch.dtype:
        """Element type."""
        return self.values.dtype


def can_copy(tensor: Tensor) -> bool:
    """Whether a tensor is a plain one, of numbers, on the CPU or a GPU."""
    return (
        type(tensor) in PLAIN
        and tensor.layout is torch.strided
        and tensor.dtype in _COPIED
        and (tensor.is_cuda or tensor.is_cpu)
    )


@dataclass(frozen=True)
class Call:
    """The arguments of a call, by the names that its contract knows them by.

    Attributes:
        tensors: in the contract's order; not those that only receive results.
        scalars: everything else that the contract speaks of.
        written: the memory that the call writes its results to, by output, where the
            contract says so; it is the caller's.
        free: arguments among the tensors that the call may change.
        rest: for a reference, what its arguments are made of besides tensors.
        tf32: kinds of float32 products for which torch may use TF32 at the call.
    """

    tensors: Mapping[str, Tensor]
    scalars: Mapping[str, Any] = field(default_factory=dict)
    written: Mapping[str, Tensor] = field(default_factory=dict)
    free: frozenset[str] = frozenset()
    rest: Any = None
    tf32: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Returned:
    """What a call returned, taken apart.

    Attributes:
        leaves: a copy of each tensor; of anything else the name of its type.
        nest: the structure around them, as `nest_of` says it.
        kind: the name of the type of all of it.
    """

    leaves: tuple[TensorCopy | str, ...]
    nest: Any
    kind: str

    @property
    def copies(self) -> list[TensorCopy]:
        """The copies of tensors among the leaves."""
        return [x for x in self.leaves if isinstance(x, TensorCopy)]

    def filled(self, copies: Sequence[TensorCopy]) -> "Returned":
        """Return an outline with copies in place of what is to come."""
        left = iter(copies)
        leaves = tuple(next(left) if x == _TO_COME else x for x in self.leaves)
        return replace(self, leaves=leaves)


@dataclass(frozen=True)
class Seen:
    """One call as the checker sees it; valid until its snapshots are released.

    Attributes:
        tensors: copies of the arguments as they were before the call.
        scalars: its other arguments.
        returned: what it returned, or left in the memory that it was to write to.
        changed: which arguments hold other bits after the call: how many elements,
            and the first of them, counted in C order.
        handed: what is wrong with the returned object itself where the results lie
            in memory of the caller's; "" if nothing is.
        rest: as in `Call`.
        is_compiled: whether the call was one of compiled code, where addresses are
            the compiler's choice.
        tf32: as in `Call`.
        verdict_only: whether nobody asks how near to the bound the results are.
    """

    tensors: Mapping[str, TensorCopy]
    scalars: Mapping[str, Any]
    returned: Returned
    changed: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    handed: str = ""
    rest: Any = None
    is_compiled: bool = False
    tf32: frozenset[str] = frozenset()
    verdict_only: bool = False


# Most calls of a function return alike.
_outline = lru_cache(maxsize=64)(Returned)


def parts_of(returned: Any) -> tuple[list[Tensor], Returned]:
    """Return the tensors of a returned object that can be copied, and what is left.

    The second is to be filled with copies of the first.
    """
    leaves = pytree.tree_leaves(returned)
    tensors = [x for x in leaves if isinstance(x, Tensor) and can_copy(x)]
    kept = set(map(id, tensors))
    kinds = (_TO_COME if id(x) in kept else type(x).__name__ for x in leaves)
    return tensors, _outline(tuple(kinds), nest_of(returned), type(returned).__name__)


def nest_of(value: Any) -> Any:
    """Return how leaves are held: 0 for one, (0, (0, 0)) for tuples and lists alike.

    What else holds some is told by a text before them.
    """
    if isinstance(value, tuple | list):
        return tuple(map(nest_of, value))
    parts, spec = pytree.tree_flatten(value, is_leaf=lambda x: x is not value)
    return 0 if spec.is_leaf() else (str(spec), *map(nest_of, parts))


# Snapshots of tensors: copies that a call cannot change, made without waiting.
#
# On the CPU elements are copied into the ring at once. On a GPU they are cloned on the
# caller's stream, so that the copy is ordered with what the caller does to them; a
# stream of the monitor's own brings the clone into a ring of pinned memory, and then a
# number beside it that tells that it is there. Nothing here synchronises, and who waits
# reads memory alone: to ask for an event in one thread ends what another one captures
# in a CUDA graph.

# A ring of bytes: buffers for snapshots, taken in order and given back in any.

ALIGNMENT: Final = 64
"""Bytes to which every slot is aligned: enough to view it as any dtype."""


class Slot:
    """Some room in a ring.

    Attributes:
        start: byte offset in the ring's memory, a multiple of `ALIGNMENT`.
        size: bytes, rounded up to a multiple of it.
    """

    __slots__ = ("is_free", "size", "start")

    def __init__(self, start: int, size: int) -> None:
        self.start, self.size = start, size
        self.is_free = False


class ByteRing:
    """Hands out contiguous room in a memory of fixed size, made when it is written to.

    Room behind the newest slot is taken first, then room from the start of the
    memory on, up to the oldest slot. A slot given back before older ones stays
    occupied until these are given back too. Its lock is held for microseconds.

    Attributes:
        capacity: bytes in all.
        pinned: whether the memory is pinned, for copies from a GPU.
    """

    def __init__(self, capacity: int, *, pinned: bool = False) -> None:
        self.capacity = capacity // ALIGNMENT * ALIGNMENT
        self.pinned = pinned
        self._memory: Tensor | None = None
        self._slots: deque[Slot] = deque()
        self._head = 0
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> Slot | None:
        """Return room for some bytes, or None where there is none; never waits long."""
        size = rounded(nbytes)
        with self._lock:
            start = self._room(size)
            if start is None:
                return None
            slot = Slot(start, size)
            self._slots.append(slot)
            self._head = start + size
            return slot

    def give(self, slot: Slot) -> None:
        """Give a slot back; giving it twice changes nothing."""
        with self._lock:
            slot.is_free = True
            while self._slots and self._slots[0].is_free:
                self._slots.popleft()

    def bytes_of(self, slot: Slot) -> Tensor:
        """Return the bytes of a slot, uint8 [size]."""
        if self._memory is None:  # untouched pages cost nothing; two threads: one wins
            self._memory = torch.empty(
                self.capacity, dtype=torch.uint8, device="cpu", pin_memory=self.pinned
            )
        return self._memory[slot.start : slot.start + slot.size]

    @property
    def used(self) -> int:
        """Bytes of the slots that are not free again."""
        with self._lock:
            return sum(slot.size for slot in self._slots)

    def _room(self, size: int) -> int | None:
        if not self._slots:
            return 0 if size <= self.capacity else None
        tail = self._slots[0].start
        if self._head <= tail:
            return self._head if size <= tail - self._head else None
        if size <= self.capacity - self._head:
            return self._head
        return 0 if size <= tail else None


def rounded(nbytes: int) -> int:
    """Return a number of bytes as a multiple of `ALIGNMENT`, at least one."""
    return max(-(-nbytes // ALIGNMENT), 1) * ALIGNMENT


# Seconds between two looks at whether copies are there: at first, and at most.
_PAUSES: Final = (5e-5, 2e-3)


class Snapshot:
    """Copies of some tensors, and what they cost: room until they are released.

    Attributes:
        copies: one for each tensor, in order.
        originals: per tensor what to compare it with after the call: the copy itself,
            or a clone on its GPU.
        flags: one number for each GPU, not 0 once its copies are there; None for none.
    """

    def __init__(self, ring: ByteRing, slot: Slot) -> None:
        self.copies: list[TensorCopy] = []
        self.originals: list[Tensor] = []
        self.flags: Tensor | None = None
        self._ring = ring
        self._slot = slot

    def wait(self) -> None:
        """Wait until the copies are there; for the worker alone."""
        pause = _PAUSES[0]
        while not self.is_there:
            time.sleep(pause)
            pause = min(2.0 * pause, _PAUSES[1])

    def end(self) -> None:
        """Wait for the copies, and give the room back."""
        self.wait()
        self.release()

    def release(self) -> None:
        """Give the room back; no copy may be on its way, and none is valid after."""
        self._ring.give(self._slot)

    @property
    def is_there(self) -> bool:
        """Whether no copy from a GPU is on its way any more."""
        if self.flags is not None and bool(self.flags.all()):
            self.flags = None
        return self.flags is None


class Memory:
    """The memory of one process's snapshots, and the streams that copies leave GPUs on.

    Attributes:
        plain: for copies of what lies on the CPU.
        pinned: for copies from GPUs.
    """

    def __init__(self, capacity: int, wait_for: Callable[[Snapshot], None]) -> None:
        """Make no memory yet.

        Args:
            capacity: bytes of each of the two rings.
            wait_for: called with a snapshot that nobody wants and whose copies may be
                on their way; has it released when they are there, and does not wait
                itself.
        """
        self.plain = ByteRing(capacity)
        self.pinned = ByteRing(capacity, pinned=True)
        self._wait_for = wait_for
        self._lanes: dict[torch.device, tuple[torch.cuda.Stream, Tensor]] = {}

    @property
    def used(self) -> int:
        """Bytes in use."""
        return self.plain.used + self.pinned.used

    def take(self, tensors: Sequence[Tensor]) -> Snapshot | None:
        """Copy tensors that can be copied; None where there is no room."""
        ring = self.pinned if any(t.is_cuda for t in tensors) else self.plain
        sizes = [rounded(t.numel() * t.element_size()) for t in tensors]
        slot = ring.take(sum(sizes) + (ALIGNMENT if ring.pinned else 0))
        if slot is None:
            return None
        made = Snapshot(ring, slot)
        try:
            self._copy(tensors, sizes, ring.bytes_of(slot), made)
        except BaseException:
            self.give_up(made)
            raise
        return made

    def give_up(self, snapshot: Snapshot) -> None:
        """Release a snapshot that nobody wants, as soon as that can be."""
        if snapshot.is_there:
            snapshot.release()
        else:
            self._wait_for(snapshot)

    def _copy(
        self,
        tensors: Sequence[Tensor],
        sizes: Sequence[int],
        memory: Tensor,
        made: Snapshot,
    ) -> None:
        devices = list(dict.fromkeys(t.device for t in tensors if t.is_cuda))
        if devices:
            flags = memory[-ALIGNMENT:].view(torch.int64)[: len(devices)]
            made.flags = flags.zero_()
        at = 0
        try:
            for given, size in zip(tensors, sizes, strict=True):
                with torch.no_grad():
                    place = memory[at : at + given.numel() * given.element_size()]
                    self._copy_one(given.detach(), place, made)
                at += size
        finally:
            for i, device in enumerate(devices):
                # Set once what the stream has to do by now is done.
                stream, one = self._lane(device)
                with torch.cuda.device(device), torch.cuda.stream(stream):
                    flags[i : i + 1].copy_(one, non_blocking=True)

    def _copy_one(self, tensor: Tensor, place: Tensor, made: Snapshot) -> None:
        whole, as_one = _extent(tensor)
        held = place.view(tensor.dtype)[: whole.numel()]
        shape, strides = tensor.shape, tensor.stride()
        if as_one:
            values = torch.as_strided(held, shape, strides, held.storage_offset())
        else:
            held = values = held.view(shape)
        original = values
        if tensor.is_cuda:
            original = self._bring(whole, held)
            if as_one:
                original = torch.as_strided(original, shape, strides)
        else:
            held.copy_(whole)
        made.originals.append(original)
        made.copies.append(TensorCopy(values, tensor.device, Footprint.of(tensor)))

    def _bring(self, whole: Tensor, goal: Tensor) -> Tensor:
        """Clone elements on the caller's stream and have the clone copied; return it.

        Args:
            whole: on a GPU.
            goal: pinned memory of its shape and dtype.
        """
        device = whole.device
        with torch.cuda.device(device):
            clone = whole.clone()
            stream, _ = self._lane(device)
            stream.wait_stream(torch.cuda.current_stream(device))
            with torch.cuda.stream(stream):
                goal.copy_(clone, non_blocking=True)
            clone.record_stream(stream)
        return clone

    def _lane(self, device: torch.device) -> "tuple[torch.cuda.Stream, Tensor]":
        """Return the stream of a device, and a one that is made on it."""
        if device not in self._lanes:
            stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            with torch.cuda.device(device), torch.cuda.stream(stream):
                one = torch.ones(1, dtype=torch.int64, device=device)
            self._lanes[device] = stream, one
        return self._lanes[device]


def _extent(tensor: Tensor) -> tuple[Tensor, bool]:
    """Return what to copy of a tensor, and whether that is its storage as one piece.

    All that lies between its first and its last element, if that is no more than its
    elements: dense tensors in any order, and expanded ones. Else its elements.
    """
    span = span_of(tensor.shape, tensor.stride())
    if span > tensor.numel():
        return tensor, False
    return torch.as_strided(tensor, (span,), (1,), tensor.storage_offset()), True


def capturing(tensors: Sequence[Tensor]) -> bool:
    """Whether some tensors lie on a GPU whose current stream is being captured."""
    if not any(t.is_cuda for t in tensors):
        return False
    return torch.cuda.is_current_stream_capturing()


# Whether what torch does in this thread is seen, or done, by others. There is no
# public way to ask; where torch has no such function nothing is skipped.
is_under_modes: Final[Callable[[], int]] = getattr(
    torch._C, "_len_torch_dispatch_stack", lambda: 0
)


class Comparison:
    """What a call changed in its arguments, known once its numbers are there.

    On a GPU two numbers per argument come through the ring as copies do.

    Attributes:
        numbers: the copies of those, by argument; None where none came from a GPU.
    """

    def __init__(
        self, numbers: Snapshot | None, names: Sequence[str],
        known: dict[str, tuple[int, int]],
    ) -> None:  # fmt: skip
        self.numbers, self._names, self._known = numbers, names, known

    def changes(self) -> dict[str, tuple[int, int]]:
        """Return the arguments that were changed, as `Seen` holds them; may wait."""
        found = dict(self._known)
        if self.numbers is not None:
            self.numbers.wait()
            for name, copy in zip(self._names, self.numbers.copies, strict=True):
                count, first = copy.values.tolist()
                if count:
                    found[name] = count, first
        return found


def compared(
    before: Mapping[str, Tensor], after: Mapping[str, Tensor], memory: Memory
) -> Comparison | None:
    """Compare arguments with what they were; None where there is no room.

    Args:
        before: a snapshot's originals by name.
        after: the arguments themselves.
        memory: where numbers from a GPU go.
    """
    known, pending = {}, {}
    with torch.no_grad():
        for name, was in before.items():
            now = after[name].detach()
            if not now.numel() or (now.is_cpu and identical(was, now)):
                continue
            differs = (as_integers(was) != as_integers(now)).reshape(-1)
            numbers = torch.stack((differs.sum(), differs.to(torch.uint8).argmax()))
            if now.is_cuda:
                pending[name] = numbers
            else:
                count, first = numbers.tolist()
                known[name] = count, first
    if not pending:
        return Comparison(None, (), known)
    copies = memory.take(list(pending.values()))
    return None if copies is None else Comparison(copies, list(pending), known)
