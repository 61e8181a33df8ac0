"""What is drawn more often, since it has shown something before."""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

T = TypeVar("T", bound=Hashable)
Weights = tuple[tuple[str, float], ...]

# Of a short list so many copies are divided, or shares would be rounded away.
_LEAST: Final = 24


@dataclass(frozen=True)
class Favour:
    """What half of the draws are divided among, in proportion; the rest is as usual.

    Attributes:
        dtypes: element types and their weights.
        layouts: kinds of layouts.
        families: value families of data.
    """

    dtypes: Weights = ()
    layouts: Weights = ()
    families: Weights = ()


USUAL: Final = Favour()
"""Nothing is drawn more often."""


def favouring(
    options: Iterable[T], weights: Weights, name: Callable[[T], str] = str
) -> tuple[T, ...]:
    """Return options, each as often as it is to be drawn.

    Args:
        options: each as often as it is drawn usually.
        weights: of those that half of the draws are divided among; what is no option
            counts for nothing.
        name: what an option is called in the weights.

    Returns:
        The options as they are where none has a weight.
    """
    usual = tuple(options)
    told = dict(weights)
    found = {o: w for o in dict.fromkeys(usual) if (w := told.get(name(o), 0.0)) > 0}
    if not found:
        return usual
    usual *= -(-_LEAST // len(usual))
    whole = len(usual) / sum(found.values())
    more = [o for o, w in found.items() for _ in range(max(round(w * whole), 1))]
    return (*usual, *more)
