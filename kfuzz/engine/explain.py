"""The explanation: which features of the minimum the failure needs.

Each feature that the minimal case has is taken away in turn; where the failure
vanishes the feature is necessary and goes into the bucket. What does not matter
is said too.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from kfuzz.core.dtypes import (
    DTYPES,
    canonical_nan,
    number_to_bits,
    pack_bits,
)
from kfuzz.core.finding import Explanation
from kfuzz.core.recipe import Case, TensorSpec
from kfuzz.core.verdict import Feature
from kfuzz.engine.reduce import CONTIGUOUS
from kfuzz.engine.simplify import numbers
from kfuzz.engine.slices import filled

# Magnitudes up to here are ordinary; above, or below its inverse, they may matter.
ORDINARY: Final = 16.0

# Powers of two above this are beyond one tile of most kernels.
LARGE: Final = 256

CLASS_OF: Final = {
    "float64": Feature.FLOAT64,
    "float32": Feature.FLOAT32,
    "float16": Feature.SIXTEEN_BIT,
    "bfloat16": Feature.SIXTEEN_BIT,
    "float8_e5m2": Feature.EIGHT_BIT,
    "float8_e4m3fn": Feature.EIGHT_BIT,
}

Fails = Callable[[Case], bool | None]


@dataclass(frozen=True)
class _Variation:
    """One feature taken away.

    Attributes:
        feature: the feature.
        cases: the cases without it, by what was done in words; it is necessary
            if all of them that can be run pass.
    """

    feature: Feature
    cases: dict[str, Case]


def explain(
    case: Case,
    fails: Fails,
    *,
    dtypes: tuple[str, ...],
    friendly: str | None,
    deadline: float,
) -> Explanation:
    """Return what the failure needs.

    Args:
        case: the pinned minimum.
        fails: whether a case shows the same symptom; None if it cannot be run.
        dtypes: the dtypes that the kernel declares.
        friendly: "gone" if the failure vanishes at friendly shapes.
        deadline: `time.monotonic()` at which to stop.
    """
    features: list[Feature] = []
    lines: list[str] = []
    if friendly == "gone" and not _layout_matters(case, fails):
        feature = _shape_feature(case)
        features.append(feature)
        lines.append(f"passes at friendly shapes: needs this shape ({feature})")
    for variation in _variations(case, dtypes):
        if time.monotonic() >= deadline:
            return Explanation(tuple(features), tuple(lines), complete=False)
        outcomes = {what: fails(c) for what, c in variation.cases.items()}
        failing = [what for what, fate in outcomes.items() if fate]
        passing = [what for what, fate in outcomes.items() if fate is False]
        if failing:
            lines.append(f"fails also {', '.join(failing)}")
        elif passing:
            features.append(variation.feature)
            passes = ", ".join(passing)
            lines.append(f"passes {passes}: needs {variation.feature}")
    ordered = tuple(f for f in Feature if f in features)
    return Explanation(ordered, tuple(lines))


def _layout_matters(case: Case, fails: Fails) -> bool:
    """Whether contiguous tensors mend it.

    Then that the friendly shapes are contiguous, not their sizes, made it pass.
    """
    specs = case.tensors.values()
    laid = case.layout in (None, CONTIGUOUS)
    if laid and all(s.is_contiguous and not s.offset for s in specs):
        return False
    plain = _each(case, lambda s: replace(s, strides=None, offset=0))
    return fails(plain if laid else replace(plain, layout=CONTIGUOUS)) is False


def _shape_feature(case: Case) -> Feature:
    """Return TAIL, or BEYOND_TILE for powers of two above the largest tile."""
    sizes = case.dims.values()
    whole = all(n & (n - 1) == 0 for n in sizes)
    large = max(sizes, default=0) > LARGE
    return Feature.BEYOND_TILE if whole and large else Feature.TAIL


def _variations(case: Case, dtypes: tuple[str, ...]) -> Iterator[_Variation]:
    specs = case.tensors.values()
    yield from _dtype_variations(case, dtypes)
    if any(not s.is_contiguous for s in specs):
        plain = _each(case, lambda s: replace(s, strides=None))
        yield _Variation(Feature.NON_CONTIGUOUS, {"with contiguous input": plain})
    given = [d.spec() for d in case.destinations.values()]
    for feature, lies in (
        (Feature.NON_CONTIGUOUS, all(s.is_contiguous for s in given)),
        (Feature.MISALIGNED, not any(s.offset for s in given)),
    ):
        if not lies:
            plain = replace(case, layout=CONTIGUOUS)
            yield _Variation(feature, {"with contiguous destinations": plain})
    if any(s.offset for s in specs):
        aligned = _each(case, lambda s: replace(s, offset=0))
        yield _Variation(Feature.MISALIGNED, {"without the storage offset": aligned})
    empty = [axis for axis, n in case.dims.items() if n == 0]
    if empty:
        grown = case
        for axis in empty:
            grown = filled(grown, axis)
        yield _Variation(Feature.ZERO_SIZE, {"with one element": grown})
    values = [n for s in specs if _is_float(s) for n in numbers(s)]
    for feature, what, test, value in _value_classes():
        if any(map(test, values)):
            mapped = _map_values(case, _substitute(test, value))
            if mapped is not None:
                yield _Variation(feature, {what: mapped})
    finite = [abs(n) for n in values if math.isfinite(n) and n]
    if finite and (max(finite) > ORDINARY or max(finite) < 1 / ORDINARY):
        scale = 2.0 ** -math.floor(math.log2(max(finite)))
        mapped = _map_values(case, lambda n: n * scale)
        if mapped is not None:
            what = "with the values scaled to about 1"
            yield _Variation(Feature.MAGNITUDE, {what: mapped})


def _dtype_variations(case: Case, dtypes: tuple[str, ...]) -> Iterator[_Variation]:
    mine = CLASS_OF[case.data.dtype]
    others = {}
    for dtype in dtypes:
        if CLASS_OF[dtype] is not mine:
            made = _as_dtype(case, dtype)
            if made is not None:
                others[f"as {dtype}"] = made
    if others:
        yield _Variation(mine, others)


def _value_classes() -> Iterator[tuple[Feature, str, Callable[[float], bool], float]]:
    yield Feature.NAN, "without NaN", math.isnan, 1.0
    yield Feature.INF, "without infinities", math.isinf, 1.0
    yield (
        Feature.SUBNORMAL,
        "without tiny values",
        lambda n: 0 < abs(n) < 2.0**-126,
        0.0,
    )


def _substitute(
    test: Callable[[float], bool], value: float
) -> Callable[[float], float]:
    return lambda n: value if test(n) else n


def _each(case: Case, change: Callable[[TensorSpec], TensorSpec]) -> Case:
    return replace(case, tensors={n: change(s) for n, s in case.tensors.items()})


def _is_float(spec: TensorSpec) -> bool:
    return DTYPES[spec.dtype].kind == "float"


def _map_values(case: Case, change: Callable[[float], float]) -> Case | None:
    """Return the case with every float changed; None if one is not held."""
    tensors = dict(case.tensors)
    for name, spec in case.tensors.items():
        if not _is_float(spec):
            continue
        try:
            patterns = [number_to_bits(change(n), spec.dtype) for n in numbers(spec)]
        except (ValueError, OverflowError):
            return None
        tensors[name] = replace(spec, values=pack_bits(patterns, spec.dtype))
    return replace(case, tensors=tensors)


def _as_dtype(case: Case, dtype: str) -> Case | None:
    """Return the case's floats in another dtype, exactly; None if one is not held."""
    tensors = dict(case.tensors)
    for name, spec in case.tensors.items():
        if not _is_float(spec):
            continue
        values = numbers(spec)
        try:
            patterns = [
                canonical_nan(dtype) if math.isnan(n) else number_to_bits(n, dtype)
                for n in values
            ]
        except (ValueError, OverflowError):
            return None
        tensors[name] = replace(spec, dtype=dtype, values=pack_bits(patterns, dtype))
    return replace(case, tensors=tensors)
