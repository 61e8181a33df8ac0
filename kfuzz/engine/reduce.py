"""The state of one reduction: the smallest failing case so far, and what was tried."""

import hashlib
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import combinations, pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kfuzz.core.declaration import INT32_ELEMENTS
from kfuzz.core.dtypes import DTYPES, bits_to_number, canonical_nan, number_to_bits
from kfuzz.core.finding import Reduction, case_key
from kfuzz.core.recipe import CONTIGUOUS, Case, TensorSpec, contiguous_strides
from kfuzz.core.value_families import TILES

# Most reductions need fewer than 200; a kernel that fails at random needs a stop.
MAX_EVALUATIONS: Final = 1500
Accepts = Callable[[Case], bool]
Fitted = Callable[[Case], Case]
_First = Callable[[Case, str, int], int]

Fails = Callable[[Case], bool]
"""Whether a case shows the symptom."""


class Spent(Exception):
    """The budget of a reduction is used up; its argument says which."""


class Descent:
    """Goes from a failing case to smaller ones.

    Every method raises `Spent` at the end of the budget.

    Attributes:
        best: the smallest failing case so far.
        evaluations: candidates judged.
    """

    def __init__(
        self,
        case: Case,
        fails: Fails,
        accepts: Accepts,
        deadline: float,
        fitted: Fitted = lambda case: case,
    ) -> None:
        self.best = case
        self.evaluations = 0
        self._fails = fails
        self._accepts = accepts
        self._deadline = deadline
        self._fitted = fitted
        # Digests: the recipe of a large pinned case is megabytes of text.
        self._tried = {_digest(case)}
        # Where a bisection ended.
        self._ended: dict[str, int] = {}

    def take(self, candidate: Case | None) -> bool:
        """Take a candidate, if there is one, if it is allowed, new, and fails alike."""
        if candidate is None:
            return False
        case = self._fitted(candidate)
        digest = _digest(case)
        if digest in self._tried or not self._accepts(case):
            return False
        if time.monotonic() >= self._deadline:
            raise Spent("time")
        if self.evaluations >= MAX_EVALUATIONS:
            raise Spent("evaluations")
        self._tried.add(digest)
        self.evaluations += 1
        if not self._fails(case):
            return False
        self.best = case
        return True

    def take_first(self, candidates: Iterable[Case | None]) -> bool:
        """Take the first candidate that is allowed, new, and fails alike."""
        return any(map(self.take, candidates))

    def bisect(
        self, what: str, most: int, offered: Callable[[Case, int], Iterable[Case]]
    ) -> None:
        """Take a case of the least number that fails alike while the next lower passes.

        The number beyond which a kernel is wrong is found in a logarithm of runs. Small
        ones come first: they take less time. What ended there before is not sought
        again if the next lower one still passes.

        Args:
            what: what the number is of.
            most: that of the smallest failing case so far.
            offered: returns cases of a smaller number.
        """
        low, high = 0, most
        if self._ended.get(what) == most and most > 1:
            high -= self.take_first(offered(self.best, most - 1))
            low = 0 if high < most else most
        while high - low > 1:
            middle = (low + high) // 2 if low else 1
            if self.take_first(offered(self.best, middle)):
                high = middle
            else:
                low = middle
        self._ended[what] = high


def _digest(case: Case) -> bytes:
    values = [spec.values or b"" for spec in case.tensors.values()]
    bare = [(n, replace(s, values=None)) for n, s in case.tensors.items()]
    text = case_key(replace(case, tensors=dict(bare)))
    return hashlib.sha256(b"".join([text.encode(), *values])).digest()


# Passes of the reducer over values: whole tensors, runs, then single elements.
#
# Which values are simpler than others stands at the end.

# Above this many elements that are not 0 only whole blocks are simplified.
SINGLES: Final = 128
# Blocks of elements of which each is needed, after which none is halved any more.
NEEDED_BLOCKS: Final = 32


Places = NDArray[np.intp]
"""Indices: of elements in C order, or along a dimension, ascending."""


def simplify_values(descent: Descent) -> None:
    """Simplify the values of each tensor, whole blocks before single ones."""
    for name, spec in descent.best.tensors.items():
        descent.take_first(_uniform(descent.best, name))
        for value in (0.0, 1.0):
            special = ~np.isfinite(numbers(descent.best.tensors[name]))
            bits = number_to_bits(value, spec.dtype)
            _set_blocks(descent, name, np.flatnonzero(special), bits)
        _set_blocks(descent, name, _not_zero(descent.best, name), 0)
        if len(_not_zero(descent.best, name)) <= SINGLES:
            _simplify_singles(descent, name)


def _not_zero(case: Case, name: str) -> Places:
    return np.flatnonzero(patterns(case.tensors[name]))


def _set_blocks(descent: Descent, name: str, places: Places, bits: int) -> None:
    """Set elements to one value: all, halves of what is needed otherwise, and so on.

    Delta debugging: where one element is needed it takes a logarithm of runs.
    """
    blocks = [places]
    while blocks := [block for block in blocks if len(block)]:
        needed = [
            b for b in blocks if not descent.take(_set(descent.best, name, b, bits))
        ]
        if len(needed) == len(blocks) >= NEEDED_BLOCKS:
            return
        blocks = [
            half
            for block in needed
            if len(block) > 1
            for half in (block[: len(block) // 2], block[len(block) // 2 :])
        ]


def _set(case: Case, name: str, places: Places | slice, bits: int) -> Case:
    """Return the case with one value, given by its bits, at some places of a tensor."""
    spec = case.tensors[name]
    made = patterns(spec).copy()
    made[places] = bits
    return case.with_tensor(name, replace(spec, values=made.tobytes()))


def patterns(spec: TensorSpec) -> NDArray[Any]:
    """Return the bits of the pinned elements of a tensor, in C order; read-only."""
    assert spec.values is not None
    return np.frombuffer(spec.values, _words(spec.dtype))


def _words(dtype: str) -> str:
    return f"<u{DTYPES[dtype].itemsize}"


def _uniform(case: Case, name: str) -> Iterator[Case]:
    """Yield all zeros, then all ones and all minus ones."""
    spec = case.tensors[name]
    for value in (0.0, 1.0, -1.0):
        unsigned = DTYPES[spec.dtype].kind in ("bool", "uint")
        values = np.unique(numbers(spec)).tolist()
        simpler = any(complexity(n) > complexity(value) for n in values)
        if simpler and not (value < 0 and unsigned):
            yield _set(case, name, slice(None), number_to_bits(value, spec.dtype))


def _simplify_singles(descent: Descent, name: str) -> None:
    """Replace single values by simpler ones, equal values together first."""
    every = patterns(descent.best.tensors[name])
    items: list[Places] = []
    for pattern in dict.fromkeys(every[np.flatnonzero(every)].tolist()):
        places = np.flatnonzero(every == pattern)
        items.append(places)
        items += np.split(places, len(places)) if len(places) > 1 else []
    for places in items:
        descent.take_first(_simpler(descent.best, name, places))


def _simpler(case: Case, name: str, places: Places) -> Iterator[Case]:
    """Yield the case with equal elements replaced by a simpler value."""
    spec = case.tensors[name]
    value = float(bits_to_number(int(patterns(spec)[places[0]]), spec.dtype))
    for simpler in simpler_values(value, spec.dtype):
        yield _set(case, name, places, simpler)


# What numpy has as floats of its own.
_NATIVE: Final = {"float64": "<f8", "float32": "<f4", "float16": "<f2"}


def numbers(spec: TensorSpec) -> NDArray[np.float64]:
    """Return the pinned values of a tensor as floats, in C order."""
    every = patterns(spec)
    if native := _NATIVE.get(spec.dtype):
        with np.errstate(invalid="ignore"):  # NaN that signals does not any more
            return every.view(native).astype(np.float64) * 1.0
    return _mapped(every, lambda bits: float(bits_to_number(bits, spec.dtype)), "<f8")


def _mapped(every: NDArray[Any], of: Callable[[int], Any], dtype: str) -> NDArray[Any]:
    """Return what a function makes of each of some bits, asked once for equal ones."""
    distinct, where = np.unique(every, return_inverse=True)
    return np.array([of(bits) for bits in distinct.tolist()], dtype)[where]


Change = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""What becomes of values."""


def recast(
    spec: TensorSpec, dtype: str, change: Change = lambda n: n
) -> TensorSpec | None:
    """Return a tensor with its values changed, in a dtype; None if it holds one not.

    Args:
        spec: pinned floats.
        dtype: of the result.
        change: what becomes of the values.
    """
    wanted = change(numbers(spec))
    if native := _NATIVE.get(dtype):
        with np.errstate(over="ignore", under="ignore"):
            made = wanted.astype(native)
        if not np.array_equal(made.astype(np.float64), wanted, equal_nan=True):
            return None
        bits = made.view(_words(dtype))
        bits[np.isnan(wanted)] = canonical_nan(dtype)
    else:
        try:
            bits = _mapped(
                wanted.view("<u8"),
                lambda n: number_to_bits(bits_to_number(n, "float64"), dtype),
                _words(dtype),
            )
        except (ValueError, OverflowError):
            return None
    return replace(spec, dtype=dtype, values=bits.tobytes())


def simpler_values(value: float, dtype: str) -> Iterator[int]:
    """Yield bits of simpler values than the given one, the simplest first."""
    candidates = [0.0, 1.0, -1.0, 2.0, -2.0, 3.0]
    if value - value == 0.0:
        magnitude = abs(value)
        sign = -1.0 if value < 0 else 1.0
        candidates.append(magnitude)
        if magnitude >= 1:
            candidates.append(sign * float(int(magnitude)))
        for power in _nearby_powers(magnitude):
            candidates += [sign * power, sign * (power + 1)]
    else:
        candidates += [float("inf"), float("nan")]
    seen = set()
    for candidate in candidates:
        if complexity(candidate) >= complexity(value):
            continue
        try:
            bits = number_to_bits(candidate, dtype)
        except (ValueError, OverflowError):
            continue
        if bits not in seen:
            seen.add(bits)
            yield bits


def _nearby_powers(magnitude: float) -> list[float]:
    if not 0 < magnitude < 2.0**1000:
        return []
    power = math.ldexp(0.5, math.frexp(magnitude)[1])
    # Small powers first: 2^4, 2^8 …, up to the value's own.
    ladder = [2.0**k for k in (1, 2, 4, 8, 12, 16, 24) if 2.0**k < power]
    return [*ladder, power]


@lru_cache(maxsize=1 << 12)
def complexity(value: float) -> float:
    """Rank values: 0, 1, -1, small integers, powers of two, the rest, specials."""
    if value != value:
        return 1e9
    if value in (float("inf"), float("-inf")):
        return 1e8 + (value < 0)
    fixed = {0.0: 0.0, 1.0: 1.0, -1.0: 2.0, 2.0: 3.0, -2.0: 4.0, 3.0: 5.0}
    if value in fixed:
        return fixed[value]
    negative = 0.5 if value < 0 else 0.0
    mantissa, exponent = _odd_part(abs(value))
    return 10 + 100 * (mantissa.bit_length() - 1) + abs(exponent) + negative


def _odd_part(value: float) -> tuple[int, int]:
    numerator, denominator = value.as_integer_ratio()
    zeros = (numerator & -numerator).bit_length() - 1
    return numerator >> zeros, 1 + zeros - denominator.bit_length()


# Cases with dimensions cut: fewer indices, an empty one filled, one removed.
#
# Pinned values are sliced, never generated anew.


def filled(case: Case, axis: str) -> Case:
    """Return the case with an empty dimension grown to size 1, values 0."""
    tensors = {}
    for name, spec in case.tensors.items():
        if axis in spec.axes:
            at = spec.axes.index(axis)
            shape = (*spec.shape[:at], 1, *spec.shape[at + 1 :])
            data = bytes(math.prod(shape) * DTYPES[spec.dtype].itemsize)
            spec = replace(spec, shape=shape, values=data, strides=None)
        tensors[name] = spec
    return replace(case, tensors=tensors)


def kept(case: Case, axis: str, indices: range | Places) -> Case:
    """Return the case with only some indices of one named dimension.

    Tensors that hold indices into it are renumbered, see `renumbered`.

    Args:
        case: pinned.
        axis: the dimension.
        indices: a range of step 1, or any.
    """
    tensors = {}
    for name, spec in case.tensors.items():
        if spec.below == axis:
            spec = renumbered(spec, case.dims[axis], np.asarray(indices))
        if axis not in spec.axes:
            tensors[name] = spec
            continue
        at = spec.axes.index(axis)
        shape = (*spec.shape[:at], len(indices), *spec.shape[at + 1 :])
        strides = None
        if spec.strides is not None and not spec.is_contiguous:
            strides = spec.strides
        which: slice | Places = (
            slice(indices.start, indices.stop)  # copied at once
            if isinstance(indices, range) else indices
        )  # fmt: skip
        values = patterns(spec).reshape(spec.shape)[(slice(None),) * at + (which,)]
        tensors[name] = replace(
            spec, shape=shape, values=values.tobytes(), strides=strides
        )
    return replace(case, tensors=tensors)


def renumbered(spec: TensorSpec, bound: int, kept: Places) -> TensorSpec:
    """Return indices below `bound` as what they are among those kept.

    One that is kept becomes its place there, another one is taken modulo their
    number. One out of bounds stays so: the bound itself and the next number keep
    their distance to it, all others their value.

    Args:
        spec: pinned indices.
        bound: how many there were.
        kept: which of them are left, ascending; at least one.
    """
    places = {old: new for new, old in enumerate(kept.tolist())}
    size = len(kept)

    def moved(bits: int) -> int:
        value = int(bits_to_number(bits, spec.dtype))
        if 0 <= value < bound:
            value = places.get(value, value % max(size, 1))
        elif bound <= value <= bound + 1:
            value += size - bound
        return number_to_bits(value, spec.dtype)

    data = _mapped(patterns(spec), moved, _words(spec.dtype))
    return replace(spec, values=data.tobytes())


def without_axis(case: Case, axis: str) -> Case | None:
    """Return the case without a dimension of size 0 or 1; None if `dim` names it."""
    scalars = dict(case.scalars)
    first = case.lead
    dim = scalars.get("dim")
    if dim is not None and axis in first.axes:
        at, rank = first.axes.index(axis), len(first.axes)
        dim = int(dim)
        positive = dim % rank
        if positive == at:
            return None
        moved = positive - (at < positive)
        scalars["dim"] = moved if dim >= 0 else moved - (rank - 1)
    tensors = {}
    for name, spec in case.tensors.items():
        if axis in spec.axes:
            at = spec.axes.index(axis)
            strides = spec.strides
            if strides is not None:
                strides = (*strides[:at], *strides[at + 1 :])
            spec = replace(
                spec,
                shape=(*spec.shape[:at], *spec.shape[at + 1 :]),
                axes=(*spec.axes[:at], *spec.axes[at + 1 :]),
                strides=strides,
            )
        tensors[name] = spec
    return replace(case, tensors=tensors, scalars=scalars)


def merged(case: Case, one: str, other: str) -> Case | None:
    """Return the case with two neighbouring dimensions as one; None where they differ.

    They are one dimension where every tensor that has either has both, side by side and
    without a step between them, and lie before one that is counted from the end.
    """
    dim, axes = case.scalars.get("dim"), case.lead.axes
    if isinstance(dim, int) and (dim >= 0 or other not in axes[: len(axes) + dim]):
        return None
    tensors = {}
    for name, spec in case.tensors.items():
        if spec.below in (one, other):
            return None
        if one in spec.axes or other in spec.axes:
            at = spec.axes.index(one) if one in spec.axes else len(spec.axes)
            if spec.axes[at + 1 : at + 2] != (other,) or not spec.is_contiguous:
                return None
            size = spec.shape[at] * spec.shape[at + 1]
            spec = replace(
                spec,
                shape=(*spec.shape[:at], size, *spec.shape[at + 2 :]),
                axes=(*spec.axes[: at + 1], *spec.axes[at + 2 :]),
                strides=None,
            )
        tensors[name] = spec
    return replace(case, tensors=tensors)


# Passes of the reducer over sizes: dimensions shrink by slicing what is pinned.

# Runs of indices of which each is needed, after which no shorter one is deleted: where
# no run can go, the size matters, and trying every index would only cost time.
NEEDED_RUNS: Final = 4
# The sizes that people call minimal, tried with all other dimensions 1.
LEAST_SIZES: Final = (1, 2, 3)


def shrink_dims(descent: Descent) -> None:
    """Shrink every named dimension by itself, the one that is reduced last."""
    descent.take_first(_collapsed(descent.best))
    for name in descent.best.scalars:
        _lower(descent, name)
    dim, axes = descent.best.scalars.get("dim"), descent.best.lead.axes
    last = axes[dim] if isinstance(dim, int) and axes else None
    for axis in sorted(descent.best.dims, key=lambda axis: axis == last):
        before = None
        while descent.best is not before:
            before = descent.best
            _shorten(descent, axis)
            sizes = _sizes_below(descent.best.dims[axis])
            descent.take_first(kept(descent.best, axis, range(n)) for n in sizes)
        _delete_blocks(descent, axis)
    for one, other in combinations(descent.best.dims, 2):
        _shorten_both(descent, one, other)


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


def _shorten(descent: Descent, axis: str) -> None:
    """Cut a dimension by bisection, at its start, up to what stands out, at its end."""
    n = descent.best.dims[axis]
    # Operators may allow multiples of a block only: nothing else is run.
    for step in (1 << k for k in range(n.bit_length() - 1)):
        tried = descent.evaluations
        for first in _FIRST:

            def cut(
                case: Case, count: int, step: int = step, first: _First = first
            ) -> Iterator[Case]:
                start = first(case, axis, count * step)
                yield kept(case, axis, range(start, start + count * step))

            size = descent.best.dims[axis]
            descent.bisect(axis, 0 if size % step else size // step, cut)
        if descent.evaluations > tried:
            return


def _up_to_outstanding(case: Case, axis: str, wanted: int) -> int:
    """Return where so many indices begin of which the last one stands out."""
    last = next(iter(_outstanding(case, axis)), 0)
    return max(last + 1 - wanted, 0)


# At which of its indices a dimension that is cut begins.
# Looking at the values of millions of elements takes as long as many runs.
_FIRST: Final[tuple[_First, ...]] = (
    lambda case, axis, wanted: 0,
    _up_to_outstanding,
    lambda case, axis, wanted: case.dims[axis] - wanted,
)


def _delete_blocks(descent: Descent, axis: str) -> None:
    """Delete runs of indices anywhere, halving the run while any of them can go."""
    block = descent.best.dims[axis] // 2
    while block:
        size = descent.best.dims[axis]
        starts = range(0, size, block)
        for start in reversed(starts):  # what lies before keeps its place
            n = descent.best.dims[axis]
            rest = np.delete(np.arange(n), slice(start, start + block))
            descent.take(kept(descent.best, axis, rest) if len(rest) else None)
        if descent.best.dims[axis] == size and len(starts) >= NEEDED_RUNS:
            return
        block //= 2


def _shorten_both(descent: Descent, one: str, other: str) -> None:
    """Shorten two dimensions of which one is the other, or a multiple of it."""
    dims = descent.best.dims
    least, most = sorted((one, other), key=lambda axis: dims[axis])
    if not dims[least] or dims[most] % dims[least]:
        return
    factor = dims[most] // dims[least]

    def both(case: Case, size: int) -> Iterator[Case]:
        yield kept(kept(case, least, range(size)), most, range(factor * size))

    descent.bisect(least, dims[least], both)


def _lower(descent: Descent, name: str) -> None:
    """Lower an integer scalar, with a dimension that it divides (groups)."""
    value = descent.best.scalars[name]
    if name == "dim" or isinstance(value, bool) or not isinstance(value, int):
        return
    halves = (value >> k for k in range(value.bit_length() - 1, 0, -1))
    descent.take_first(c for n in halves for c in _with_fewer(descent.best, name, n))
    lowered = descent.best.scalars[name]
    assert isinstance(lowered, int)
    descent.bisect(name, lowered, lambda case, n: _with_fewer(case, name, n))


def _with_fewer(case: Case, name: str, fewer: int) -> Iterator[Case]:
    """Yield the case with a scalar lowered, and a dimension that it divides."""
    value = case.scalars[name]
    assert isinstance(value, int)
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
    while descent.take_first(
        merged(descent.best, one, other)
        for one, other in pairwise(list(descent.best.dims))
    ):
        pass


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
        finite = np.isfinite(values)
        special = np.flatnonzero(~finite)[:1]
        greatest = np.argmax(np.where(finite, np.abs(values), 0.0))
        found += [int(i) // inner % size for i in (*special, greatest)]
    return list(dict.fromkeys(found))


def _sizes_below(n: int) -> list[int]:
    """Return sizes at which a kernel may fail although it passes at larger ones.

    Never 0: an empty input is another case, not a smaller one.
    """
    remainders = sorted(n % tile for tile in TILES if n > tile)
    every = [*LEAST_SIZES, *remainders, *TILES, *(tile + 1 for tile in TILES), n // 2]
    return list(dict.fromkeys(size for size in every if 0 < size < n))


# The reducer: from a pinned failing case to one that a person would call minimal.
#
# Greedy passes over dimensions, rank, layout, dtype, scalars and values, each
# candidate strictly simpler than the last failing case; a candidate is taken if it
# shows the same symptom (kernel, kind, output, detail). Dimensions shrink by
# slicing the explicit values, never by generating new ones.

# Elements between rows of a layout that is told to be padded: the fewest, and as many
# as keep 16-bit rows aligned.
_GAPS: Final = (0, 1, 8)

# The layout that destinations have in simple cases.


def reduce_case(
    case: Case,
    fails: Fails,
    accepts: Accepts,
    *,
    deadline: float,
    fitted: Fitted = lambda case: case,
) -> tuple[Case, Reduction]:
    """Return the smallest failing case found, and how it was reached.

    Args:
        case: a pinned case that fails.
        fails: whether a case shows the same symptom.
        accepts: whether a case lies in the kernel's domain.
        deadline: `time.monotonic()` at which to stop.
        fitted: puts the values of a candidate back into their domains: offsets follow
            the size that they cut.
    """
    descent = Descent(case, fails, accepts, deadline, fitted)
    passes = (
        _drop_placement, _fill_empty, _lower_indices, shrink_dims, _drop_axes,
        _simplify_layout, merge_dims, _widen_dtype, _simplify_scalars, simplify_values,
    )  # fmt: skip
    try:
        before = None
        while descent.best is not before:
            before = descent.best
            for step in passes:
                step(descent)
    except Spent as spent:
        return descent.best, Reduction(descent.evaluations, str(spent))
    return descent.best, Reduction(descent.evaluations, "minimal")


def _drop_placement(descent: Descent) -> None:
    """Place nothing beside pages that fault; give contiguous destinations."""
    descent.take(replace(descent.best, edge=None))
    if descent.best.layout is not None:
        descent.take(replace(descent.best, layout=CONTIGUOUS))


def _fill_empty(descent: Descent) -> None:
    """Give an empty dimension one index of zeros: a failure rarely needs none."""
    for axis, n in descent.best.dims.items():
        if n == 0:
            descent.take(filled(descent.best, axis))


def _lower_indices(descent: Descent) -> None:
    """Try the bound for indices beyond it: what it does, it does at every size."""
    for name, spec in descent.best.tensors.items():
        if spec.below:
            bound = descent.best.bound(spec)
            above = np.flatnonzero(numbers(spec) > bound)
            bits = number_to_bits(bound, spec.dtype)
            descent.take(_set(descent.best, name, above, bits))


def _drop_axes(descent: Descent) -> None:
    """Remove dimensions that hold nothing, `dim` following."""
    for axis in list(descent.best.dims):
        sizes = dict(descent.best.dims)
        size = sizes.pop(axis)
        if size == 1 or (size == 0 and 0 in sizes.values()):
            descent.take(without_axis(descent.best, axis))


def _simplify_layout(descent: Descent) -> None:
    """Make tensors contiguous, unaligned offsets 0, steps the least possible."""
    for name, spec in descent.best.tensors.items():
        layouts = _simpler_layouts(spec)
        descent.take_first(descent.best.with_tensor(name, made) for made in layouts)


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
        for strides in _closer_strides(spec):
            yield replace(spec, strides=strides)


def nearer(case: Case) -> Case:
    """Return the case with closer strides where elements lie 2^31 and more apart."""
    far = (item for item in case.tensors.items() if item[1].span > INT32_ELEMENTS)
    for name, spec in far:
        strides = next(_closer_strides(spec), None)
        case = case.with_tensor(name, replace(spec, strides=strides))
    return case


def _closer_strides(spec: TensorSpec) -> Iterator[tuple[int, ...]]:
    """Yield strides in the same order of axes with less between the elements.

    Of all dimensions, then of one; without gaps where only the order matters, else
    with few elements: gigabytes between them would suggest that offsets overflow.
    """
    rank, far = len(spec.shape), sum(spec.element_strides)
    tried = {contiguous_strides(spec.shape)}
    for axes in (range(rank), *([axis] for axis in range(rank))):
        for gap in _GAPS:
            strides = _with_gaps(spec, axes, gap)
            if strides not in tried and sum(strides) < far:
                tried.add(strides)
                yield strides


def _with_gaps(spec: TensorSpec, axes: Collection[int], gap: int) -> tuple[int, ...]:
    """Return the strides with those of some axes the least that leave the gap."""
    strides = list(spec.element_strides)
    needed = 1
    for axis in sorted(range(len(strides)), key=lambda a: (strides[a], -a)):
        if axis in axes and strides[axis] > needed:
            strides[axis] = needed + gap
        needed = max(needed, strides[axis] * max(spec.shape[axis], 1))
    return tuple(strides)


def _widen_dtype(descent: Descent) -> None:
    """Try float32 for the narrower floats: the values stay exactly the same.

    Those of one dtype together: others may have theirs from the operator.
    """
    dtypes = {s.dtype for s in descent.best.tensors.values()}
    for wider in ("float32", "float16"):
        for dtype in sorted(dtypes):
            descent.take(_widened(descent.best, dtype, wider))


def _widened(case: Case, dtype: str, wider: str) -> Case | None:
    """Return a case with a wider dtype in place of one, if that holds the values."""
    if DTYPES[dtype].kind != "float":
        return None
    if DTYPES[dtype].itemsize >= DTYPES[wider].itemsize:
        return None
    tensors = dict(case.tensors)
    for name, spec in case.tensors.items():
        if spec.dtype == dtype:
            cast = recast(spec, wider)
            if cast is None:
                return None
            tensors[name] = cast
    return replace(case, tensors=tensors)


def _simplify_scalars(descent: Descent) -> None:
    """Count the reduced dimension from the end."""
    scalars = descent.best.scalars
    dim = scalars.get("dim")
    if isinstance(dim, int) and dim >= 0:
        rank = len(descent.best.lead.shape)
        descent.take(replace(descent.best, scalars={**scalars, "dim": dim - rank}))
