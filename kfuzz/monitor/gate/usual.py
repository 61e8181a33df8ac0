"""Running statistics of calls: which of them lies far from those before.

The same arithmetic as `kfuzz/monitor/gate/gate_kernel.py`, for calls on the CPU.
"""

import math
from collections.abc import Sequence
from typing import Final

from kfuzz.monitor.detectors import Statistics

# See `gate_kernel`, whose numbers these are.
WARM, FIRST, STEP = 100, 10, 0.5
LEAST, MOST_DISTANT = 1e-30, 1e30
START: Final = math.log(LEAST)


class Running:
    """Where calls usually lie, and how far out few of them do.

    Attributes:
        calls: how many so far.
        threshold: logarithm of the squared distance beyond which a call is flagged.
    """

    def __init__(self, share: float, decay: float) -> None:
        self._share, self._decay = share, decay
        self.calls = 0
        self.threshold = START
        self._centres: list[float] = []
        self._squares: list[float] = []

    def exceeds(self, tensors: Sequence[Statistics]) -> bool:
        """Whether a call lies beyond the threshold; moves both."""
        point = [x for s in tensors for x in _point(s)]
        missing = len(point) - len(self._centres)
        self._centres += [0.0] * missing
        self._squares += [0.0] * missing
        weight = max(1.0 - self._decay, 1.0 / (self.calls + 1))
        total = 0.0
        for i, x in enumerate(point):
            away = x - self._centres[i]
            if away:
                square = self._squares[i]
                total += away * away / square if square > 0.0 else MOST_DISTANT
            self._centres[i] += weight * away
            moved = self._squares[i] + weight * away * away
            self._squares[i] = (1.0 - weight) * moved
        distance = math.log(min(max(total, LEAST), MOST_DISTANT))
        beyond = self.calls >= WARM and distance > self.threshold
        if self.calls >= WARM:
            self.threshold += STEP * (beyond - self._share)
        elif self.calls >= FIRST:
            self.threshold = max(self.threshold, distance)
        self.calls += 1
        return beyond


def _point(s: Statistics) -> tuple[float, float, float]:
    return s.mean, math.log(max(s.rms, LEAST)), math.log(max(s.greatest, LEAST))
