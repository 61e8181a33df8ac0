"""The explanation: which features of the minimum the failure needs.

Each feature that the minimal case has is taken away in turn; where the failure
vanishes the feature is necessary and goes into the bucket. What does not matter
is said too.

A size from which on the kernel fails is looked for first. Of another failure that is
gone at friendly shapes it tells which shape it needs: a tail, or another. Each
dimension is grown alone by repeating the values of the minimum: to a power of two,
which no tile cuts, and on by its own size, the rest that such a tile leaves.
"""

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from enum import StrEnum
from functools import partial
from itertools import cycle
from typing import Final

from kfuzz.core.declaration import INT32_ELEMENTS
from kfuzz.core.dtypes import DTYPES
from kfuzz.core.finding import Explanation, Finding
from kfuzz.core.recipe import CONTIGUOUS, Case, TensorSpec
from kfuzz.core.verdict import Feature
from kfuzz.engine.reduce import filled, kept, numbers, recast, without_axis


class Outcome(StrEnum):
    """What a kernel does on a variation of a case that fails.

    FAILS: shows the same symptom. OTHERWISE: fails, with another symptom. PASSES:
    conforms. UNKNOWN: cannot be run or judged.
    """

    FAILS = "fails"
    OTHERWISE = "fails, but in another way"
    PASSES = "passes"
    UNKNOWN = "unknown"


OutcomeOf = Callable[[Case], Outcome]


# Magnitudes up to here are ordinary; above, or below its inverse, they may matter.
ORDINARY: Final = 16.0

CLASS_OF: Final = {
    "float64": Feature.FLOAT64,
    "float32": Feature.FLOAT32,
    "float16": Feature.SIXTEEN_BIT,
    "bfloat16": Feature.SIXTEEN_BIT,
    "float8_e5m2": Feature.EIGHT_BIT,
    "float8_e4m3fn": Feature.EIGHT_BIT,
}

# A feature taken away: the cases without it, by what was done in words. It is necessary
# if all of them that can be run pass: one that fails otherwise shows nothing of it.
_Variation = tuple[Feature, dict[str, Case]]
_Test = Callable[[float], bool]
_Change = Callable[[float], float]

_WORDS: Final = {
    Outcome.PASSES: "passes",
    Outcome.FAILS: "fails also",
    Outcome.OTHERWISE: "fails, but in another way,",
}


def explain(
    case: Case,
    outcome_of: OutcomeOf,
    *,
    dtypes: tuple[str, ...],
    friendly: str | None,
    deadline: float,
) -> Explanation:
    """Return what the failure needs.

    Args:
        case: the pinned minimum.
        outcome_of: what the kernel does on a case.
        dtypes: the dtypes that the kernel declares.
        friendly: "gone" if the failure vanishes at friendly shapes.
        deadline: `time.monotonic()` at which to stop.
    """
    features: list[Feature] = []
    lines: list[str] = []
    if found := threshold(case, outcome_of, deadline):
        axis, line = found
        if friendly == "gone" and case.dims[axis] > LARGE:
            features.append(Feature.BEYOND_TILE)
        lines.append(line)
    elif friendly == "gone" and not _layout_matters(case, outcome_of):
        needed, shapes = shape_need(case, outcome_of, deadline)
        features += [needed] if needed else []
        lines.append(shapes)
        if time.monotonic() >= deadline:  # shapes that were not tried might tell more
            return Explanation(complete=False)
    for feature, cases in _variations(case, dtypes):
        if time.monotonic() >= deadline:
            return Explanation(tuple(features), tuple(lines), complete=False)
        fates = {what: outcome_of(c) for what, c in cases.items()}
        said = [
            f"{words} {_joined(names)}"
            for outcome, words in _WORDS.items()
            if (names := [what for what, found in fates.items() if found is outcome])
        ]
        if set(fates.values()) - {Outcome.UNKNOWN} == {Outcome.PASSES}:
            features.append(feature)
            lines.append(said[0])
        elif said:
            lines.append("; ".join(said))
    ordered = tuple(f for f in Feature if f in features)
    return Explanation(ordered, tuple(lines))


def _layout_matters(case: Case, outcome_of: OutcomeOf) -> bool:
    """Whether contiguous tensors mend it.

    Then that the friendly shapes are contiguous, not their sizes, made it pass.
    """
    specs = case.tensors.values()
    laid = case.layout in (None, CONTIGUOUS)
    if laid and all(s.is_contiguous and not s.offset for s in specs):
        return False
    plain = _each(case, lambda s: replace(s, strides=None, offset=0))
    return (
        outcome_of(plain if laid else replace(plain, layout=CONTIGUOUS))
        is Outcome.PASSES
    )


def _variations(case: Case, dtypes: tuple[str, ...]) -> Iterator[_Variation]:
    specs = case.tensors.values()
    yield from _dtype_variations(case, dtypes)
    if any(not s.is_contiguous for s in specs):
        plain = _each(case, lambda s: replace(s, strides=None))
        yield (Feature.NON_CONTIGUOUS, {"with contiguous input": plain})
    given = [d.spec() for d in case.destinations.values()]
    for feature, lies in (
        (Feature.NON_CONTIGUOUS, all(s.is_contiguous for s in given)),
        (Feature.MISALIGNED, not any(s.offset for s in given)),
    ):
        if not lies:
            plain = replace(case, layout=CONTIGUOUS)
            yield (feature, {"with contiguous destinations": plain})
    if any(s.offset for s in specs):
        aligned = _each(case, lambda s: replace(s, offset=0))
        yield (Feature.MISALIGNED, {"without the storage offset": aligned})
    empty = [axis for axis, n in case.dims.items() if n == 0]
    if empty:
        extended = case
        for axis in empty:
            extended = filled(extended, axis)
        yield (Feature.ZERO_SIZE, {"with one element": extended})
    values = [n for s in specs if _is_float(s) for n in numbers(s)]
    for feature, what, test, ordinary in _VALUES:
        if any(map(test, values)):
            mapped = _map_values(case, partial(_substituted, test, ordinary))
            if mapped is not None:
                yield (feature, {what: mapped})
    finite = [abs(n) for n in values if math.isfinite(n) and n]
    if finite and (max(finite) > ORDINARY or max(finite) < 1 / ORDINARY):
        scale = 2.0 ** -math.floor(math.log2(max(finite)))
        mapped = _map_values(case, lambda n: n * scale)
        if mapped is not None:
            what = "with the values scaled to about 1"
            yield (Feature.MAGNITUDE, {what: mapped})


def _dtype_variations(case: Case, dtypes: tuple[str, ...]) -> Iterator[_Variation]:
    mine = CLASS_OF[case.data.dtype]
    others = {}
    for dtype in dtypes:
        if CLASS_OF[dtype] is not mine:
            made = _map_values(case, lambda n: n, dtype)
            if made is not None:
                others[f"in {dtype}"] = made
    if others:
        yield (mine, others)


# Features of values, how to know them, and what is put in their place. The sign of an
# infinity is kept: of a mask's -Inf only a number below the others is like it.
_VALUES: Final[tuple[tuple[Feature, str, _Test, _Change], ...]] = (
    (Feature.NAN, "without NaN", math.isnan, lambda n: 1.0),
    (Feature.INF, "without infinities", math.isinf, lambda n: math.copysign(1.0, n)),
    (
        Feature.SUBNORMAL, "without tiny values",
        lambda n: 0 < abs(n) < 2.0**-126, lambda n: 0.0,
    ),
)  # fmt: skip


def _substituted(test: _Test, ordinary: _Change, n: float) -> float:
    return ordinary(n) if test(n) else n


def _each(case: Case, change: Callable[[TensorSpec], TensorSpec]) -> Case:
    return replace(case, tensors={n: change(s) for n, s in case.tensors.items()})


def _is_float(spec: TensorSpec) -> bool:
    return DTYPES[spec.dtype].kind == "float"


def _map_values(case: Case, change: _Change, dtype: str = "") -> Case | None:
    """Return the case with every float changed; None if one is not held.

    Args:
        case: the case.
        change: what becomes of a value.
        dtype: another data type for them, "" for their own.
    """
    tensors = dict(case.tensors)
    for name, spec in case.tensors.items():
        if not _is_float(spec):
            continue
        made = recast(spec, dtype or spec.dtype, change)
        if made is None:
            return None
        tensors[name] = made
    return replace(case, tensors=tensors)


# Of magnitude 1 to 2, of both signs, neighbours different; eight bits hold them.
_NUMBERS: Final = (1.0, -1.25, 1.5, -1.75)


def with_ordinary_numbers(case: Case) -> Iterator[Case]:
    """Yield the case with ones for what is not finite, then new numbers for all."""
    ordinary = cycle(_NUMBERS)
    changes: tuple[_Change, ...] = (
        lambda n: n if math.isfinite(n) else math.copysign(1.0, n),
        lambda n: next(ordinary),
    )
    yield from filter(None, (_map_values(case, change) for change in changes))


# Powers of two above this are beyond one tile of most kernels.
LARGE: Final = 256
# Multiples of these are whole tiles of most kernels.
TILES: Final = (16, 256, 1024)
# Elements that are worth a try.
MOST: Final = 1 << 16
# Smaller minima are what the symptom needs, such as two elements that differ.
LEAST_THRESHOLD: Final = 5
# Shapes that are named at most.
NAMED: Final = 3


def threshold(
    case: Case, outcome_of: OutcomeOf, deadline: float
) -> tuple[str, str] | None:
    """Return the dimension from whose size on the kernel fails, and that in words.

    It passes with one less, and fails with more; None if there is no such dimension.

    Args:
        case: the pinned minimum.
        outcome_of: what the kernel does on a case.
        deadline: `time.monotonic()` after which no size is tried.
    """
    for axis, n in case.dims.items():
        # Whole tiles among them, and twice what passes.
        wanted = dict.fromkeys((n + 1, 1 << n.bit_length(), 2 * n - 2), Outcome.FAILS)
        if n >= LEAST_THRESHOLD and all(
            time.monotonic() < deadline
            and outcome_of(_sized(case, {axis: size})) is outcome
            for size, outcome in {n - 1: Outcome.PASSES, **wanted}.items()
        ):
            start = f"{axis} = {n:,}"
            if axis == f"d{axis[1:]}" and axis in case.lead.axes:
                inner = axis == case.lead.axes[-1]
                start = f"{n:,} {'elements in a row' if inner else 'rows'}"
            return axis, f"fails from {start} on, passes at {n - 1:,}"
    return None


def shape_need(
    case: Case, outcome_of: OutcomeOf, deadline: float
) -> tuple[Feature | None, str]:
    """Return what of the shape is needed, and which shapes pass and which fail.

    TAIL if there is a dimension that, grown alone, passes at whole tiles and fails
    again with the same rest; else None: the shapes tell what no feature does.

    Args:
        case: the pinned minimum; it passes at friendly shapes.
        outcome_of: what the kernel does on a case.
        deadline: `time.monotonic()` after which no shape is tried.
    """
    sizes = {axis: n for axis, n in case.dims.items() if n}
    passing: list[str] = []
    failing = [_shapes(case)]

    def look(extended: Mapping[str, int]) -> Outcome:
        made = _sized(case, extended)
        large = sum(s.numel for s in made.tensors.values()) > MOST
        if large or time.monotonic() >= deadline:
            return Outcome.UNKNOWN
        outcome = outcome_of(made)
        if outcome is Outcome.PASSES:
            passing.append(_shapes(made, extended))
        elif outcome is Outcome.FAILS:
            failing.append(_shapes(made, extended))
        return outcome

    feature: Feature | None = None
    for axis, n in sizes.items():
        tiles = (w for w in _whole(n) if look({axis: w}) is Outcome.PASSES)
        whole = next(tiles, None)
        if whole and look({axis: whole + n}) is Outcome.FAILS:
            passing, failing = passing[-1:], [failing[0], failing[-1]]
            feature = Feature.TAIL
            break
    ones = [axis for axis, n in sizes.items() if n == 1]
    for made in [] if passing else (without_axis(case, axis) for axis in ones):
        if made and time.monotonic() < deadline and outcome_of(made) is Outcome.PASSES:
            passing.append(_shapes(made))  # of a rank less
            break
    powers = all(n and _is_power(n) for n in case.dims.values())
    others = "other power-of-two shapes" if powers else "power-of-two shapes"
    passes = " and ".join((passing or [others])[:NAMED])
    return feature, f"passes at {passes}; fails at {' and '.join(failing[:NAMED])}"


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
    extended = replace(case, tensors=tensors)
    for axis, size in sizes.items():
        n = case.dims[axis]
        extended = kept(extended, axis, [(i - size) % n for i in range(size)])
    return extended


def _shapes(case: Case, axes: Collection[str] = ()) -> str:
    """Return the shapes of the arguments, or of those with certain axes: "x [2]"."""
    told = [(n, s) for n, s in case.tensors.items() if not axes or {*axes} & {*s.axes}]
    return ", ".join(f"{n} {list(s.shape)}" for n, s in told)


def _joined(names: list[str]) -> str:
    """Return "in a, b and c" of "in a", "in b", "in c"."""
    word = names[0].partition(" ")[0]
    rest = [name.removeprefix(f"{word} ") for name in names[1:]]
    return " and ".join(filter(None, [", ".join([names[0], *rest[:-1]]), *rest[-1:]]))


# 32-bit offsets that overflow: which product, its values, the cast that mends it.

_WRAP: Final = 1 << 32
_CAST: Final = (
    "cast the index to 64 bits before it is multiplied: `i.to(tl.int64) * stride` in "
    "Triton, `(int64_t)i * stride` in C++"
)
_DECLARE: Final = (
    'or declare offsets="int32": such sizes and strides are not drawn then'
)


def offset_lines(finding: Finding, *, apart: bool) -> tuple[str, ...]:
    """Return what says that an offset of 32 bits overflows; none where nothing does.

    An access that lies 2^32 elements below an element of the view is proof. Where none
    was seen, strides that stayed far apart are: a reduction brings them near first.

    Args:
        finding: with its minimal case.
        apart: whether nearer strides, or the rows by themselves, are known to pass.
    """
    case = finding.case
    found = [
        (access.argument, case.memory(access.argument), access.offset + _WRAP)
        for access in finding.failure.accesses
        if access.argument in (*case.tensors, *case.destinations)
        and 0 <= access.offset + _WRAP < case.memory(access.argument).span
    ]
    if not found and apart:
        found = [
            (name, spec, spec.span - 1)
            for name, spec in case.tensors.items()
            if spec.span > INT32_ELEMENTS
        ]
    lines = [_product(*each) for each in found[:1]]
    return (*lines, _CAST, _DECLARE) if lines else ()


def _product(name: str, spec: TensorSpec, offset: int) -> str:
    """Return the overflow at an offset in words, with the product that causes it."""
    terms = list(_terms(spec, offset))
    axis, index, stride = max(terms, key=lambda term: term[1] * term[2])
    product = f"{index:,} * {stride:,} = {index * stride:,} (index * stride of {axis})"
    if index * stride < INT32_ELEMENTS:
        product = " + ".join(f"{i:,} * {s:,}" for _, i, s in terms if i * s)
        product += f" = {offset:,} (indices * strides)"
    wrapped = (offset + INT32_ELEMENTS) % _WRAP - INT32_ELEMENTS
    return (
        f"32-bit offset overflow in {name}: {product} is above 2,147,483,647, so that "
        f"the offset {offset:,} becomes {wrapped:,}"
    )


def _terms(spec: TensorSpec, offset: int) -> Iterator[tuple[str, int, int]]:
    """Yield axis, index and stride that add up to an offset, the widest first."""
    steps = zip(spec.axes, spec.shape, spec.element_strides, strict=True)
    for axis, n, stride in sorted(steps, key=lambda step: -step[2]):
        index = min(offset // stride, n - 1) if stride else 0
        offset -= index * stride
        yield axis, index, stride
