"""The host gate: which calls are looked at, decided before the call.

A call is looked at if its arguments have a signature not seen before (shapes, strides,
dtypes, devices, alignment), or by chance. The chance is drawn ahead, as the number of
calls until the next one: a call that is not looked at costs a counter and a
comparison of its signature with the last.
"""

import itertools
import math
import random
import sys
import threading
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final

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
        due: number of the next call that is looked at by chance.
        last: the signature of a recent call.
        seen: all signatures so far.
    """

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
        self._next: Callable[[], int] = itertools.count(1).__next__
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
            now = self._next()
            self._extra += 1
            self.due = self._ahead(now)

    @property
    def calls(self) -> int:
        """Calls so far."""
        with self._lock:
            self._extra += 1
            return self._next() - self._extra

    def look(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[int, Reason | None]:
        """Count a call; return its number, and why it is looked at, None if it is not.

        What is not looked at costs what is written here.
        """
        number = self._next()
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
