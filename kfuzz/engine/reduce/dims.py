"""Passes of the reducer over sizes: dimensions shrink by slicing what is pinned."""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Final

from kfuzz.core.recipe import Case
from kfuzz.engine.reduce.descent import Descent
from kfuzz.engine.reduce.slices import kept, merged
from kfuzz.engine.reduce.values import numbers, with_digits

# Tile sizes whose remainders are tried first.
TILES: Final = (4096, 2048, 1024, 512, 256, 128, 64, 32, 16)
# Indices are deleted in this many runs at most: where neither end of a dimension
# can go, its size matters, and trying every index would only cost time.
DELETIONS: Final = 32
# The sizes that people call minimal, tried with all other dimensions 1.
LEAST_SIZES: Final = (1, 2, 3)
# Where a dimension stays larger than this, and no tile is why, the sizes up to the
# second are tried one by one: what hangs on a remainder shows at the least of them.
SCANNED_ABOVE: Final = 64
SCANNED: Final = 128
# What numbers are multiplied with to fill their digits, and whether equal ones are
# made neighbours by that.
FULLER: Final = ((4 / 3, False), (11 / 10, True), (7 / 5, True), (17 / 11, True))


def shrink_dims(descent: Descent) -> None:
    """Shrink every named dimension, the largest first."""
    descent.take_first(_collapsed(descent.best))
    while descent.take_first(_with_fewer(descent.best)):
        pass
    for axis in sorted(descent.best.dims, key=lambda a: -descent.best.dims[a]):
        while descent.take_first(_runs(descent.best, axis)):
            pass
        _delete_blocks(descent, axis)
    pairs = combinations(descent.best.dims, 2)
    descent.take_first_of_each(pairs, _shrunk_together)


def _collapsed(case: Case) -> Iterator[Case]:
    """Yield every dimension at 1, then one dimension alone a little larger.

    One dimension after the other would end where only the product matters:
    2 x 2 instead of 1 x 3.
    """
    for size in LEAST_SIZES:
        for axis in case.dims:
            made = case
            for other, n in case.dims.items():
                wanted = size if other == axis else 1
                made = kept(made, other, range(min(n, wanted)))
            yield made


def _runs(case: Case, axis: str) -> Iterator[Case]:
    """Yield one run of indices: at either end, or around what stands out."""
    n = case.dims[axis]
    places = _outstanding(case, axis)
    for size in _sizes_below(n):
        starts = [0, n - size, *(max(min(p, n - size), 0) for p in places)]
        for start in dict.fromkeys(starts):
            yield kept(case, axis, range(start, start + size))


def _delete_blocks(descent: Descent, axis: str) -> None:
    """Delete runs of indices anywhere, halving the run."""
    block = descent.best.dims[axis] // 2
    least = max(descent.best.dims[axis] // DELETIONS, 1)
    while block >= least:
        size = descent.best.dims[axis]

        def without(case: Case, run: range, size: int = size) -> Case | None:
            n = case.dims[axis]
            gone = size - n  # all of it lay before the run
            rest = [*range(run.start - gone), *range(run.stop - gone, n)]
            return kept(case, axis, rest) if rest else None

        starts = range(0, size, block)
        descent.take_each((range(i, min(i + block, size)) for i in starts), without)
        block //= 2


def _shrunk_together(case: Case, pair: tuple[str, str]) -> Iterator[Case]:
    """Yield two dimensions shrunk of which one is the other, or a multiple of it."""
    one, other = pair
    if one not in case.dims or other not in case.dims:
        return
    least, most = sorted((one, other), key=lambda axis: case.dims[axis])
    size = case.dims[least]
    if size < 2 or case.dims[most] % size:
        return
    factor = case.dims[most] // size
    for smaller in _sizes_below(size):
        both = kept(case, least, range(smaller))
        yield kept(both, most, range(factor * smaller))


def _with_fewer(case: Case) -> Iterator[Case]:
    """Yield an integer scalar lowered, with a dimension that it divides (groups)."""
    for name, value in case.scalars.items():
        if name == "dim" or isinstance(value, bool) or not isinstance(value, int):
            continue
        for fewer in dict.fromkeys((1, 2, value // 2, value - 1)):
            if not 0 < fewer < value:
                continue
            lowered = replace(case, scalars={**case.scalars, name: fewer})
            for axis, n in case.dims.items():
                if n and n % value == 0 and value % fewer == 0:
                    size = n // value * fewer
                    places = [p // size * size for p in _outstanding(case, axis)]
                    for start in dict.fromkeys((0, n - size, *places)):
                        yield kept(lowered, axis, range(start, start + size))
            yield lowered


def merge_dims(descent: Descent) -> None:
    """Make one dimension of two neighbours, as long as that fails alike."""

    def pairs(case: Case) -> Iterator[Case]:
        names = list(case.dims)
        for one, other in pairwise(names):
            if (made := merged(case, one, other)) is not None:
                yield made

    while descent.take_first(pairs(descent.best)):
        pass


def scan_sizes(descent: Descent) -> None:
    """Try every small size where a large one is left that is not next to a tile's."""
    for axis in sorted(descent.best.dims, key=lambda a: -descent.best.dims[a]):
        n = descent.best.dims[axis]
        if n > SCANNED_ABOVE and n not in TILES and n - 1 not in TILES:
            descent.take_first(
                kept(descent.best, axis, range(size))
                for size in range(LEAST_SIZES[-1] + 1, min(n, SCANNED + 1))
            )


def shrink_refilled(descent: Descent) -> None:
    """Shrink a dimension whose values need to be less simple at a smaller size.

    Few terms round only if they have many digits: where slices pass, slices of the
    values times a fraction are tried.
    """
    for axis in sorted(descent.best.dims, key=lambda a: -descent.best.dims[a]):
        descent.take_first(_refilled(descent.best, axis))


def _refilled(case: Case, axis: str) -> Iterator[Case]:
    n = case.dims[axis]
    places = _outstanding(case, axis)
    every = (with_digits(case, fraction, apart=apart) for fraction, apart in FULLER)
    fuller = [made for made in every if made is not None]
    for size in dict.fromkeys((*LEAST_SIZES, n // 2, n - 1)):
        if 0 < size < n:
            for start in dict.fromkeys(max(min(p, n - size), 0) for p in places):
                for made in fuller:
                    yield kept(made, axis, range(start, start + size))


def _outstanding(case: Case, axis: str) -> list[int]:
    """Return the indices along an axis that a failure often hangs on.

    Those of the first special value and of the largest magnitude.
    """
    found = []
    for spec in case.tensors.values():
        if axis not in spec.axes or spec.numel == 0:
            continue
        inner = math.prod(spec.shape[spec.axes.index(axis) + 1 :])
        size = spec.shape[spec.axes.index(axis)]
        values = numbers(spec)
        special = next((i for i, n in enumerate(values) if n - n != 0.0), None)
        finite = [abs(n) if n - n == 0.0 else 0.0 for n in values]
        for place in (special, finite.index(max(finite))):
            if place is not None:
                found.append(place // inner % size)
    return list(dict.fromkeys(found))


def _sizes_below(n: int) -> list[int]:
    """Return sizes to try in place of n, the most promising minimum first.

    Never 0: an empty input is another case, not a smaller one.
    """
    small = [1, 2, 3]
    remainders = [n % tile for tile in TILES if n > tile]
    beyond = [tile + 1 for tile in reversed(TILES)]
    tiles = list(reversed(TILES))
    halves = [n // 2, n - n // 4, n - 1]
    every = [*small, *sorted(remainders), *tiles, *beyond, *sorted(halves)]
    return list(dict.fromkeys(size for size in every if 0 < size < n))
