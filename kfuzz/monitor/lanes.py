"""The device gate on one stream: launches, the slots, and what the device tells."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from kfuzz.execution import gate_kernel as at
from kfuzz.execution.footprints import Footprint
from kfuzz.execution.interpreter import interpreting
from kfuzz.monitor.device_gate import MEASURED, Told
from kfuzz.monitor.ring import ALIGNMENT, rounded
from kfuzz.monitor.seen import Parts, Returned
from kfuzz.monitor.snapshot import TensorCopy
from kfuzz.monitor.usual import START

if TYPE_CHECKING:
    from kfuzz.monitor.device_gate import DeviceGate

# Calls of one stream that may be between their kernels; more are not looked at.
_ENTRIES: Final = 64
# Sizes, offsets and numbers of calls are passed as 32 bits.
_MOST_ELEMENTS: Final = 1 << 30
_INTERPRETED_PARTS: Final = 2
_ALIGNED: Final = 16
_NO_CONTEXT: Final = nullcontext()
_MOST_PLANS: Final = 4096


class _Unknown:
    """Stands where there is no plan yet."""


_UNKNOWN: Final = _Unknown()


@dataclass
class Plan:
    """What is the same for all tensors of some shapes, strides and dtypes.

    Attributes:
        places: per tensor its byte offset in a slot, shape, strides and dtype.
        used: bytes of the slot up to their end.
        sizes: elements of each of the four tensors that kernels take.
        offsets: byte offsets of these.
        count: tensors.
        measured: bits of those of which a statistic is made.
        truths: whether some hold truth values, which kernels take as bytes.
        launchers: by kernel what launches it, once it was compiled.
    """

    places: tuple[tuple[int, tuple[int, ...], tuple[int, ...], torch.dtype], ...]
    used: int
    sizes: tuple[int, ...]
    offsets: tuple[int, ...]
    count: int
    measured: int
    truths: bool
    launchers: dict[str, Callable[..., Any]] = field(default_factory=dict)

    def given(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return four tensors as kernels take them."""
        if self.truths:
            tensors = [
                x.view(torch.uint8) if x.dtype is torch.bool else x for x in tensors
            ]
        return (*tensors, *[tensors[0]] * (at.MOST.value - len(tensors)))

    def copies(
        self, slot: Tensor, addresses: Sequence[int], device: torch.device
    ) -> list[TensorCopy]:
        """Return the copies that lie in the bytes of a slot."""
        made = []
        for place, address in zip(self.places, addresses, strict=True):
            start, shape, strides, dtype = place
            size = dtype.itemsize
            whole = slot[start : start + _span(shape, strides) * size].view(dtype)
            made.append(
                TensorCopy(
                    torch.as_strided(whole, shape, strides, whole.storage_offset()),
                    shape,
                    strides,
                    address % max(_ALIGNED, size) // size,
                    dtype,
                    device,
                    Footprint(address, shape, strides, size),
                )
            )
        return made


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
        args: its arguments, `None` in the place of tensors.
        kwargs: likewise.
        tf32: as in `Call`.
        after: how the results lie in the slot; None where they could not be kept.
        places: where they lay.
        returned: what it returned, without tensors.
        handed: as in `Seen`.
        ended: its number in the order in which calls ended.
    """

    lane: "Lane"
    number: int
    id: int
    slot: int
    before: Plan
    addresses: tuple[int, ...]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    tf32: frozenset[str] = frozenset()
    after: Plan | None = None
    places: tuple[int, ...] = ()
    returned: Returned | None = None
    handed: str = ""
    ended: int = 0

    def copies(self) -> tuple[list[TensorCopy], list[TensorCopy]]:
        """Return the arguments and the results; valid until the slot is given back."""
        assert self.after is not None
        slot, device = self.lane.bytes_of(self.slot), self.lane.device
        before = self.before.copies(slot, self.addresses, device)
        return before, self.after.copies(slot, self.places, device)


class Lane:
    """Looks at the calls of one function on one stream of a device.

    Attributes:
        device: where the tensors lie.
        is_waiting: whether the host does not know yet what was decided of a call.
    """

    def __init__(self, gate: "DeviceGate", device: torch.device, stream: int) -> None:
        """Make its memory; all of it is made on the current stream.

        Args:
            gate: whose it is.
            device: where the tensors lie.
            stream: the current stream, as the driver names it; 0 on the CPU.
        """
        self._gate, self.device, self._stream = gate, device, stream
        slots = gate.slots
        on_gpu = device.type == "cuda"
        self._parts = _INTERPRETED_PARTS if interpreting() else at.PARTS
        self._capacity = gate.room_bytes // slots // ALIGNMENT * ALIGNMENT
        self._room = torch.empty(
            (slots, self._capacity), dtype=torch.uint8, device="cpu", pin_memory=on_gpu
        )
        report = slots + at.REPORT.value
        self._slots = list(self._room.unbind())
        self._pinned = torch.full(
            (report,), -1, dtype=torch.int64, device="cpu", pin_memory=on_gpu
        )
        self._pinned[slots:] = 0
        self._host = self._pinned.numpy()

        def numbers(size: int, dtype: torch.dtype) -> Tensor:
            return torch.zeros(size, dtype=dtype, device=device)

        self._report = numbers(report, torch.int64)
        self._report[:slots].fill_(-1)
        self._state = numbers(2 * at.STATE.value, torch.float64)
        for half in (0, at.STATE.value):
            self._state[half + at.THRESHOLD.value].fill_(START)
        self._sums = numbers(
            self._parts * at.MOST.value * at.NUMBERS.value, torch.float32
        )
        self._filled = numbers(slots, torch.int64)
        self._open = numbers(_ENTRIES, torch.int32)
        self._kept = numbers(_ENTRIES, torch.int32)
        self._choice = numbers(2, torch.float64)
        self._choice[0].fill_(gate.share)
        self._choice[1].fill_(gate.decay)
        self._generations = [1] * slots
        self._free = list(range(slots))
        self._waiting: deque[Underway] = deque()
        self._between = 0
        self._last = self._ended = 0
        self._known = [0, 0]
        self._plans: dict[Any, Plan | None] = {}
        self._nothing = Plan((), 0, (0,) * 4, (0,) * 4, 0, 0, truths=False)
        self._measuring = (self._sums, self._filled, self._open)
        self._deciding = (
            self._sums, self._state, self._filled, self._open, self._kept,
            self._report, self._choice,
        )  # fmt: skip
        self._lock = threading.Lock()

    @property
    def is_waiting(self) -> bool:
        """Whether it is not known yet what was decided of a call."""
        return bool(self._waiting)

    def bytes_of(self, slot: int) -> Tensor:
        """Return the bytes of a slot, uint8 [size]."""
        return self._slots[slot]

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
        given, gate = plan.given(tensors), self._gate
        with self._lock:
            if self._between >= _ENTRIES or self._last >= _MOST_ELEMENTS:
                return None
            self._last = number_here = self._last + 1
            slot = self._free[0] if self._free else -1
            generation = self._generations[slot]
            entry = number_here % _ENTRIES
            self._launch(
                plan, "measure", at.measure,
                (*given, *plan.sizes, *self._measuring, slot, entry, generation),
                (plan.count, plan.measured, self._parts, at.BLOCK),
            )  # fmt: skip
            self._launch(
                plan, "decide", at.decide,
                (
                    *given, *plan.sizes, *plan.offsets, self._slots[slot],
                    *self._deciding, slot, entry, generation, number_here & 1,
                    gate.slots,
                ),
                (plan.count, plan.measured, gate.special, self._parts, at.BLOCK),
            )  # fmt: skip
            self._between += 1
        return Underway(self, number, number_here, slot, plan, _addresses(tensors))

    def after(self, underway: Underway, parts: Parts | None) -> None:
        """Enqueue the copies of results, and that of what was decided.

        Results that the current stream is another for are not copied: they may not be
        there yet.
        """
        if stream_of(self.device) != self._stream:
            parts = None
        plan: Plan | None = None
        tensors: list[Tensor] = []
        if parts is not None:
            tensors = parts.tensors
            plan = self._nothing
            if tensors:
                plan = self._plan(tensors, underway.before.used)
        if plan is not None and parts is not None:
            underway.after, underway.places = plan, _addresses(tensors)
            underway.returned = parts.outline()
        if plan is None or not tensors:
            plan, tensors = self._nothing, [self._report]
        with self._lock:
            self._between -= 1
            self._ended = underway.ended = self._ended + 1
            self._launch(
                plan, "keep_results", at.keep_results,
                (
                    *plan.given(tensors), *plan.sizes, *plan.offsets,
                    self._slots[underway.slot], self._kept, self._report,
                    underway.slot, underway.id % _ENTRIES, underway.ended,
                    self._gate.slots,
                ),
                (plan.count, self._parts, at.BLOCK),
            )  # fmt: skip
            self._waiting.append(underway)
            self._pinned.copy_(self._report, non_blocking=True)

    def news(self) -> Told | None:
        """Return what became known since the last time; None for nothing."""
        with self._lock:
            slots = self._gate.slots
            # Read before the slots: what is known of a call is written in one copy.
            decided = int(self._host[slots + at.DECIDED.value])
            if not self._waiting or self._waiting[0].ended > decided:
                return None
            flagged, lost = (int(n) for n in self._host[slots : slots + 2])
            kept, unfit = [], 0
            while self._waiting and self._waiting[0].ended <= decided:
                made = self._waiting.popleft()
                if made.slot < 0 or int(self._host[made.slot]) != made.ended:
                    continue
                self._free.remove(made.slot)
                if made.after is None:
                    unfit += 1
                    self._generations[made.slot] += 1
                    self._free.append(made.slot)
                else:
                    kept.append(made)
            told = Told(
                flagged - self._known[0], lost - self._known[1], tuple(kept), unfit
            )
            self._known = [flagged, lost]
        return told

    def _plan(self, tensors: Sequence[Tensor], start: int) -> Plan | None:
        """Return where copies of tensors go; None where they cannot be kept."""
        key = (start, *[(x.shape, x.stride(), x.dtype, x.device) for x in tensors])
        plan = self._plans.get(key, _UNKNOWN)
        if isinstance(plan, _Unknown):
            plan = self._planned(tensors, start)
            if len(self._plans) < _MOST_PLANS:
                self._plans[key] = plan
        return plan

    def _planned(self, tensors: Sequence[Tensor], start: int) -> Plan | None:
        if not 0 < len(tensors) <= at.MOST.value:
            return None
        places, sizes, measured = [], [], 0
        for i, x in enumerate(tensors):
            shape, strides = tuple(x.shape), x.stride()
            span, count = _span(shape, strides), x.numel()
            if span > count or count >= _MOST_ELEMENTS or x.device != self.device:
                return None
            places.append((start, shape, strides, x.dtype))
            sizes.append(span)
            measured |= (x.dtype in MEASURED) << i
            start += rounded(span * x.element_size())
        if start > self._capacity:
            return None
        missing = [0] * (at.MOST.value - len(tensors))
        offsets = [place[0] for place in places]
        truths = any(x.dtype is torch.bool for x in tensors)
        return Plan(
            tuple(places), start, (*sizes, *missing), (*offsets, *missing),
            len(tensors), measured, truths,
        )  # fmt: skip

    def _launch(
        self,
        plan: Plan,
        name: str,
        kernel: Any,
        given: tuple[Any, ...],
        constants: tuple[Any, ...],
    ) -> None:
        """Launch a kernel; from the second time on what was compiled, directly.

        Nothing of what it is passed is specialised on but the dtypes of the tensors
        and the constants, which a plan and a lane determine.
        """
        launcher = plan.launchers.get(name)
        with self._on_device():
            if launcher is not None:
                launcher(*given, *constants, stream=self._stream)
                return
            grid = (self._parts, 1, 1)
            compiled = kernel[grid](*given, *constants, enable_fp_fusion=False)
            if compiled is not None:  # the interpreter compiles nothing
                plan.launchers[name] = compiled[grid]

    def _on_device(self) -> AbstractContextManager[object]:
        """Return a context in which the lane's device is the current one."""
        if self.device.type != "cuda":
            return _NO_CONTEXT
        if torch._C._cuda_getDevice() == self.device.index:
            return _NO_CONTEXT
        return torch.cuda.device(self.device)


def stream_of(device: torch.device) -> int:
    """Return the current stream of a device as the driver names it; 0 on the CPU."""
    if device.type != "cuda":
        return 0
    return int(torch._C._cuda_getCurrentRawStream(device.index))


def _span(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Return the elements between a tensor's first and its last, both included."""
    if 0 in shape:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))


def _addresses(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    return tuple([x.data_ptr() for x in tensors])
