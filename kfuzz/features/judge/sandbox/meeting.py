"""What surrounds a call and must not change its result: randomness, time, identity.

Each call of foreign code meets other generators' states, other clocks and, at times, a
gap before it. Equal calls within one case meet equal generators, so that a result that
follows these is told from one that follows something else.
"""

import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from kfuzz.core.random_streams import hashed
from kfuzz.execution.calls.patches import Patches
from kfuzz.execution.device.backends import backend_of

_YEARS: Final = 10 * 365 * 86_400.0
_DAYS: Final = 30 * 86_400.0
# Shares of calls before which clocks jump, and before which there is a gap.
_SHIFTED: Final = 0.7
_JUMPED: Final = 0.5
_PAUSED: Final = 1 / 128
_PAUSES: Final = (0.02, 0.3)
# The share of calls that nothing watches in which grad mode is on.
_GRAD: Final = 0.25
# Numbers that a generator has given since it was seeded, at most.
_DRAWN: Final = 2_000
# Shares of calls that meet generators as they are right after seeding.
_FRESH: Final = 0.25
THREADS: Final = 2
"""Most threads of torch's."""
# Elements of an argument by which equal calls are known.
_SAMPLED: Final = 4_096


@dataclass(frozen=True)
class Surroundings:
    """What one call meets.

    Attributes:
        seed: of the random generators of torch, its devices, numpy and Python: 64 bits.
        drawn: numbers that each has given since.
        wall: seconds by which the time of day is shifted.
        steady: seconds by which clocks that only go forward are shifted.
        pause: seconds in which nothing happens before the call.
        bare: whether nothing watches the call: neither torch's operators nor launches
            are followed, memory is not poisoned, and clocks are the true ones.
        grad: whether grad mode is on, as it is where a module is called plainly.
        threads: of torch's, among which it may share an operation.
    """

    seed: int = 0
    drawn: int = 0
    wall: float = 0.0
    steady: float = 0.0
    pause: float = 0.0
    bare: bool = False
    grad: bool = False
    threads: int = 1


PLAIN: Final = Surroundings()


class Perturbations:
    """Draws what calls meet.

    Args:
        seed: all that is drawn depends on it; None for a fresh one.

    Attributes:
        bare_share: the share of calls that nothing watches.
        last: what the last call met.
    """

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed)
        self.bare_share = 0.0
        self.last = PLAIN
        self._case = 0
        self._steady = 0.0

    def begin(self) -> None:
        """A case begins: equal calls before it have nothing in common with later."""
        self._case = self._random.getrandbits(64)

    def renew(self) -> None:
        """Another process begins, whose clocks may be anywhere."""
        self._steady = 0.0

    def of(self, seed: int, tensors: Sequence[Tensor]) -> Surroundings:
        """Return what the next call meets.

        Args:
            seed: stands for the seed that was asked for: another asks for another.
            tensors: the arguments of the call.
        """
        draw = self._random
        given = [_sampled(x) for x in tensors]
        key = hashed(f"{self._case} {seed} {given}")
        drawn = hashed(f"{key} drawn")
        fresh = drawn % 1_000 < 1_000 * _FRESH
        if draw.random() < _JUMPED:
            self._steady += _spread(draw, 1e-3, _DAYS)
        shifted = draw.random() < _SHIFTED
        wall = _spread(draw, 1.0, _YEARS) * draw.choice((-1, 1)) if shifted else 0.0
        paused = draw.random() < _PAUSED
        bare = draw.random() < self.bare_share
        self.last = Surroundings(
            seed=key,
            drawn=0 if fresh else drawn % _DRAWN,
            wall=wall,
            steady=self._steady,
            pause=draw.uniform(*_PAUSES) if paused else 0.0,
            bare=bare,
            grad=bare and draw.random() < _GRAD,
            # They decide the order of sums: calls on equal tensors meet as many, under
            # whatever seed, for a result may depend on no seed.
            threads=1 + hashed(f"{self._case} {given} threads") % THREADS,
        )
        return self.last


def _spread(draw: random.Random, least: float, greatest: float) -> float:
    """Return a number that has any order of magnitude alike."""
    return math.exp(draw.uniform(math.log(least), math.log(greatest)))


def _sampled(tensor: Tensor) -> int:
    """Return a number that follows the shape of a tensor and some of its elements."""
    flat = tensor.detach().reshape(-1)
    flat = flat[:: max(flat.numel() // _SAMPLED, 1)][:_SAMPLED]
    data = flat.contiguous().view(torch.uint8).cpu().numpy().tobytes()
    return hashed(f"{tuple(tensor.shape)} {data.hex()}")


# The child's side of `perturbations`: generators are set, clocks are shifted.
#
# Clocks are shifted where Python looks at them, in the module `time`. Whatever asks the
# system sees the true ones: `datetime.now`, times of files, ctypes, other programs.

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
        unit, kind = (_NANO, int) if name.endswith("_ns") else (1, float)

        def clock() -> float:
            return true() + kind(unit * by())

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


# Initialisers of constants that draw numbers instead.
#
# Weights that are all 0 or all 1 hide whether they are used. While a module is built,
# the functions of `torch.nn.init` that fill with a constant draw numbers about it, by
# the size of what they fill alone: whoever builds the same layers, in whatever order,
# has the same weights.

_SPREAD: Final = 0.5


@contextmanager
def drawn_constants(*, drawn: bool = True) -> Iterator[None]:
    """Have initialisers of constants draw numbers within the block.

    Args:
        drawn: False for a block that does nothing.
    """
    if not drawn:
        yield
        return
    init: Any = nn.init
    replaced: dict[str, Callable[..., Tensor]] = {
        "ones_": lambda tensor: _about(tensor, 1.0),
        "zeros_": lambda tensor: _about(tensor, 0.0),
        "constant_": _about,
    }
    with Patches() as patches:
        for name, function in replaced.items():
            patches.set(init, name, function)
        yield


def _about(tensor: Tensor, val: float) -> Tensor:
    """Fill a tensor with numbers about one, at most half of it or 0.5 away."""
    seed = 2 * tensor.numel() + (val == 0)
    chance = torch.Generator().manual_seed(seed)
    spread = _SPREAD * (abs(val) or 1.0)
    noise = 2 * torch.rand(tensor.shape, generator=chance) - 1
    with torch.no_grad():
        return tensor.copy_(val + spread * noise)
