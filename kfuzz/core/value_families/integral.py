"""The families of integers, truth values and indices."""

from typing import Any, Final

from kfuzz.core.value_families.table import Draw, Family, by_name, edges


def _int_uniform(grid: Draw, least: int) -> Any:
    low = grid.words(0)
    return low if least >= -(1 << 31) else (grid.words(1) << 32) | low


# Of integer data, such as the codes of quantized numbers: from a grid and the least
# integer, int64 of which the lower bits are meant.
INTEGER_FAMILIES: Final = by_name(
    Family(
        "int_uniform", "integer", "baseline: the whole range of the dtype",
        _int_uniform, {"integer": 2},
    ),
    Family(
        "int_small", "integer", "-8 to 7: what is exact in every format",
        lambda grid, least: grid.words(0) % 16 + max(-8, least),
    ),
    Family("int_zeros", "integer", "all 0", lambda grid, least: grid.position * 0),
    Family(
        "int_ends", "integer", "the least and the greatest: clamping, signs",
        lambda grid, least: -(grid.words(0) & 1) ^ least,
    ),
)  # fmt: skip

# Of truth values: not 0 where true.
BOOL_FAMILIES: Final = by_name(
    Family(
        "bool_random", "bool", "baseline: either, half and half",
        lambda grid: grid.words(0) >> 31,
    ),
    Family(
        "bool_mostly_true", "bool", "1 in 16 false", lambda grid: grid.words(0) % 16
    ),
    Family(
        "bool_mostly_false", "bool", "1 in 16 true",
        lambda grid: grid.words(0) % 16 == 0,
    ),
    Family(
        "bool_all_true", "bool", "nothing is left out",
        lambda grid: grid.position >= 0,
    ),
    Family(
        "bool_all_false", "bool", "everything is left out",
        lambda grid: grid.position < 0,
    ),
    Family(
        "bool_one_true", "bool", "one of each row: all but one left out",
        lambda grid: grid.position == grid.row_words(0) % grid.n,
    ),
    Family(
        "bool_alternating", "bool", "neighbours differ: packed, shared loads",
        lambda grid: (grid.row + grid.position + grid.laid(grid.pick(0, 2))) & 1,
    ),
    Family(
        "bool_tail", "bool", "the last of each row alone: tail masks",
        lambda grid: grid.position == grid.n - 1,
    ),
)  # fmt: skip


def _sorted(grid: Draw, bound: int) -> Any:
    """Rising along the axis from 0 to at most bound - 1, each row shifted."""
    return (grid.position * bound + grid.row_words(0) % bound) // grid.n


def _permuted(grid: Draw, bound: int) -> Any:
    """Consecutive elements step through all values before one repeats."""
    multiplier = grid.laid(grid.coprime(1 + grid.pick(0, bound), bound))
    flat = grid.row * grid.n + grid.position
    return (flat * multiplier + grid.laid(grid.pick(1, bound))) % bound


# Of indices below a bound n: from a grid and n; a hostile value from n, the least and
# the greatest integer.
INDEX_FAMILIES: Final = by_name(
    Family(
        "index_uniform", "index", "baseline",
        lambda grid, bound: grid.words(0) % bound,
    ),
    Family(
        "index_first", "index", "all 0: the first row or class",
        lambda grid, bound: grid.position * 0,
    ),
    Family(
        "index_last", "index", "all n-1: tail masks of what is indexed",
        lambda grid, bound: grid.position * 0 + (bound - 1),
    ),
    Family(
        "index_sorted", "index", "rising: coalesced and blocked reads", _sorted
    ),
    Family(
        "index_reversed", "index", "falling: assumed order",
        lambda grid, bound: bound - 1 - _sorted(grid, bound),
    ),
    Family(
        "index_equal", "index", "one value: duplicates, atomics",
        lambda grid, bound: grid.position * 0 + grid.laid(grid.pick(0, bound)),
    ),
    Family("index_permuted", "index", "each value once where possible", _permuted),
    Family(
        "index_edges", "index", "0, n-1 and the edges of tiles of n",
        lambda grid, bound: grid.places(edges(bound), grid.words(0)),
    ),
    Family(
        "index_negative", "hostile", "-1: wraps, or reads before the start",
        lambda bound, least, greatest: -1,
    ),
    Family(
        "index_bound", "hostile", "n: one past the end, padded columns",
        lambda bound, least, greatest: bound,
    ),
    Family(
        "index_beyond", "hostile", "n+1: two past the end",
        lambda bound, least, greatest: bound + 1,
    ),
    Family(
        "index_least", "hostile", "the least integer: overflowing offsets",
        lambda bound, least, greatest: least,
    ),
    Family(
        "index_greatest", "hostile", "the greatest one: overflowing offsets",
        lambda bound, least, greatest: greatest,
    ),
)  # fmt: skip
