"""Sizes of one dimension at which kernels go wrong, within bounds."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from kfuzz.core.value_families.tiles import TILES
from kfuzz.strategies.weighted import Weighted, weighted

_TINY: Final = (2, 1, 3, 4, 5, 6, 7, 8, 9)
_PRIMES: Final = (3, 7, 13, 31, 61, 127, 257, 509, 1009, 2053, 4099)
# Sizes up to here are cheap on every backend, and reach past a block of 1024.
_MEDIUM: Final = 1100
# One size in so many is 0, where 0 is admitted.
_ZERO_SHARE: Final = 25


@dataclass(frozen=True)
class Range:
    """The sizes that one dimension may have.

    Attributes:
        least: the smallest one.
        greatest: the largest one, None without limit.
        modulus: sizes are `remainder` modulo this.
        remainder: see `modulus`.
    """

    least: int = 0
    greatest: int | None = None
    modulus: int = 1
    remainder: int = 0

    def __contains__(self, size: int) -> bool:
        """Whether a size is admitted."""
        within = self.greatest is None or size <= self.greatest
        return self.least <= size and within and size % self.modulus == self.remainder

    def smallest(self, floor: int) -> int | None:
        """Return the smallest admitted size from `floor` up, or None."""
        start = max(self.least, floor)
        size = start + (self.remainder - start) % self.modulus
        return size if size in self else None

    def __and__(self, other: "Range") -> "Range":
        """Return the range of the sizes in both; empty ones admit nothing."""
        least = max(self.least, other.least)
        limits = [g for g in (self.greatest, other.greatest) if g is not None]
        modulus = math.lcm(self.modulus, other.modulus)
        # Chinese remainders by trial: moduli are a few thousand at most.
        for remainder in range(self.remainder, modulus, self.modulus):
            if remainder % other.modulus == other.remainder:
                return Range(least, min(limits, default=None), modulus, remainder)
        return Range(1, 0)


def _landmarks(cap: int, *, large: bool) -> Iterator[int]:
    """Yield sizes worth trying, the simplest first; repeats weigh."""
    yield from _TINY
    if not large:
        # Axes outside the reduced one: many small ones reach more kernels than
        # few large ones, and leave room for the reduced axis.
        yield from _TINY * 2
    # Not at the end: Hypothesis favours the last option of a list.
    power, beside = 2 * TILES[-1], (1, -1, 0, 0)
    for step in beside if large else ():
        yield power + step
        power *= 2
    while large and power <= cap:
        yield power
        power *= 2
    for tile in TILES:
        if large or tile <= 64:
            yield from (tile, tile + 1, tile - 1, 2 * tile - 1)
    yield from _PRIMES
    if large:
        # The range in which blocks and warps end, once more.
        yield from (p for t in TILES if t < _MEDIUM for p in (t, t + 1, t - 1))
        yield from (10, 11, 12, 20, 24, 40, 48, 77, 96, 100, 200, 300, 384, 768, 1000)


@lru_cache(maxsize=4096)
def candidates(
    cap: int, within: Range, *, large: bool, named: tuple[int, ...] = ()
) -> tuple[int, ...]:
    """Return the positive sizes worth trying, simplest first, weighted by repeats.

    Args:
        cap: the greatest size that the budget leaves.
        within: the sizes that the kernel declares.
        large: whether this is the axis that gets the large sizes.
        named: further sizes, which get a third of the draws.
    """
    if within.greatest is not None:
        cap = min(cap, within.greatest)
    found: list[int] = []
    least = within.smallest(1)
    if within.modulus == 1 and within.least <= 2:
        marks = list(_landmarks(cap, large=large))
    else:
        # Around each landmark the next sizes that the declaration admits.
        marks = [] if least is None else [least, least + within.modulus]
        for size in _landmarks(cap, large=large):
            below = size - (size - within.remainder) % within.modulus
            marks += [below, below + within.modulus]
        marks = list(dict.fromkeys(marks)) if within.modulus > 1 else marks
    if within.greatest is not None:
        top = cap - (cap - within.remainder) % within.modulus
        marks += [top, top - within.modulus]
    found = [size for size in marks if 1 <= size <= cap and size in within]
    further = [size for size in named if 1 <= size <= cap and size in within]
    if further:
        share = max(1, len(found) // (2 * len(further)))
        found = found[:1] + further * share + found[1:]
    if not found and least is not None and least <= cap:
        found = [least]
    return tuple(found)


@lru_cache(maxsize=4096)
def sizes(
    cap: int, within: Range, *, large: bool, zero: bool, named: tuple[int, ...] = ()
) -> Weighted[int]:
    """Return a strategy for one size; see `candidates`.

    Args:
        cap: the greatest size that the budget leaves; at least one positive
            size must fit.
        within: the sizes that the kernel declares.
        large: whether this is the axis that gets the large sizes.
        zero: whether a few per cent are 0 (if `within` admits it).
        named: see `candidates`.
    """
    positive = candidates(cap, within, large=large, named=named)
    if not zero or 0 not in within:
        return weighted(positive)
    zeros = max(1, round(len(positive) / _ZERO_SHARE))
    repeats = max(1, _ZERO_SHARE // len(positive))
    return weighted(
        positive[:1] + (0,) * zeros + positive[1:] + positive * (repeats - 1)
    )
