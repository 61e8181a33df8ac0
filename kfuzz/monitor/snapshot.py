"""Snapshots of tensors: copies that a call cannot change, made without waiting.

On the CPU elements are copied into the ring at once. On a GPU they are cloned on the
caller's stream, so that the copy is ordered with what the caller does to them; a
stream of the monitor's own brings the clone into a ring of pinned memory, and then a
number beside it that tells that it is there. Nothing here synchronises, and who waits
reads memory alone: to ask for an event in one thread ends what another one captures in
a CUDA graph.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from kfuzz.core.dtypes import DTYPES
from kfuzz.monitor.ring import ALIGNMENT, ByteRing, Slot, rounded
from kfuzz.numerics.footprints import Footprint

PLAIN: Final = frozenset({Tensor, torch.nn.Parameter})
"""The classes of tensors that snapshots are made of; a subclass may be anything."""

_COPIED: Final = frozenset(getattr(torch, name) for name in DTYPES)
# Views of unsliced tensors begin at such a multiple of bytes.
_ALIGNED: Final = 16
# Seconds between two looks at whether copies are there: at first, and at most.
_PAUSES: Final = (5e-5, 2e-3)


@dataclass(frozen=True)
class TensorCopy:
    """One tensor as it was.

    Attributes:
        values: its elements on the CPU, in the ring's memory; not yet there until
            the snapshot has been waited for.
        shape: sizes.
        strides: the original's, in elements.
        offset: elements from an address of 16 bytes' alignment to the first one.
        dtype: element type.
        device: the original's.
        footprint: where the original's elements lay.
    """

    values: Tensor
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    device: torch.device
    footprint: Footprint


class Room:
    """Memory for snapshots: a ring and the bytes that it hands out.

    Attributes:
        ring: what is taken and what is free.
        pinned: whether the memory is pinned, for copies from a GPU.
    """

    def __init__(self, capacity: int, *, pinned: bool) -> None:
        self.ring = ByteRing(capacity)
        self.pinned = pinned
        self._memory: Tensor | None = None

    def bytes_of(self, slot: Slot) -> Tensor:
        """Return the bytes of a slot, uint8 [size]."""
        if self._memory is None:  # untouched pages cost nothing; two threads: one wins
            self._memory = torch.empty(
                self.ring.capacity,
                dtype=torch.uint8,
                device="cpu",
                pin_memory=self.pinned,
            )
        return self._memory[slot.start : slot.start + slot.size]


class Rooms:
    """The memory of one process's snapshots: for the CPU, and pinned for GPUs."""

    def __init__(self, capacity: int) -> None:
        """Make no memory yet.

        Args:
            capacity: bytes of each of the two.
        """
        self.plain = Room(capacity, pinned=False)
        self.pinned = Room(capacity, pinned=True)

    def of(self, tensors: Sequence[Tensor]) -> Room:
        """Return where snapshots of some tensors go."""
        return self.pinned if any(t.is_cuda for t in tensors) else self.plain

    @property
    def used(self) -> int:
        """Bytes in use."""
        return self.plain.ring.used + self.pinned.ring.used


class Snapshot:
    """Copies of some tensors, and what they cost: room until they are released.

    Attributes:
        copies: one for each tensor, in order.
        originals: per tensor what to compare it with after the call: the copy itself,
            or a clone on its GPU.
        flags: one number for each GPU, not 0 once its copies are there; None for none.
    """

    def __init__(self, room: Room, slot: Slot) -> None:
        self.copies: list[TensorCopy] = []
        self.originals: list[Tensor] = []
        self.flags: Tensor | None = None
        self._room = room
        self._slot = slot

    def wait(self) -> None:
        """Wait until the copies are there; for the worker alone."""
        pause = _PAUSES[0]
        while not self.is_there:
            time.sleep(pause)
            pause = min(2.0 * pause, _PAUSES[1])

    def release(self) -> None:
        """Give the room back; no copy may be on its way, and none is valid after."""
        self._room.ring.give(self._slot)

    @property
    def is_there(self) -> bool:
        """Whether no copy from a GPU is on its way any more."""
        if self.flags is not None and bool(self.flags.all()):
            self.flags = None
        return self.flags is None


def can_copy(tensor: Tensor) -> bool:
    """Whether a snapshot can hold a tensor."""
    return (
        type(tensor) in PLAIN
        and tensor.layout is torch.strided
        and tensor.dtype in _COPIED
        and (tensor.is_cuda or tensor.is_cpu)
    )


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


def take(
    tensors: Sequence[Tensor], rooms: Rooms, streams: "Streams"
) -> Snapshot | None:
    """Copy tensors; None where there is no room.

    Args:
        tensors: each such that `can_copy` holds.
        rooms: where the copies go.
        streams: what brings copies from GPUs.
    """
    room = rooms.of(tensors)
    sizes = [rounded(t.numel() * t.element_size()) for t in tensors]
    slot = room.ring.take(sum(sizes) + (ALIGNMENT if room.pinned else 0))
    if slot is None:
        return None
    made = Snapshot(room, slot)
    try:
        _copy(tensors, sizes, room.bytes_of(slot), made, streams)
    except BaseException:
        streams.give_up(made)
        raise
    return made


def _copy(
    tensors: Sequence[Tensor],
    sizes: Sequence[int],
    memory: Tensor,
    made: Snapshot,
    streams: "Streams",
) -> None:
    at = 0
    with torch.no_grad(), streams.copying(tensors, memory, made) as lanes:
        for given, size in zip(tensors, sizes, strict=True):
            tensor = given.detach()
            place = memory[at : at + tensor.numel() * tensor.element_size()]
            whole, as_one = _extent(tensor)
            held = place.view(tensor.dtype)
            if as_one:
                held = held[: whole.numel()]
                values = torch.as_strided(
                    held, tensor.shape, tensor.stride(), held.storage_offset()
                )
            else:
                held = values = held.view(tensor.shape)
            if tensor.is_cuda:
                clone = lanes.bring(whole, held)
                if as_one:
                    clone = torch.as_strided(clone, tensor.shape, tensor.stride())
                made.originals.append(clone)
            else:
                held.copy_(whole)
                made.originals.append(values)
            made.copies.append(described(tensor, values))
            at += size


def _extent(tensor: Tensor) -> tuple[Tensor, bool]:
    """Return what to copy of a tensor, and whether that is its storage as one piece.

    All that lies between its first and its last element, if that is no more than its
    elements: dense tensors in any order, and expanded ones. Else its elements.
    """
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    span = 1 + sum((n - 1) * step for n, step in steps) if tensor.numel() else 0
    if span > tensor.numel():
        return tensor, False
    return torch.as_strided(tensor, (span,), (1,), tensor.storage_offset()), True


def described(tensor: Tensor, values: Tensor) -> TensorCopy:
    """Return a tensor's elements, which lie on the CPU, with how the tensor lies."""
    size = tensor.element_size()
    return TensorCopy(
        values=values,
        shape=tuple(tensor.shape),
        strides=tensor.stride(),
        offset=tensor.data_ptr() % max(_ALIGNED, size) // size,
        dtype=tensor.dtype,
        device=tensor.device,
        footprint=Footprint.of(tensor),
    )


class Streams:
    """The streams on which copies leave GPUs, one per device, made when needed."""

    def __init__(self, wait_for: Callable[[Snapshot], None]) -> None:
        """Take what waits for snapshots that nobody wants any more.

        Args:
            wait_for: called with one whose copies may be on their way; has it
                released when they are there, and does not wait itself.
        """
        self._wait_for = wait_for
        self._lanes: dict[torch.device, tuple[torch.cuda.Stream, Tensor]] = {}

    def give_up(self, snapshot: Snapshot) -> None:
        """Release a snapshot that nobody wants, as soon as that can be."""
        if snapshot.is_there:
            snapshot.release()
        else:
            self._wait_for(snapshot)

    def copying(
        self, tensors: Sequence[Tensor], memory: Tensor, made: Snapshot
    ) -> "Lanes":
        """Return what brings copies of some tensors, as a context.

        Args:
            tensors: those that are to be copied.
            memory: the room; its end takes the flags.
            made: gets the flags.
        """
        devices = list(dict.fromkeys(t.device for t in tensors if t.is_cuda))
        if devices:
            flags = memory[-ALIGNMENT:].view(torch.int64)[: len(devices)]
            made.flags = flags.zero_()
        return Lanes(self, devices, made.flags)

    def of(self, device: torch.device) -> "torch.cuda.Stream":
        """Return the stream of a device."""
        return self._lane(device)[0]

    def flag(self, device: torch.device, place: Tensor) -> None:
        """Have a number set once what the device's stream has to do by now is done."""
        stream, one = self._lane(device)
        with torch.cuda.device(device), torch.cuda.stream(stream):
            place.copy_(one, non_blocking=True)

    def _lane(self, device: torch.device) -> "tuple[torch.cuda.Stream, Tensor]":
        """Return the stream of a device, and a one that is made on it."""
        if device not in self._lanes:
            stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            with torch.cuda.device(device), torch.cuda.stream(stream):
                one = torch.ones(1, dtype=torch.int64, device=device)
            self._lanes[device] = stream, one
        return self._lanes[device]


class Lanes:
    """Brings clones of GPU tensors to pinned memory; see `Streams.copying`."""

    def __init__(
        self, streams: Streams, devices: Sequence[torch.device], flags: Tensor | None
    ) -> None:
        self._streams = streams
        self._devices = devices
        self._flags = flags

    def __enter__(self) -> "Lanes":
        return self

    def __exit__(self, *_: object) -> None:
        for i, device in enumerate(self._devices):
            assert self._flags is not None
            self._streams.flag(device, self._flags[i : i + 1])

    def bring(self, whole: Tensor, goal: Tensor) -> Tensor:
        """Clone elements on the caller's stream and have the clone copied; return it.

        Args:
            whole: on a GPU.
            goal: pinned memory of its shape and dtype.
        """
        device = whole.device
        with torch.cuda.device(device):
            clone = whole.clone()
            stream = self._streams.of(device)
            stream.wait_stream(torch.cuda.current_stream(device))
            with torch.cuda.stream(stream):
                goal.copy_(clone, non_blocking=True)
            clone.record_stream(stream)
        return clone


@dataclass(frozen=True)
class Change:
    """What a call changed in one argument.

    Attributes:
        count: elements that hold other bits than before.
        first: the first of them, counted in C order.
    """

    count: int
    first: int


class Comparison:
    """What a call changed in its arguments, known once its numbers are there.

    On a GPU two numbers per argument come through the ring as copies do.

    Attributes:
        numbers: the copies of those; None where none came from a GPU.
    """

    def __init__(self, numbers: Snapshot | None, known: dict[str, Change]) -> None:
        self.numbers = numbers
        self._known = known
        self._names: list[str] = []

    @classmethod
    def of(
        cls,
        before: dict[str, Tensor],
        after: dict[str, Tensor],
        rooms: Rooms,
        streams: Streams,
    ) -> "Comparison | None":
        """Compare arguments with what they were; None where there is no room.

        Args:
            before: the snapshot's originals by name.
            after: the arguments themselves.
            rooms: where numbers from a GPU go.
            streams: what brings them.
        """
        known, pending = {}, {}
        with torch.no_grad():
            for name, was in before.items():
                now = after[name].detach()
                if not now.numel():
                    continue
                if now.is_cuda:
                    differs = (bits(was) != bits(now)).reshape(-1)
                    first = differs.to(torch.uint8).argmax()
                    pending[name] = torch.stack((differs.sum(), first))
                elif not torch.equal(bits(was), bits(now)):
                    differs = (bits(was) != bits(now)).reshape(-1)
                    first = differs.to(torch.uint8).argmax()
                    known[name] = Change(int(differs.sum()), int(first))
        if not pending:
            return cls(None, known)
        numbers = take(list(pending.values()), rooms, streams)
        if numbers is None:
            return None
        made = cls(numbers, known)
        made._names = list(pending)
        return made

    def changes(self) -> dict[str, Change]:
        """Return the arguments that were changed; waits as `Snapshot.wait` does."""
        if self.numbers is None:
            return self._known
        self.numbers.wait()
        found = dict(self._known)
        for name, copy in zip(self._names, self.numbers.copies, strict=True):
            count, first = copy.values.tolist()
            if count:
                found[name] = Change(count, first)
        return found


def bits(tensor: Tensor) -> Tensor:
    """Return the elements of a tensor as integers of their size, of its layout."""
    ints = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.view(ints[tensor.element_size()])
