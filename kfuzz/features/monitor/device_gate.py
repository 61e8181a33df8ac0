"""The gate on the device: which calls are looked at, decided where their data lies.

Before a call a kernel reduces its arguments to a statistic, compares that with those
of the calls before, and copies the arguments to pinned memory if the call is flagged;
after the call another one copies its results, and tells what was decided. Both are
ordered on the caller's stream. The host enqueues them, learns later what came of it,
and never waits. Without Triton, tensors on a GPU are not looked at here.
"""

import math
import random
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

import torch
from torch import Tensor

from kfuzz.core.errors import UsageError
from kfuzz.execution.interpreter.watch import interpreting
from kfuzz.features.monitor import gate_kernel as at
from kfuzz.features.monitor.detectors import Centroid, Statistics
from kfuzz.features.monitor.gate import checked_rate
from kfuzz.features.monitor.seen import NOTHING, Returned, Seen, TensorCopy, can_copy
from kfuzz.features.monitor.snapshot import ALIGNMENT, rounded
from kfuzz.numerics.formats import Footprint

T = TypeVar("T")
MEASURED: Final = frozenset({torch.float32, torch.float16, torch.bfloat16})
"""Dtypes of which statistics are made; others are copied only."""


@dataclass(frozen=True)
class Told:
    """What the device decided since the last time.

    Attributes:
        flagged: calls that it flagged.
        lost: of these, without room.
        kept: those that were copied, to be checked.
        unfit: of the flagged, those whose results could not be kept.
    """

    flagged: int = 0
    lost: int = 0
    kept: "tuple[Underway, ...]" = ()
    unfit: int = 0


class DeviceGate:
    """Flags calls whose arguments lie far from those before, or hold special values.

    Per tensor (float32, float16 and bfloat16; the first four) a statistic is made of
    the elements: how many are not finite, their greatest magnitude, mean and mean
    square. A call is flagged if elements are not finite, or if its distance from the
    running mean of these, each in units of its running deviation, exceeds a threshold
    that moves so that the given share of calls lies beyond it, whatever their
    distribution. Nothing is known of calls that the gate did not see; it sees the given
    rate of all calls, less those counted as skipped: more than four tensors or results,
    tensors with gaps or in lists, calls larger than the room of one, contracts that
    speak of tensors that are not passed (a module's weights). Compiled code has no such
    gate. Whether the call overwrote an argument is not judged.

    A gate belongs to one monitored function.
    """

    def __init__(
        self,
        share: float = 0.01,
        *,
        rate: float = 1.0,
        special: bool = True,
        decay: float = 0.99,
        room_bytes: int = 16 << 20,
        slots: int = 4,
        on_cpu: bool = False,
    ) -> None:
        """Make a gate; its memory comes with the first call on a GPU.

        Args:
            share: of ordinary calls that are flagged, above 0 and below 1.
            rate: share of calls that the gate sees, by chance; may be set later.
            special: whether elements that are not finite flag a call; False for
                functions that take masks of infinities.
            decay: what a call leaves of the weight of those before.
            room_bytes: pinned memory, for each stream that calls are made on.
            slots: calls that it holds; each has an equal part.
            on_cpu: whether calls on the CPU are seen too, which costs a pass over
                the data in the caller's thread.

        Raises:
            UsageError: if an argument is impossible.
        """
        where = "monitor: DeviceGate"
        if room_bytes < 1 or slots < 1:
            raise UsageError("room_bytes and slots are positive", where=where)
        self.rate = checked_rate(rate)
        self.share, self.decay, self.special = share, decay, special
        self.room_bytes, self.slots, self.at_gate = room_bytes, slots, on_cpu
        self._chance = random.Random()
        # What was made before a fork is not for the child to free.
        self._left: list[object] = []
        self._lanes: dict[tuple[int | None, int], Lane] = {}
        self.begin_anew()
        _GATES[id(self)] = self

    def begin_anew(self) -> None:
        """Forget all calls."""
        self._left.append(self._lanes)
        self._lanes = {}
        self._centroid = Centroid(self.share, decay=self.decay)
        self._lock = threading.Lock()
        self._tell: Callable[[Told], None] | None = None

    def told_to(self, tell: Callable[[Told], None]) -> None:
        """Have what the device decides told; called in any thread."""
        self._tell = tell

    def wants(self) -> bool:
        """Whether chance lets the gate see a call."""
        return self.rate >= 1.0 or self._chance.random() < self.rate

    def flags(self, tensors: Sequence[Statistics]) -> bool:
        """Whether a call with tensors on the CPU is flagged; as of `Detector`."""
        far = self._centroid.flags(tensors)
        return far or (self.special and any(s.nonfinite for s in tensors))

    def look(
        self, tensors: Sequence[Tensor], device: torch.device, number: int
    ) -> "Underway | None":
        """Have the device decide about a call that is about to be made.

        Args:
            tensors: all tensors among the call's arguments.
            device: where they lie.
            number: the call's.

        Returns:
            The call under way, for `after`; None if it cannot be kept.
        """
        with _on(device):
            stream = current_stream(device)
            lane = self._lanes.get((device.index, stream))
            if lane is None:
                with self._lock:
                    made = Lane(self, device, stream)
                    lane = self._lanes.setdefault((device.index, stream), made)
            return lane.look(tensors, number)

    def after(self, underway: "Underway", parts: "Results | None") -> None:
        """Have what a call left copied if it was flagged, and take what is known.

        Args:
            underway: the call.
            parts: as of `Lane.after`.
        """
        with _on(underway.lane.device):
            underway.lane.after(underway, parts)
        self._tell_news(underway.lane)

    def poll(self) -> bool:
        """Tell what the device decided by now; whether no call is under way."""
        lanes = list(self._lanes.values())
        for lane in lanes:
            self._tell_news(lane)
        return not any([lane.waiting for lane in lanes])

    def _tell_news(self, lane: "Lane") -> None:
        told = lane.news()
        if told is not None and self._tell is not None:
            self._tell(told)


def _on(device: torch.device) -> AbstractContextManager[object]:
    """Return a context in which a device is the current one of its kind."""
    elsewhere = device.type == "cuda" and device.index != torch._C._cuda_getDevice()
    return torch.cuda.device(device) if elsewhere else nullcontext()


def current_stream(device: torch.device) -> int:
    """Return the current stream of a device as the driver names it; 0 on the CPU."""
    if device.type != "cuda":
        return 0
    return int(torch._C._cuda_getCurrentRawStream(device.index))


_GATES: "Final[weakref.WeakValueDictionary[int, DeviceGate]]" = (
    weakref.WeakValueDictionary()
)


def living(held: "weakref.WeakValueDictionary[int, T]") -> list[T]:
    """Return what is alive of some objects, in the order in which they were added.

    A `weakref.WeakSet` cannot be read while another thread adds to it, not even to make
    a list of it. This needs no lock, which a fork would leave held.
    """
    # The references are listed in one step; only then is each followed.
    found = (reference() for reference in held.valuerefs())
    return [x for x in found if x is not None]


def poll_all() -> bool:
    """Tell what the devices decided by now; whether no call is under way."""
    return all([gate.poll() for gate in living(_GATES)])


# The device gate on one stream: launches, the slots, and what the device tells.

# Calls of one stream that may be between their kernels; more are not looked at.
_ENTRIES: Final = at.ENTRIES.value
# Numbers of calls, and offsets of bytes in a slot, are passed as 32 bits.
_MOST_CALLS: Final = 1 << 30
_MOST_BYTES: Final = (1 << 31) - ALIGNMENT
_INTERPRETED_PARTS: Final = 2
# Lanes whose pinned memory a kernel may write to yet; they live until it has.
_BUSY: "Final[set[Lane]]" = set()

# Sizes are passed as 32 bits.
_MOST_ELEMENTS: Final = 1 << 30
# What is only copied, is copied as these: Triton does not know all dtypes.
_RAW: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


Results = tuple[str, Sequence[Tensor], Returned]


@dataclass(frozen=True)
class Plan:
    """What is the same for all tensors of some shapes, strides and dtypes.

    Attributes:
        places: per tensor its byte offset in a slot, shape, strides and dtype.
        used: bytes of the slot up to their end.
        numbers: elements of each tensor that kernels take, then byte offsets of these.
        measured: bits of those of which a statistic is made.
    """

    places: tuple[tuple[int, tuple[int, ...], tuple[int, ...], torch.dtype], ...]
    used: int
    numbers: tuple[int, ...]
    measured: int

    def copies(
        self, slot: Tensor, addresses: Sequence[int], device: torch.device
    ) -> list[TensorCopy]:
        """Return the copies that lie in the bytes of a slot."""
        made = []
        for place, address in zip(self.places, addresses, strict=True):
            start, shape, strides, dtype = place
            size = dtype.itemsize
            whole = slot[start : start + _span(shape, strides) * size].view(dtype)
            values = torch.as_strided(whole, shape, strides, whole.storage_offset())
            footprint = Footprint(address, shape, strides, size)
            made.append(TensorCopy(values, device, footprint))
        return made


def planned(
    tensors: Sequence[Tensor], start: int, device: torch.device, capacity: int
) -> Plan | None:
    """Return where copies of tensors go; None where they cannot be kept.

    Args:
        tensors: plain ones, with strides.
        start: bytes of the slot that are taken.
        device: where the tensors lie if they can be kept.
        capacity: bytes of a slot.
    """
    if not 0 < len(tensors) <= at.MOST.value:
        return None
    places, sizes, measured = [], [], 0
    for i, x in enumerate(tensors):
        shape, strides = tuple(x.shape), x.stride()
        span, count = _span(shape, strides), x.numel()
        known = x.dtype in MEASURED or x.element_size() in _RAW
        fits = span <= count < _MOST_ELEMENTS and x.device == device
        if not (known and fits and can_copy(x)):
            return None
        places.append((start, shape, strides, x.dtype))
        sizes.append(span)
        measured |= (x.dtype in MEASURED) << i
        start += rounded(span * x.element_size())
    if start > capacity:
        return None
    none = (0,) * (at.MOST.value - len(tensors))
    numbers = (*sizes, *none, *(place[0] for place in places), *none)
    return Plan(tuple(places), start, numbers, measured)


def _span(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Return the elements between a tensor's first and its last, both included."""
    if 0 in shape:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))


@dataclass(slots=True)
class Underway:
    """A call about which the device decides; it holds nothing of the caller's memory.

    Attributes:
        lane: whose it is.
        number: the call's.
        id: its number on the stream, in the order in which calls began.
        slot: where it is kept if it is; -1 for nowhere.
        before: how its arguments lie there.
        addresses: where they lay.
        names: of its tensors.
        seen: what is known of it besides them and its results.
        after: how the results lie in the slot; None where they could not be kept.
        places: where they lay.
        ended: its number in the order in which calls ended.
    """

    lane: "Lane"
    number: int
    id: int
    slot: int
    before: Plan
    addresses: tuple[int, ...]
    names: tuple[str, ...] = ()
    seen: Seen = field(default_factory=lambda: Seen({}, {}, NOTHING))
    after: Plan | None = None
    places: tuple[int, ...] = ()
    ended: int = 0

    def copies(self) -> tuple[list[TensorCopy], list[TensorCopy]]:
        """Return the arguments and the results; valid until the slot is given back."""
        assert self.after is not None
        slot, device = self.lane.slots[self.slot], self.lane.device
        before = self.before.copies(slot, self.addresses, device)
        return before, self.after.copies(slot, self.places, device)


class Lane:
    """Looks at the calls of one function on one stream of a device.

    Attributes:
        device: where the tensors lie.
        slots: the bytes of each, uint8.
        waiting: calls of which the host does not know yet what was decided.
    """

    def __init__(self, gate: DeviceGate, device: torch.device, stream: int) -> None:
        """Make its memory; all of it is made on the current stream.

        Args:
            gate: whose it is.
            device: where the tensors lie.
            stream: the current stream, as the driver names it; 0 on the CPU.
        """
        self._gate, self.device, self._stream = gate, device, stream
        count, on_gpu = gate.slots, device.type == "cuda"
        self._parts = _INTERPRETED_PARTS if interpreting() else at.PARTS
        capacity = min(gate.room_bytes // count, _MOST_BYTES)
        self._capacity = capacity // ALIGNMENT * ALIGNMENT
        on_host: Any = {"device": "cpu", "pin_memory": on_gpu}
        room = torch.empty((count, self._capacity), dtype=torch.uint8, **on_host)
        self.slots = list(room.unbind())
        told = at.HOLDS.value + count
        self._report = torch.zeros(told, dtype=torch.int64, **on_host)
        self._report[at.HOLDS.value :] = -1
        self._host: Any = self._report.numpy().data  # read faster than arrays
        numbers = at.SUMS.value + self._parts * at.MOST.value * at.NUMBERS.value
        self._numbers = torch.zeros(numbers, dtype=torch.float64, device=device)
        for half in (0, at.STATE.value):
            self._numbers[half + at.THRESHOLD.value].fill_(math.log(at.LEAST.value))
        self._numbers[at.CHOICE.value].fill_(gate.share)
        self._numbers[at.CHOICE.value + 1].fill_(gate.decay)
        notes = at.FILLED.value + count
        self._notes = torch.zeros(notes, dtype=torch.int64, device=device)
        self._generations = [1] * count
        self._free = list(range(count))
        self.waiting: deque[Underway] = deque()
        self._between = 0
        self._entries = [False] * _ENTRIES  # which belong to a call under way
        self._last = self._ended = 0
        self._known = (0, 0)
        self._nothing = Plan((), 0, (0,) * (2 * at.MOST.value), 0)
        self._lock = threading.Lock()

    def give(self, slot: int) -> None:
        """Give a slot back; what the device holds for its content is over."""
        with self._lock:
            if slot not in self._free:
                self._generations[slot] += 1
                self._free.append(slot)

    def look(self, tensors: Sequence[Tensor], number: int) -> Underway | None:
        """Enqueue statistic and decision; None where the call cannot be kept.

        Args:
            tensors: all arguments that are tensors.
            number: the call's.
        """
        plan = self._plan(tensors, 0)
        if plan is None or not plan.measured:
            return None
        addresses = tuple([x.data_ptr() for x in tensors])
        with self._lock:
            # A call that goes on while many others end keeps its entry. Halves of the
            # device's state are used in turn, by whether the number is even.
            number_here = self._last + 1
            while self._entries[number_here % _ENTRIES]:
                number_here += 2
                if number_here > self._last + _ENTRIES:
                    return None
            if number_here > _MOST_CALLS:
                return None
            self._last = number_here
            slot = self._free[0] if self._free else -1
            told = (slot, number_here % _ENTRIES, self._generations[slot])
            self._launch(
                at.decide, plan, tensors, told, (self._numbers, self._notes),
                (plan.measured, self._gate.special, self._parts, at.BLOCK, at.ROW),
            )  # fmt: skip
            self._between += 1
            self._entries[number_here % _ENTRIES] = True
            _BUSY.add(self)
        return Underway(self, number, number_here, slot, plan, addresses)

    def after(self, underway: Underway, parts: Results | None) -> None:
        """Enqueue the copies of results and the report of what was decided.

        Results that the current stream is another for are not copied: they may not be
        there yet.

        Args:
            underway: the call.
            parts: what is wrong with the returned object, as in `Seen`, the tensors of
                the results and what they are without them; None for nothing.
        """
        plan, tensors = self._nothing, [self._notes]  # a kernel takes some tensor
        if parts is not None and current_stream(self.device) == self._stream:
            handed, found, returned = parts
            made = self._plan(found, underway.before.used) if found else plan
            if made is not None:
                seen = replace(underway.seen, handed=handed, returned=returned)
                underway.after, underway.seen = made, seen
                underway.places = tuple([x.data_ptr() for x in found])
                if found:
                    plan, tensors = made, [*found]
        slot = underway.slot
        with self._lock:
            self._between -= 1
            self._entries[underway.id % _ENTRIES] = False
            self._ended = underway.ended = self._ended + 1
            told = (slot, underway.id % _ENTRIES, underway.ended)
            self._launch(
                at.keep_results, plan, tensors, told, (self._notes, self._report),
                (self._parts, at.BLOCK),
            )  # fmt: skip
            self.waiting.append(underway)

    def news(self) -> Told | None:
        """Return what became known since the last time; None for nothing."""
        with self._lock:
            host, waiting = self._host, self.waiting
            # Read before all else: what is known of a call was written before it.
            decided = host[at.DECIDED.value]
            if not waiting or waiting[0].ended > decided:
                return None
            flagged, lost = host[at.FLAGGED.value], host[at.LOST.value]
            kept, unfit = [], 0
            while waiting and waiting[0].ended <= decided:
                made = waiting.popleft()
                if made.slot < 0 or host[at.HOLDS.value + made.slot] != made.ended:
                    continue
                if made.slot in self._free:
                    self._free.remove(made.slot)
                if made.after is None:
                    unfit += 1
                    self._generations[made.slot] += 1
                    self._free.append(made.slot)
                else:
                    kept.append(made)
            if not waiting and not self._between:
                _BUSY.discard(self)
            known, self._known = self._known, (flagged, lost)
        if known == (flagged, lost) and not kept and not unfit:
            return None
        return Told(flagged - known[0], lost - known[1], tuple(kept), unfit)

    def _plan(self, tensors: Sequence[Tensor], start: int) -> Plan | None:
        """Return where copies of tensors go; None where they cannot be kept."""
        try:
            return planned(tensors, start, self.device, self._capacity)
        except RuntimeError:  # no strides: sparse, nested
            return None

    def _launch(
        self,
        kernel: Any,
        plan: Plan,
        tensors: Sequence[Tensor],
        told: tuple[int, ...],
        memory: tuple[Tensor, ...],
        constants: tuple[Any, ...],
    ) -> None:
        """Launch a kernel on all tensors of a plan.

        Nothing of what it is passed is specialised on but the dtypes of the tensors
        and what is the same for the plan.
        """
        given = [
            x if x.dtype in MEASURED else x.detach().view(_RAW[x.element_size()])
            for x in tensors
        ]
        given += [given[0]] * (at.MOST.value - len(given))
        kernel[(self._parts, 1, 1)](
            *given, self.slots[told[0]], *told, *plan.numbers, *memory,
            len(plan.places), *constants, **at.OPTIONS,
        )  # fmt: skip
