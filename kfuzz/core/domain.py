"""What the values of an argument have in common besides their type, as text.

A recipe holds the text, `kfuzz.numerics.domains` puts values into the domain. The parts
are joined by " and ":

* an interval, "[0, 1]", "(0, inf)" or "[-inf, 0]": a parenthesis leaves its end out, an
  infinite one the infinity;
* "probabilities along -1": not negative, of sum 1 along an axis counted from the end;
* of indices, "rising" and "distinct" along the last axis, or "distinct throughout";
  "offsets" of consecutive parts: rising, the first 0, the last all of the dimension;
  "spans" in the last two axes, a start and an end each, apart and rising;
* of truth values, "causal" and "blocks" in the last two axes, "padding" in the last.
"""

import math
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from kfuzz.core.errors import BindingError

RISING: Final = "rising"
DISTINCT: Final = "distinct"
THROUGHOUT: Final = "distinct throughout"
OFFSETS: Final = "offsets"
SPANS: Final = "spans"
MASKS: Final = ("causal", "padding", "blocks")
_WORDS: Final = (RISING, DISTINCT, THROUGHOUT, OFFSETS, SPANS, *MASKS)
_INTERVAL: Final = re.compile(r"([\[(])\s*(\S+)\s*,\s*(\S+?)\s*([\])])")
_PROBABILITIES: Final = re.compile(r"probabilities along (-\d+)")


@dataclass(frozen=True)
class Interval:
    """The numbers between two ends.

    Attributes:
        low: the lower end.
        high: the upper end.
        above: whether the lower end is left out.
        below: whether the upper end is left out.
    """

    low: float
    high: float
    above: bool = False
    below: bool = False

    def __str__(self) -> str:
        """Return for example "(0, inf)"."""
        return self._between(f"{self.low:g}, {self.high:g}")

    @property
    def text(self) -> str:
        """The same with every digit of the ends."""
        return self._between(f"{self.low!r}, {self.high!r}")

    def _between(self, ends: str) -> str:
        return f"{'(' if self.above else '['}{ends}{')' if self.below else ']'}"

    def __contains__(self, number: float) -> bool:
        """Whether a number lies in it."""
        above = number > self.low if self.above else number >= self.low
        below = number < self.high if self.below else number <= self.high
        return above and below

    @property
    def is_empty(self) -> bool:
        """Whether no number lies in it."""
        if self.low == self.high:
            return self.above or self.below
        return not self.low < self.high

    @property
    def is_finite(self) -> bool:
        """Whether no infinity lies in it."""
        low = self.low > -math.inf or self.above
        return low and (self.high < math.inf or self.below)


@dataclass(frozen=True)
class Domain:
    """The parts of a domain.

    Attributes:
        interval: what numbers stay within, None for any.
        axis: along which they are probabilities, negative; 0 where they are none.
        words: what else is so.
    """

    interval: Interval | None = None
    axis: int = 0
    words: tuple[str, ...] = ()

    @property
    def rank(self) -> int:
        """The least rank of a tensor of which it says something."""
        two = any(word in ("causal", "blocks", SPANS) for word in self.words)
        return max(-self.axis, 2 * two, min(len(self.words), 1))

    @property
    def cuts(self) -> bool:
        """Whether it is that of integers which cut a dimension into parts."""
        return OFFSETS in self.words or SPANS in self.words

    @property
    def is_finite(self) -> bool:
        """Whether it holds no NaN and no infinity."""
        return bool(self.axis) or (self.interval is None or self.interval.is_finite)


@lru_cache(maxsize=1024)
def parsed(text: str) -> Domain:
    """Return the parts of a domain, "" standing for no restriction.

    Raises:
        BindingError: if the text names none.
    """
    interval, axis, words = None, 0, []
    for part in text.split(" and ") if text else ():
        if found := _PROBABILITIES.fullmatch(part):
            axis = int(found[1])
        elif part in _WORDS:
            words.append(part)
        else:
            interval = _interval(part)
    return Domain(interval, axis, tuple(words))


def _interval(part: str) -> Interval:
    found = _INTERVAL.fullmatch(part.strip())
    try:
        if found is None:
            raise ValueError
        low, high = float(found[2]), float(found[3])
        if low != low or high != high:
            raise ValueError
    except ValueError:
        raise BindingError(
            f"{part!r:.60} is no domain",
            fix='write for example (0, 1), "(0, inf)" or "[0, 1)"',
        ) from None
    return Interval(low, high, found[1] == "(", found[4] == ")")


def interval_text(within: object) -> str:
    """Return an interval that an operator declares as the text of a domain.

    Args:
        within: a text, or two ends that belong to it; None for no end.

    Raises:
        BindingError: if it is neither.
    """
    if within is None or within == "":
        return ""
    if isinstance(within, str):
        return _interval(within).text
    match within:
        case (low, high):
            ends = [e is None or _is_number(e) for e in (low, high)]
            if all(ends):
                return Interval(
                    -math.inf if low is None else float(str(low)),
                    math.inf if high is None else float(str(high)),
                    above=low is None, below=high is None,
                ).text  # fmt: skip
    raise BindingError(
        f"within={within!r:.60} is no interval",
        fix='write for example (0, 1), (None, 0) or "(0, inf)"',
    )


def _is_number(value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and value == value
