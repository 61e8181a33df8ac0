"""The families of integer data and of truth values in `kfuzz.core.families`.

Each function returns int64 that broadcasts to the shape of its grid. Streams are
numbered within each function.
"""

from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor

from kfuzz.execution.values.generator import Grid

# Small integers lie in [-8, 8): as a significand of four bits holds them.
_SMALL: Final = 8
# One element in so many differs in a row that is mostly one value.
_RARE: Final = 16


def _constant(grid: Grid, value: int) -> Tensor:
    return torch.full((1, 1), value, dtype=torch.int64, device=grid.device)


def _uniform(grid: Grid, limits: torch.iinfo) -> Tensor:
    # The lower bits are those of the dtype; conversion keeps them.
    if limits.bits > 32:
        return (grid.words(1) << 32) | grid.words(0)
    return grid.words(0)


def _small(grid: Grid, limits: torch.iinfo) -> Tensor:
    least = max(-_SMALL, limits.min)
    return grid.words(0) % (2 * _SMALL) + least


def _ends(grid: Grid, limits: torch.iinfo) -> Tensor:
    return torch.where((grid.words(0) & 1) > 0, limits.max, limits.min)


_INTEGERS: Final[dict[str, Callable[[Grid, torch.iinfo], Tensor]]] = {
    "int_uniform": _uniform,
    "int_small": _small,
    "int_zeros": lambda grid, limits: _constant(grid, 0),
    "int_ends": _ends,
}


def _rare(grid: Grid) -> Tensor:
    return grid.words(0) % _RARE == 0


_TRUTHS: Final[dict[str, Callable[[Grid], Tensor]]] = {
    "bool_random": lambda grid: grid.words(0) >> 31,
    "bool_mostly_true": lambda grid: ~_rare(grid),
    "bool_mostly_false": _rare,
    "bool_all_true": lambda grid: _constant(grid, 1),
    "bool_all_false": lambda grid: _constant(grid, 0),
    "bool_one_true": lambda grid: grid.position == grid.row_words(0) % grid.n,
    "bool_alternating": lambda grid: (
        (grid.row + grid.position + grid.laid(grid.pick(0, 2))) & 1
    ),
    "bool_tail": lambda grid: grid.position == grid.n - 1,
}


def integer_values(grid: Grid, family: str, dtype: torch.dtype) -> Tensor:
    """Return the integers or truth values of a family.

    Args:
        grid: of any format: no integer depends on it.
        family: one of `INTEGER_FAMILIES`, or of `BOOL_FAMILIES` for bool.
        dtype: an integer dtype or bool.

    Returns:
        Integers or bool that broadcast to the shape of the grid. Those that a
        conversion to `dtype` leaves are meant: the lower bits.
    """
    if dtype is torch.bool:
        return _TRUTHS[family](grid)
    return _INTEGERS[family](grid, torch.iinfo(dtype))
