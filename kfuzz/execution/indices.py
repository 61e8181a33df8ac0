"""The index families of `kfuzz.core.families`: integers below a bound, or not.

Each function returns int64 that broadcasts to (rows, n) of its grid. Streams
are numbered within each function.
"""

import math
from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor

from kfuzz.core.tiles import edges
from kfuzz.execution.generator import Grid
from kfuzz.numerics.formats import FORMATS

Builder = Callable[[Grid, int], Tensor]

# Of so many seeds of a hostile family one replaces every element.
_ALL_SHARE: Final = 4
# No index depends on the format that a grid has.
_FORMAT: Final = FORMATS["float64"]


def _constant(grid: Grid, value: int) -> Tensor:
    return torch.full((1, 1), value, dtype=torch.int64, device=grid.device)


def _uniform(grid: Grid, bound: int) -> Tensor:
    return grid.words(0) % bound


def _sorted(grid: Grid, bound: int) -> Tensor:
    """Rising along the axis from 0 to at most bound - 1, each row shifted."""
    return (grid.position * bound + grid.row_words(0) % bound) // grid.n


def _permuted(grid: Grid, bound: int) -> Tensor:
    """Consecutive elements step through all values before one repeats."""
    multiplier = 1 + grid.pick(0, bound)
    while math.gcd(multiplier, bound) != 1:
        multiplier += 1
    flat = grid.row * grid.n + grid.position
    return (flat * multiplier + grid.pick(1, bound)) % bound


def _edges(grid: Grid, bound: int) -> Tensor:
    places = torch.tensor(edges(bound), device=grid.device)
    return places[grid.words(0) % len(places)]


_VALID: Final[dict[str, Builder]] = {
    "index_uniform": _uniform,
    "index_first": lambda grid, bound: _constant(grid, 0),
    "index_last": lambda grid, bound: _constant(grid, bound - 1),
    "index_sorted": _sorted,
    "index_reversed": lambda grid, bound: bound - 1 - _sorted(grid, bound),
    "index_equal": lambda grid, bound: _constant(grid, grid.pick(0, bound)),
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

FAMILIES: Final = frozenset({*_VALID, *_HOSTILE})


def index_rows(
    family: str,
    rows: int,
    n: int,
    *,
    bound: int,
    seed: int,
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    """Return the indices of a family, (rows, n), contiguous.

    Args:
        family: one of `FAMILIES`.
        rows: product of the sizes outside the structured axis, at least 1.
        n: size of the structured axis, at least 1.
        bound: valid indices lie in [0, bound); at least 1.
        seed: 64-bit seed.
        dtype: an integer dtype.
        device: where the values are made.
    """
    grid = Grid(rows, n, _FORMAT, seed, device)
    values = _VALID.get(family, _uniform)(grid, bound)
    made = values.to(dtype).expand(rows, n).contiguous()
    if family in _HOSTILE:
        value = _HOSTILE[family](bound, torch.iinfo(dtype))
        places = edges(n)
        row = (0, rows - 1, rows // 2)[grid.pick(2, 3)]
        if grid.pick(3, _ALL_SHARE) == 0:
            made.fill_(value)
        else:
            made[row, places[grid.pick(1, len(places))]] = value
    return made
