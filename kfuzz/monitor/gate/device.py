"""The gate on the device: which calls are looked at, decided where their data lies.

Before a call a kernel reduces its arguments to a statistic, compares that with those
of the calls before, and copies the arguments to pinned memory if the call is flagged;
after the call another one copies its results, and tells what was decided. Both are
ordered on the caller's stream. The host enqueues them, learns later what came of it,
and never waits. Without Triton, tensors on a GPU are not looked at here.
"""

import random
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import torch
from torch import Tensor

from kfuzz.core.errors import UsageError
from kfuzz.monitor.detectors import Centroid, statistics_of
from kfuzz.monitor.gate.host import checked_rate

if TYPE_CHECKING:
    from kfuzz.monitor.gate.lanes import Lane, Results, Underway

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
        if not 0.0 < share < 1.0 or not 0.0 < decay < 1.0:
            raise UsageError("share and decay lie between 0 and 1", where=where)
        if room_bytes < 1 or slots < 1:
            raise UsageError("room_bytes and slots are positive", where=where)
        self._rate = checked_rate(rate)
        self.share, self.decay, self.special = share, decay, special
        self.room_bytes, self.slots, self.on_cpu = room_bytes, slots, on_cpu
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

    @property
    def rate(self) -> float:
        """Share of calls that the gate sees; may be set at any time."""
        return self._rate

    @rate.setter
    def rate(self, rate: float) -> None:
        self._rate = checked_rate(rate)

    def told_to(self, tell: Callable[[Told], None]) -> None:
        """Have what the device decides told; called in any thread."""
        self._tell = tell

    def wants(self) -> bool:
        """Whether chance lets the gate see a call."""
        return self._rate >= 1.0 or self._chance.random() < self._rate

    def flags(self, tensors: Sequence[Tensor]) -> bool:
        """Whether a call with tensors on the CPU is flagged."""
        found = [statistics_of(x) for x in tensors if x.dtype in MEASURED]
        far = self._centroid.flags(found)
        return far or (self.special and any(s.nonfinite for s in found))

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
                try:
                    from kfuzz.monitor.gate.lanes import Lane
                except ImportError:  # no Triton
                    return None
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
        return not any([lane.is_waiting for lane in lanes])

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
