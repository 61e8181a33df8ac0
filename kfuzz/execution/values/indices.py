"""The index families of `kfuzz.core.families`: integers below a bound, or not.

Each function returns int64 that broadcasts to the shape of its grid. Streams
are numbered within each function.
"""

from collections.abc import Callable
from typing import Final

import numpy as np
import torch
from torch import Tensor

from kfuzz.core.tiles import edges
from kfuzz.execution.values.generator import Grid, Number, coprime, uploaded

Builder = Callable[[Grid, int], Tensor]

# Of so many seeds of a hostile family one replaces every element.
_ALL_SHARE: Final = 4


def _constant(grid: Grid, value: int) -> Tensor:
    return torch.full((1, 1), value, dtype=torch.int64, device=grid.device)


def _one(grid: Grid, value: Number) -> Tensor:
    return _constant(grid, 0) + grid.laid(value)


def _uniform(grid: Grid, bound: int) -> Tensor:
    return grid.words(0) % bound


def _sorted(grid: Grid, bound: int) -> Tensor:
    """Rising along the axis from 0 to at most bound - 1, each row shifted."""
    return (grid.position * bound + grid.row_words(0) % bound) // grid.n


def _permuted(grid: Grid, bound: int) -> Tensor:
    """Consecutive elements step through all values before one repeats."""
    multiplier = grid.laid(coprime(1 + grid.pick(0, bound), bound))
    flat = grid.row * grid.n + grid.position
    return (flat * multiplier + grid.laid(grid.pick(1, bound))) % bound


def _edges(grid: Grid, bound: int) -> Tensor:
    places = uploaded(np.array(edges(bound)), grid.device)
    return places[grid.words(0) % len(places)]


_VALID: Final[dict[str, Builder]] = {
    "index_uniform": _uniform,
    "index_first": lambda grid, bound: _constant(grid, 0),
    "index_last": lambda grid, bound: _constant(grid, bound - 1),
    "index_sorted": _sorted,
    "index_reversed": lambda grid, bound: bound - 1 - _sorted(grid, bound),
    "index_equal": lambda grid, bound: _one(grid, grid.pick(0, bound)),
    "index_permuted": _permuted,
    "index_edges": _edges,
}

# The hostile value, from the bound and the range of the dtype.
_HOSTILE: Final[dict[str, Callable[[int, torch.iinfo], int]]] = {
    "index_negative": lambda bound, limits: -1,
    "index_bound": lambda bound, limits: bound,
    "index_beyond": lambda bound, limits: bound + 1,
    "index_least": lambda bound, limits: limits.min,
    "index_greatest": lambda bound, limits: limits.max,
}

HOSTILE: Final = frozenset(_HOSTILE)
FAMILIES: Final = frozenset({*_VALID, *_HOSTILE})


def index_values(grid: Grid, family: str, bound: int) -> Tensor:
    """Return the indices of a family, those of a hostile one before they are spoilt.

    Args:
        grid: of any format: no index depends on it.
        family: one of `FAMILIES`.
        bound: valid indices lie in [0, bound); at least 1.

    Returns:
        int64 that broadcasts to the shape of the grid.
    """
    return _VALID.get(family, _uniform)(grid, bound)


def spoil(grid: Grid, family: str, bound: int, made: Tensor) -> None:
    """Overwrite one index, or all, by the value of a hostile family.

    Args:
        grid: of one tensor.
        family: one of `HOSTILE`.
        bound: valid indices lie in [0, bound).
        made: contiguous, of the shape of the grid.
    """
    value = _HOSTILE[family](bound, torch.iinfo(made.dtype))
    places = edges(grid.n)
    row = (0, grid.rows - 1, grid.rows // 2)[grid.pick(2, 3)]
    if grid.pick(3, _ALL_SHARE) == 0:
        made.fill_(value)
    else:
        made[row, places[grid.pick(1, len(places))]] = value
