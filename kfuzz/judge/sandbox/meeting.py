"""The child's side of `circumstances`: generators are set, clocks are shifted.

Clocks are shifted where Python looks at them, in the module `time`. Whatever asks the
system sees the true ones: `datetime.now`, times of files, ctypes, other programs.
"""

import random
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import torch

from kfuzz.execution.device.backends import backend_of

_NANO: Final = 1_000_000_000
_WALL: Final = ("time", "time_ns")
_STEADY: Final = tuple(
    f"{name}{unit}"
    for name in ("monotonic", "perf_counter", "process_time", "thread_time")
    for unit in ("", "_ns")
)


class Clocks:
    """Shifts the clocks of the module `time`."""

    def __init__(self) -> None:
        self._wall = self._steady = 0.0
        self._true = {name: getattr(time, name) for name in (*_WALL, *_STEADY)}
        made = {name: self._shifted(name, lambda: self._wall) for name in _WALL}
        steady = {name: self._shifted(name, lambda: self._steady) for name in _STEADY}
        self._made = made | steady

    def shift(self, wall: float, steady: float) -> None:
        """Set by how many seconds both kinds differ from the true ones from now on."""
        self._wall, self._steady = wall, steady
        self._have(self._true, self._made)

    def unshift(self) -> None:
        """Have the system's own clocks from now on."""
        self._have(self._made, self._true)

    @staticmethod
    def _have(old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        for name, clock in new.items():
            if getattr(time, name, None) is old[name]:  # else it is the file's own
                setattr(time, name, clock)

    @staticmethod
    def _shifted(name: str, by: Callable[[], float]) -> Callable[[], float]:
        """Return a clock that looks like the one of this name."""
        true: Callable[[], float] = getattr(time, name)
        if name.endswith("_ns"):

            def clock() -> float:
                return true() + int(by() * _NANO)
        else:

            def clock() -> float:
                return true() + by()

        clock.__name__ = clock.__qualname__ = name
        clock.__module__, clock.__doc__ = "time", true.__doc__
        return clock


def seed_all(device: torch.device, seed: int, drawn: int) -> None:
    """Seed every generator there is, and have it give some numbers.

    Args:
        device: of the calls.
        seed: 64 bits.
        drawn: how many numbers.
    """
    for generator in backend_of(device).generators(device):
        generator.manual_seed(seed)
        if generator.device.type == "cpu":
            torch.rand(drawn, generator=generator)
        elif hasattr(generator, "set_offset"):
            generator.set_offset(4 * drawn)  # which has to be a multiple of 4
    random.seed(seed)
    np.random.seed(seed & 0xFFFF_FFFF)
    for _ in range(drawn % 64):
        random.random()
    np.random.random_sample(drawn)


def meet(clocks: Clocks, device: torch.device, told: Mapping[str, Any]) -> None:
    """Have the next call meet what it is told to."""
    seed_all(device, int(told["seed"]), int(told["drawn"]))
    if told["bare"]:
        clocks.unshift()
    else:
        clocks.shift(float(told["wall"]), float(told["steady"]))
