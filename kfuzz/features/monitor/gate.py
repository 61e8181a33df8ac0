"""The host gate: which calls are looked at, decided before the call.

A call is looked at if its arguments have a signature not seen before (shapes, strides,
dtypes, devices, alignment), or by chance. The chance is drawn ahead, as the number of
calls until the next one: a call that is not looked at costs a counter and a
comparison of its signature with the last.
"""

import bisect
import itertools
import math
import random
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

import torch
from torch import Tensor

from kfuzz.core.errors import UsageError
from kfuzz.features.monitor.seen import PLAIN

# More signatures are not kept: no new one is then looked at for being new.
MOST_SIGNATURES: Final = 4096
# A call that the countdown never reaches.
_NEVER: Final = sys.maxsize
_NESTED: Final = frozenset({tuple, list, dict})
_WORDS: Final = frozenset({bool, str, type(None)})
_BEYOND_16: Final = 15


class Reason(StrEnum):
    """Why a call was looked at."""

    SIGNATURE = "signature"
    RATE = "rate"
    OUTLIER = "outlier"


class HostGate:
    """Decides about the calls of one function; calls in several threads may overlap.

    Attributes:
        active: whether calls are counted and looked at.
        count: returns the number of the current call, from 1 on.
        due: number of the next call that is looked at by chance.
        last: the signature of a recent call.
        seen: all signatures so far.
    """

    __slots__ = (
        "_chance", "_extra", "_lock", "_rate", "_signatures",
        "active", "count", "due", "last", "seen",
    )  # fmt: skip

    def __init__(self, rate: float, *, signatures: bool, seed: int | None) -> None:
        """Make a gate.

        Args:
            rate: share of the calls that are looked at by chance, 0 to 1.
            signatures: whether calls with a new signature are looked at.
            seed: of the chance; None for another one in each process.

        Raises:
            UsageError: if the rate is no share.
        """
        self._chance = random.Random(seed)
        self._rate = checked_rate(rate)
        self._signatures = signatures
        self.active = True
        self.clear()

    def clear(self) -> None:
        """Forget all calls; no call may be in the gate."""
        self._lock = threading.Lock()
        self._extra = 0
        self.count: Callable[[], int] = itertools.count(1).__next__
        self.seen: set[tuple[Any, ...]] = set()
        self.last: list[Any] | None = None
        self.due = self._ahead(0)

    @property
    def rate(self) -> float:
        """Share of the calls that are looked at by chance."""
        return self._rate

    @rate.setter
    def rate(self, rate: float) -> None:
        self._rate = checked_rate(rate)
        with self._lock:
            # Counting takes a number, which is no call.
            now = self.count()
            self._extra += 1
            self.due = self._ahead(now)

    @property
    def calls(self) -> int:
        """Calls so far."""
        with self._lock:
            self._extra += 1
            return self.count() - self._extra

    def look(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[int, Reason | None]:
        """Count a call; return its number, and why it is looked at, None if it is not.

        What is not looked at costs what is written here.
        """
        number = self.count()
        signature = None
        try:
            signature = signature_of(args, kwargs)
            usual = signature == self.last or not self._signatures
            if not usual:
                usual = len(self.seen) >= MOST_SIGNATURES
                if tuple(signature) in self.seen:
                    usual, self.last = True, signature
        except Exception:  # a tensor without memory; nothing is known of the call
            usual = True
        if usual and number < self.due:
            return number, None
        with self._lock:
            key = None if usual else tuple(signature or ())
            is_new = key is not None and key not in self.seen  # by another thread
            if key is not None:
                self.seen.add(key)
                self.last = signature
            if number >= self.due:
                self.due = self._ahead(number)
                return number, Reason.RATE
            return number, Reason.SIGNATURE if is_new else None

    def _ahead(self, number: int) -> int:
        """Return the number of the next call that chance chooses."""
        if self._rate <= 0.0:
            return _NEVER
        if self._rate >= 1.0:
            return number + 1
        # 1 - random() is in (0, 1]: its logarithm is finite.
        skipped = math.log(1.0 - self._chance.random()) / math.log1p(-self._rate)
        return number + 1 + int(min(skipped, 2.0**53))


def checked_rate(rate: float) -> float:
    """Return a share of calls.

    Raises:
        UsageError: if it is none.
    """
    if isinstance(rate, bool) or not isinstance(rate, int | float):
        raise UsageError(f"rate={rate!r:.40} is no number", where="kfuzz.monitor")
    if not 0.0 <= rate <= 1.0:
        raise UsageError(f"rate={rate} is no share from 0 to 1", where="kfuzz.monitor")
    return float(rate)


def signature_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Return what a call's arguments look like but for their values.

    Raises:
        Exception: whatever tensors raise that have no memory.
    """
    return [
        (n, a.shape, a.stride(), a.dtype, a.get_device(), a.data_ptr() & _BEYOND_16)
        if a.__class__ in PLAIN
        else (n, other(a))
        for n, a in (*(("", a) for a in args), *kwargs.items())
    ]


def other(value: Any) -> Any:
    """Return what an argument that is no tensor looks like."""
    kind = value.__class__
    if kind in _NESTED:
        if kind is dict:
            return (kind, *value, *signature_of(tuple(value.values()), {}))
        return (kind, *signature_of(tuple(value), {}))
    return (kind, value) if kind in _WORDS else kind


# Detectors: what flags a call by statistics of its arguments.
#
# A detector looks at few numbers per tensor, of every call on the CPU that was not
# chosen otherwise, before it is made, in the caller's thread. That costs a pass over
# the data, and a call that it flags is looked at.


@dataclass(frozen=True)
class Statistics:
    """What detectors see of one tensor.

    Attributes:
        count: elements.
        mean: of the finite elements.
        rms: root of their mean square.
        greatest: their greatest magnitude.
        nonfinite: elements that are NaN or infinite.
    """

    count: int
    mean: float
    rms: float
    greatest: float
    nonfinite: int


def statistics_of(x: Tensor) -> Statistics:
    """Return the statistics of a tensor on the CPU, of whatever numbers."""
    if not x.numel():
        return Statistics(0, 0.0, 0.0, 0.0, 0)
    with torch.no_grad():
        wide = x.detach().to(torch.float32 if x.is_floating_point() else torch.float64)
        finite = torch.isfinite(wide)
        lost = int(wide.numel() - finite.sum())
        if lost:
            wide = torch.where(finite, wide, 0.0)
        kept = max(wide.numel() - lost, 1)
        top = float(wide.abs().max())
        # Scaled, or squares of large numbers overflow.
        unit = wide / top if top else wide
        rms = top * math.sqrt(float(unit.square().sum()) / kept)
        return Statistics(x.numel(), float(wide.sum()) / kept, rms, top, lost)


class Detector(Protocol):
    """What flags calls; an exception is counted and flags nothing."""

    def flags(self, tensors: Sequence[Statistics]) -> bool:
        """Whether a call is an outlier.

        Args:
            tensors: of the tensor arguments, in order.
        """


class NonFinite:
    """Flags calls with NaN or infinities in an argument."""

    def flags(self, tensors: Sequence[Statistics]) -> bool:
        """Whether an element is not finite."""
        return any(s.nonfinite for s in tensors)


# Distances of which the percentile is taken: of 1 % it is known to a tenth of itself.
_WINDOW: Final = 4096
# No call is flagged before as many distances are known as tell the percentile.
_FEWEST: Final = 2.0


class Centroid:
    """Flags the calls farthest from where calls usually lie.

    Each call is a point: mean, logarithm of the root mean square and of the greatest
    magnitude of each argument. The centre is an exponential running mean, the scale of
    each coordinate an exponential running deviation. A call is flagged if its distance
    exceeds the (1 - share) quantile of the distances of the last calls, which are
    measured as its own was: before the call moves the centre. Of calls like those
    before, whatever their distribution, the given share is flagged.

    A change that lasts is flagged until it fills the window; then it is usual.
    """

    def __init__(self, share: float = 0.01, *, decay: float = 0.99) -> None:
        """Make a detector.

        Args:
            share: of ordinary calls that are flagged, above 0 and below 1.
            decay: what a call leaves of the weight of those before.

        Raises:
            UsageError: if the share or the decay is none.
        """
        if not 0.0 < share < 1.0 or not 0.0 < decay < 1.0:
            what = "share and decay lie between 0 and 1"
            raise UsageError(what, where="monitor: a detector or gate")
        self._share, self._decay = share, decay
        self._lock = threading.Lock()
        self._begin_anew(0)

    def _begin_anew(self, coordinates: int) -> None:
        self._calls = 0
        self._centre, self._square = [0.0] * coordinates, [0.0] * coordinates
        self._recent: deque[float] = deque()
        self._sorted: list[float] = []

    def flags(self, tensors: Sequence[Statistics]) -> bool:
        """Whether a call lies far out; another number of arguments starts anew."""
        # Magnitudes of 0 lie far below all others.
        point = [
            x for s in tensors for x in (
                s.mean, math.log(max(s.rms, 1e-45)), math.log(max(s.greatest, 1e-45))
            )
        ]  # fmt: skip
        with self._lock:
            if len(point) != len(self._centre):
                self._begin_anew(len(point))
            distance = self._moved(point)
            # The first points have no scale to be measured by.
            if self._calls * (1.0 - self._decay) < 1.0:
                return False
            known, flagged = len(self._sorted), False
            if known * self._share >= _FEWEST:
                rank = math.ceil((1.0 - self._share) * (known + 1))
                flagged = distance > self._sorted[min(rank, known) - 1]
            self._recent.append(distance)
            bisect.insort(self._sorted, distance)
            if len(self._recent) > _WINDOW:
                oldest = self._recent.popleft()
                del self._sorted[bisect.bisect_left(self._sorted, oldest)]
            return flagged

    def _moved(self, point: Sequence[float]) -> float:
        """Return the squared distance of a point, which then moves the centre."""
        self._calls += 1
        # The plain mean at first: one early call does not weigh as much as many.
        weight = max(1.0 - self._decay, 1.0 / self._calls)
        distance = 0.0
        for i, x in enumerate(point):
            away, square = x - self._centre[i], self._square[i]
            if away:
                distance += away * away / square if square > 0.0 else math.inf
            self._centre[i] += weight * away
            self._square[i] = (1.0 - weight) * (square + weight * away * away)
        return distance
