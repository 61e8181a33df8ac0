"""Which shape a failure needs that is gone at friendly ones: a tail, or another.

Each dimension is grown alone by repeating the values of the minimum: to a power of two,
which no tile cuts, and on by its own size, the rest that such a tile leaves.
"""

import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from kfuzz.core.recipe import Case
from kfuzz.core.verdict import Feature
from kfuzz.engine.confirm.outcome import Fate, FateOf
from kfuzz.engine.reduce.slices import kept

# Powers of two above this are beyond one tile of most kernels.
LARGE: Final = 256
# Multiples of these are whole tiles of most kernels.
TILES: Final = (16, 256, 1024)
# Elements that are worth a try.
MOST: Final = 1 << 16
# Shapes that are named at most.
NAMED: Final = 3


def shape_need(
    case: Case, fate_of: FateOf, deadline: float
) -> tuple[Feature | None, str]:
    """Return what of the shape is needed, and which shapes pass and which fail.

    TAIL if there is a dimension that, grown alone, passes at whole tiles and fails
    again with the same rest; BEYOND_TILE if all are powers of two, one of them large;
    None if it is neither: the shapes tell what no feature does.

    Args:
        case: the pinned minimum; it passes at friendly shapes.
        fate_of: what the kernel does on a case.
        deadline: `time.monotonic()` after which no shape is tried.
    """
    sizes = {axis: n for axis, n in case.dims.items() if n}
    passing: list[str] = []
    failing = [_shapes(case)]

    def look(grown: Mapping[str, int]) -> Fate:
        made = _sized(case, grown)
        large = sum(s.numel for s in made.tensors.values()) > MOST
        if large or time.monotonic() >= deadline:
            return Fate.UNKNOWN
        fate = fate_of(made)
        if fate is Fate.PASSES:
            passing.append(_shapes(made, grown))
        elif fate is Fate.FAILS:
            failing.append(_shapes(made, grown))
        return fate

    feature: Feature | None = None
    if max(sizes.values(), default=0) > LARGE and all(map(_is_power, sizes.values())):
        feature = Feature.BEYOND_TILE
    else:
        for axis, n in sizes.items():
            tiles = (w for w in _whole(n) if look({axis: w}) is Fate.PASSES)
            whole = next(tiles, None)
            if whole and look({axis: whole + n}) is Fate.FAILS:
                passing, failing = passing[-1:], [failing[0], failing[-1]]
                feature = Feature.TAIL
                break
    passes = _listed(passing or ["friendly shapes"])
    return feature, f"passes at {passes}, fails at {_listed(failing)}"


def _is_power(n: int) -> bool:
    return n & (n - 1) == 0


def _whole(n: int) -> tuple[int, ...]:
    """Return larger sizes that are whole tiles; none where this one is itself."""
    if n >= TILES[0] and _is_power(n):
        return ()
    return tuple(dict.fromkeys(max(tile, 1 << n.bit_length()) for tile in TILES))


def _sized(case: Case, sizes: Mapping[str, int]) -> Case:
    """Return the case with dimensions grown, contiguous, its values repeated.

    They end as the minimum's do: what is wrong of a tail is wrong at the end.
    """
    tensors = {n: replace(s, strides=None, offset=0) for n, s in case.tensors.items()}
    grown = replace(case, tensors=tensors)
    for axis, size in sizes.items():
        n = case.dims[axis]
        grown = kept(grown, axis, [(i - size) % n for i in range(size)])
    return grown


def _shapes(case: Case, axes: Collection[str] = ()) -> str:
    """Return the shapes of the arguments, or of those with certain axes: "x [2]"."""
    told = [(n, s) for n, s in case.tensors.items() if not axes or {*axes} & {*s.axes}]
    return ", ".join(f"{n} {list(s.shape)}" for n, s in told)


def _listed(shapes: list[str]) -> str:
    return " and at ".join(shapes[:NAMED])
