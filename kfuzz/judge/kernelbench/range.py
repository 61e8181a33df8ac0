"""On which side of which bound a reference takes numbers.

A logarithm makes NaN of negative numbers, a cross entropy refuses what is no
probability, on a GPU by ending the context. An interval that the file's own values have
is kept where the reference needs it, and nowhere else: a candidate that takes numbers
for positive because `torch.rand` gives such is wrong.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from torch import Tensor

from kfuzz.judge.kernelbench.structures import Constant, Structure
from kfuzz.judge.kernelbench.structures_of_numbers import Interval, Simplex, Unit

Runs = Callable[[Mapping[str, Tensor]], Sequence[Tensor] | None]
"""Runs the reference on the CPU; None where it raises."""

# How far beyond the file's own numbers is asked, in parts of their spread.
_BEYOND: Final = (0.5, 3.0)
# Nearer to 0 than the least positive number that was seen, where that is taken.
_NEARER: Final = 2.0**-10
# One element in so many is put beyond.
_SHARE: Final = 4


def interval_of(
    name: str,
    values: Mapping[str, Tensor],
    seen: tuple[float, float],
    runs: Runs,
) -> Interval | None:
    """Return the interval that one argument has to keep to; None if it has none.

    Args:
        name: the argument.
        values: arguments of one call, on the CPU, of the file's own numbers.
        seen: the least and the greatest number of the argument in any draw.
        runs: the reference.
    """
    plain = runs(values)
    if plain is None or any(_has_nan(y) for y in plain):
        return None
    least, greatest = seen
    spread = max(greatest - least, abs(greatest), 1e-3)

    def takes(number: float) -> bool:
        made = runs({**values, name: _with(values[name], number)})
        return made is not None and not any(_has_nan(y) for y in made)

    low = high = None
    if not all(takes(least - far * spread) for far in _BEYOND):
        low = least * _NEARER if least > 0 and takes(least * _NEARER) else least
    if not all(takes(greatest + far * spread) for far in _BEYOND):
        high = greatest
    nan = runs({**values, name: _with(values[name], float("nan"))}) is not None
    if low is None and high is None and nan:
        return None
    return Interval(low, high, nan)


def is_plain(kinds: Sequence[Structure]) -> bool:
    """Whether nothing is known of an argument that bounds its numbers already."""
    bounded = (Simplex, Unit, Constant)
    return not any(s.discrete or isinstance(s, bounded) for s in kinds)


def _with(x: Tensor, number: float) -> Tensor:
    """Return the values with a number at some places, the first among them."""
    made = x.clone()
    made.view(-1)[::_SHARE] = number
    return made


def _has_nan(y: Tensor) -> bool:
    return y.is_floating_point() and bool(y.isnan().any())
