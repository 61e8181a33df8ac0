"""The reducer: from a pinned failing case to one that a person would call minimal.

Greedy passes over dimensions, rank, layout, dtype, scalars and values, each
candidate strictly simpler than the last failing case; a candidate is taken if it
shows the same symptom (kernel, kind, output, detail). Dimensions shrink by
slicing the explicit values, never by generating new ones; where that ends, values may
get more digits for a size less.
"""

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Final

from kfuzz.core.case_surroundings import CONTIGUOUS
from kfuzz.core.dtypes import (
    DTYPES,
    bits_to_number,
    number_to_bits,
    pack_bits,
    unpack_bits,
)
from kfuzz.core.finding import Reduction
from kfuzz.core.recipe import Case, TensorSpec, contiguous_strides
from kfuzz.engine.reduce.descent import Admits, Descent, FirstFailing, Fitted, Spent
from kfuzz.engine.reduce.dims import (
    merge_dims,
    scan_sizes,
    shrink_dims,
    shrink_refilled,
)
from kfuzz.engine.reduce.slices import filled, without_axis
from kfuzz.engine.reduce.values import patterns_of, simplify_values, with_patterns

# Elements between rows of a layout that is told to be padded: the fewest, and as many
# as keep 16-bit rows aligned.
_GAPS: Final = (0, 1, 8)

# The layout that destinations have in simple cases.


def reduce_case(
    case: Case,
    first_failing: FirstFailing,
    admits: Admits,
    *,
    deadline: float,
    fitted: Fitted = lambda case: case,
) -> tuple[Case, Reduction]:
    """Return the smallest failing case found, and how it was reached.

    Args:
        case: a pinned case that fails.
        first_failing: runs cases in order, up to the first that shows the same
            symptom, and returns its place.
        admits: whether a case lies in the kernel's domain.
        deadline: `time.monotonic()` at which to stop.
        fitted: puts the values of a candidate back into their domains: offsets follow
            the size that they cut.
    """
    descent = Descent(case, first_failing, admits, deadline, fitted)
    passes = (
        _drop_edge,
        _drop_layout,
        _fill_empty,
        _lower_indices,
        shrink_dims,
        _drop_axes,
        _simplify_layout,
        merge_dims,
        _widen_dtype,
        _simplify_scalars,
        simplify_values,
    )
    try:
        before = None
        while descent.best is not before:
            before = descent.best
            for step in passes:
                step(descent)
            if descent.best is before:
                scan_sizes(descent)
            if descent.best is before:
                shrink_refilled(descent)
    except Spent as spent:
        return descent.best, Reduction(descent.evaluations, str(spent))
    return descent.best, Reduction(descent.evaluations, "minimal")


def _drop_edge(descent: Descent) -> None:
    """Place the arguments away from pages that fault, if none causes the failure."""
    if descent.best.edge is not None:
        descent.take(replace(descent.best, edge=None))


def _drop_layout(descent: Descent) -> None:
    """Give contiguous destinations, if their layout is not the cause."""
    if descent.best.layout not in (None, CONTIGUOUS):
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
            patterns = [
                number_to_bits(bound, spec.dtype)
                if bits_to_number(bits, spec.dtype) > bound
                else bits
                for bits in patterns_of(descent.best, name)
            ]
            descent.take(with_patterns(descent.best, name, patterns))


def _drop_axes(descent: Descent) -> None:
    """Remove dimensions that hold nothing, `dim` following."""

    def dropped(case: Case, axis: str) -> Case | None:
        rest = [n for a, n in case.dims.items() if a != axis]
        size = case.dims.get(axis)
        if size == 1 or (size == 0 and 0 in rest):
            return without_axis(case, axis)
        return None

    descent.take_each(descent.best.dims, dropped)


def _simplify_layout(descent: Descent) -> None:
    """Make tensors contiguous, unaligned offsets 0, steps the least possible."""

    def simpler(case: Case, name: str) -> Iterator[Case]:
        for spec in _simpler_layouts(case.tensors[name]):
            yield case.with_tensor(name, spec)

    descent.take_first_of_each(descent.best.tensors, simpler)


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
    pairs = [(d, wider) for wider in ("float32", "float16") for d in sorted(dtypes)]
    descent.take_each(pairs, _widened)


def _widened(case: Case, pair: tuple[str, str]) -> Case | None:
    """Return a case with a wider dtype in place of one, if that holds the values."""
    dtype, wider = pair
    if DTYPES[dtype].kind != "float":
        return None
    if DTYPES[dtype].itemsize >= DTYPES[wider].itemsize:
        return None
    tensors = dict(case.tensors)
    for name, spec in case.tensors.items():
        if spec.dtype == dtype:
            cast = _cast(spec, wider)
            if cast is None:
                return None
            tensors[name] = cast
    return replace(case, tensors=tensors)


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


def _simplify_scalars(descent: Descent) -> None:
    """Count the reduced dimension from the end."""
    scalars = descent.best.scalars
    dim = scalars.get("dim")
    if isinstance(dim, int) and dim >= 0:
        rank = len(descent.best.lead.shape)
        descent.take(replace(descent.best, scalars={**scalars, "dim": dim - rank}))
