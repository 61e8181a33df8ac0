"""Weighted choices that do not make Hypothesis repeat a case."""

from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Generic, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")
# An option, and which of the equal ones in its list it is.
Weighted = st.SearchStrategy[tuple[T, int]]


def weighted(options: Iterable[T]) -> Weighted[T]:
    """Return a strategy for one of the options, the first being the simplest.

    An option that is given k times is drawn k times as often; the second member
    of what is drawn numbers its copies.
    """
    seen: Counter[T] = Counter()
    pairs = []
    for option in options:
        pairs.append((option, seen[option]))
        seen[option] += 1
    return st.sampled_from(pairs)


@lru_cache(maxsize=4096)
def weighted_names(options: tuple[str, ...]) -> Weighted[str]:
    """Return the strategy of `weighted` for names, equal ones once."""
    return weighted(options)


class Chooser(Generic[T]):
    """Draws weighted options and remembers which copies they were.

    To Hypothesis, copies are different choices: it would run a case again for
    each of them (a fifth of all matmul cases, measured). Seeded with `salt`,
    such cases differ in their values instead.
    """

    def __init__(self, draw: Callable[[Weighted[Any]], tuple[Any, int]]) -> None:
        self._draw = draw
        self.salt = 0

    def __call__(self, options: Weighted[T]) -> T:
        """Draw one option."""
        option, copy = self._draw(options)
        # Odd multiplier, 24 bits: the salt of seeds (see values.seeds).
        self.salt = (self.salt * 0x9E37B1 + copy) & 0xFFFFFF
        chosen: T = option
        return chosen
