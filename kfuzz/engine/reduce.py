"""The reducer: from a pinned failing case to one that a person would call minimal.

Greedy passes over dimensions, rank, layout, dtype, scalars and values, each
candidate strictly simpler than the last failing case; a candidate is taken if it
shows the same symptom (kernel, kind, output, detail). Dimensions shrink by
slicing the explicit values, never by generating new ones.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from kfuzz.core.dtypes import (
    DTYPES,
    bits_to_number,
    number_to_bits,
    pack_bits,
    unpack_bits,
)
from kfuzz.core.finding import Reduction, case_key, short_hash
from kfuzz.core.recipe import Case, TensorSpec, contiguous_strides
from kfuzz.engine.simplify import complexity, numbers, simpler_values
from kfuzz.engine.slices import filled, kept, without_axis

# Most reductions need fewer than 300; a kernel that fails at random needs a stop.
MAX_EVALUATIONS: Final = 1500
# Tile sizes whose remainders are tried first .
TILES: Final = (4096, 2048, 1024, 512, 256, 128, 64, 32, 16)
# Above this many elements only whole blocks are simplified, not single values.
SINGLES: Final = 512
# Indices are deleted in this many runs at most: where neither end of a dimension
# can go, its size matters, and trying every index would only cost time.
DELETIONS: Final = 32
# The layout that destinations have in simple cases.
CONTIGUOUS: Final = "contiguous"
# The sizes that people call minimal, tried with all other dimensions 1.
LEAST_SIZES: Final = (1, 2, 3)

Fails = Callable[[Case], bool]
Admits = Callable[[Case], bool]


class _Spent(Exception):
    """The budget of a reduction is used up; its argument says which."""


@dataclass
class _Search:
    """State of one reduction: the best case so far and what was tried."""

    best: Case
    fails: Fails
    admits: Admits
    deadline: float
    evaluations: int = 0

    def __post_init__(self) -> None:
        # Digests: the recipe of a large pinned case is megabytes of text.
        self.tried = {short_hash(case_key(self.best))}

    def accept(self, candidate: Case) -> bool:
        """Take a candidate if it is admissible, new, and fails alike.

        Raises:
            _Spent: at the end of the budget.
        """
        if time.monotonic() >= self.deadline:
            raise _Spent("time")
        key = short_hash(case_key(candidate))
        if key in self.tried or not self.admits(candidate):
            return False
        self.tried.add(key)
        if self.evaluations >= MAX_EVALUATIONS:
            raise _Spent("evaluations")
        self.evaluations += 1
        if not self.fails(candidate):
            return False
        self.best = candidate
        return True


def reduce_case(
    case: Case, fails: Fails, admits: Admits, *, deadline: float
) -> tuple[Case, Reduction]:
    """Return the smallest failing case found, and how it was reached.

    Args:
        case: a pinned case that fails.
        fails: runs a case; whether it shows the same symptom.
        admits: whether a case lies in the kernel's domain.
        deadline: `time.monotonic()` at which to stop.
    """
    search = _Search(case, fails, admits, deadline)
    passes = (
        _drop_edge,
        _drop_layout,
        _fill_empty,
        _lower_indices,
        _shrink_dims,
        _drop_axes,
        _simplify_layout,
        _widen_dtype,
        _simplify_scalars,
        _simplify_values,
    )
    try:
        before = None
        while search.best is not before:
            before = search.best
            for step in passes:
                step(search)
    except _Spent as spent:
        return search.best, Reduction(search.evaluations, str(spent))
    return search.best, Reduction(search.evaluations, "minimal")


def _drop_edge(search: _Search) -> None:
    """Place the arguments away from pages that fault, if none is to blame."""
    if search.best.edge is not None:
        search.accept(replace(search.best, edge=None))


def _drop_layout(search: _Search) -> None:
    """Give contiguous destinations, if their layout is not to blame."""
    if search.best.layout not in (None, CONTIGUOUS):
        search.accept(replace(search.best, layout=CONTIGUOUS))


def _fill_empty(search: _Search) -> None:
    """Give an empty dimension one index of zeros: a failure rarely needs none."""
    for axis, n in search.best.dims.items():
        if n == 0:
            search.accept(filled(search.best, axis))


def _lower_indices(search: _Search) -> None:
    """Try the bound for indices beyond it: what it does, it does at every size."""
    for name, spec in search.best.tensors.items():
        if spec.below:
            bound = search.best.dims[spec.below]
            patterns = [
                number_to_bits(bound, spec.dtype)
                if bits_to_number(bits, spec.dtype) > bound
                else bits
                for bits in _patterns(search.best, name)
            ]
            search.accept(_with_numbers(search.best, name, patterns))


def _shrink_dims(search: _Search) -> None:
    """Shrink every named dimension, the largest first."""
    _collapse(search)
    for axis in sorted(search.best.dims, key=lambda a: -search.best.dims[a]):
        while _cut(search, axis):
            pass
        _delete_blocks(search, axis)
    names = list(search.best.dims)
    for i, one in enumerate(names):
        for other in names[i + 1 :]:
            _shrink_together(search, one, other)


def _collapse(search: _Search) -> None:
    """Try every dimension at 1, then one dimension alone a little larger.

    One dimension after the other would end where only the product is to blame:
    2 x 2 instead of 1 x 3.
    """
    for size in LEAST_SIZES:
        for axis in search.best.dims:
            case = search.best
            for other, n in case.dims.items():
                wanted = size if other == axis else 1
                case = kept(case, other, range(min(n, wanted)))
            if search.accept(case):
                return


def _cut(search: _Search, axis: str) -> bool:
    """Keep one run of indices: at either end, or around what stands out."""
    n = search.best.dims[axis]
    places = _outstanding(search.best, axis)
    for size in _sizes_below(n):
        starts = [0, n - size, *(max(min(p, n - size), 0) for p in places)]
        for start in dict.fromkeys(starts):
            if search.accept(kept(search.best, axis, range(start, start + size))):
                return True
    return False


def _delete_blocks(search: _Search, axis: str) -> None:
    """Delete runs of indices anywhere, halving the run."""
    block = search.best.dims[axis] // 2
    least = max(search.best.dims[axis] // DELETIONS, 1)
    while block >= least:
        start = 0
        while start < search.best.dims[axis]:
            n = search.best.dims[axis]
            rest = [*range(start), *range(min(start + block, n), n)]
            if n - len(rest) == 0 or not search.accept(kept(search.best, axis, rest)):
                start += block
        block //= 2


def _shrink_together(search: _Search, one: str, other: str) -> None:
    """Shrink two dimensions that must stay equal (a square shape)."""
    sizes = search.best.dims
    if one not in sizes or other not in sizes or sizes[one] != sizes[other]:
        return
    for size in _sizes_below(sizes[one]):
        both = kept(search.best, one, range(size))
        if search.accept(kept(both, other, range(size))):
            return


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


def _drop_axes(search: _Search) -> None:
    """Remove dimensions that hold nothing, `dim` following."""
    for axis in list(search.best.dims):
        rest = [n for a, n in search.best.dims.items() if a != axis]
        size = search.best.dims.get(axis)
        if size == 1 or (size == 0 and 0 in rest):
            candidate = without_axis(search.best, axis)
            if candidate is not None:
                search.accept(candidate)


def _simplify_layout(search: _Search) -> None:
    """Make tensors contiguous, unaligned offsets 0, steps the least possible."""
    for name in search.best.tensors:
        for spec in _simpler_layouts(search.best.tensors[name]):
            if search.accept(search.best.with_tensor(name, spec)):
                break


def _simpler_layouts(spec: TensorSpec) -> Iterator[TensorSpec]:
    if spec.strides is not None or spec.offset:
        yield replace(spec, strides=None, offset=0)
    if spec.offset:
        yield replace(spec, offset=0)
        if spec.offset > 1:
            yield replace(spec, offset=1)
    if spec.strides is not None:
        yield replace(spec, strides=None)
        if not spec.is_contiguous and len(spec.shape) >= 2:
            flipped = tuple(reversed(contiguous_strides(tuple(reversed(spec.shape)))))
            if flipped != spec.strides:
                yield replace(spec, strides=flipped)


def _widen_dtype(search: _Search) -> None:
    """Try float32 for the narrower floats: the values stay exactly the same.

    Those of one dtype together: others may have theirs from the operator.
    """
    dtypes = {s.dtype for s in search.best.tensors.values()}
    pairs = [(d, wider) for wider in ("float32", "float16") for d in sorted(dtypes)]
    for dtype, wider in pairs:
        floats = {
            name: spec
            for name, spec in search.best.tensors.items()
            if spec.dtype == dtype and DTYPES[dtype].kind == "float"
        }
        if not floats or DTYPES[dtype].itemsize >= DTYPES[wider].itemsize:
            continue
        tensors = dict(search.best.tensors)
        for name, spec in floats.items():
            cast = _cast(spec, wider)
            if cast is None:
                break
            tensors[name] = cast
        else:
            search.accept(replace(search.best, tensors=tensors))


def _cast(spec: TensorSpec, dtype: str) -> TensorSpec | None:
    assert spec.values is not None
    numbers = [
        bits_to_number(p, spec.dtype) for p in unpack_bits(spec.values, spec.dtype)
    ]
    try:
        patterns = [number_to_bits(n, dtype) for n in numbers]
    except ValueError:
        return None
    return replace(spec, dtype=dtype, values=pack_bits(patterns, dtype))


def _simplify_scalars(search: _Search) -> None:
    """Count the reduced dimension from the end."""
    scalars = search.best.scalars
    dim = scalars.get("dim")
    if isinstance(dim, int) and dim >= 0:
        rank = len(search.best.lead.shape)
        search.accept(replace(search.best, scalars={**scalars, "dim": dim - rank}))


def _simplify_values(search: _Search) -> None:
    """Simplify the values of each tensor, whole blocks before single ones."""
    for name in search.best.tensors:
        _uniform(search, name)
        _drop_specials(search, name)
        _zero_blocks(search, name)
        if search.best.tensors[name].numel <= SINGLES:
            _simplify_singles(search, name)


def _with_numbers(case: Case, name: str, patterns: list[int]) -> Case:
    spec = case.tensors[name]
    made = replace(spec, values=pack_bits(patterns, spec.dtype))
    return case.with_tensor(name, made)


def _patterns(case: Case, name: str) -> list[int]:
    spec = case.tensors[name]
    assert spec.values is not None
    return unpack_bits(spec.values, spec.dtype)


def _uniform(search: _Search, name: str) -> None:
    """Try all zeros, then all ones and all minus ones."""
    spec = search.best.tensors[name]
    hardest = max(map(complexity, numbers(spec)), default=0.0)
    for value in (0.0, 1.0, -1.0):
        unsigned = DTYPES[spec.dtype].kind in ("bool", "uint")
        if hardest > complexity(value) and not (value < 0 and unsigned):
            patterns = [number_to_bits(value, spec.dtype)] * spec.numel
            if search.accept(_with_numbers(search.best, name, patterns)):
                return


def _drop_specials(search: _Search, name: str) -> None:
    """Replace NaNs and infinities, all of them, then one by one."""
    for value in (0.0, 1.0):
        patterns = _patterns(search.best, name)
        spec = search.best.tensors[name]
        plain = number_to_bits(value, spec.dtype)
        special = [i for i, n in enumerate(numbers(spec)) if n - n != 0.0]
        if not special:
            return
        for i in special:
            patterns[i] = plain
        search.accept(_with_numbers(search.best, name, patterns))
        for i in special[:SINGLES]:
            patterns = _patterns(search.best, name)
            if patterns[i] != plain:
                patterns[i] = plain
                search.accept(_with_numbers(search.best, name, patterns))


def _zero_blocks(search: _Search, name: str) -> None:
    """Zero runs of elements, halving the run: the non-zero set shrinks."""
    count = search.best.tensors[name].numel
    block = count // 2
    while block >= max(count // SINGLES, 1):
        for start in range(0, count, block):
            patterns = _patterns(search.best, name)
            run = patterns[start : start + block]
            if any(run):
                patterns[start : start + block] = [0] * len(run)
                search.accept(_with_numbers(search.best, name, patterns))
        block //= 2


def _simplify_singles(search: _Search, name: str) -> None:
    """Replace single values by simpler ones, equal values together first."""
    groups: dict[int, list[int]] = {}
    for i, pattern in enumerate(_patterns(search.best, name)):
        groups.setdefault(pattern, []).append(i)
    for pattern, places in groups.items():
        _replace_all(search, name, pattern, places)
        for i in places if len(places) > 1 else ():
            _replace_all(search, name, _patterns(search.best, name)[i], [i])


def _replace_all(search: _Search, name: str, pattern: int, places: list[int]) -> None:
    spec = search.best.tensors[name]
    value = float(bits_to_number(pattern, spec.dtype))
    for simpler in simpler_values(value, spec.dtype):
        patterns = _patterns(search.best, name)
        for i in places:
            patterns[i] = simpler
        if search.accept(_with_numbers(search.best, name, patterns)):
            return
