"""The explanation: what of the minimum the failure needs, and what it does not.

Every sentence comes from runs. A feature is necessary if the minimum passes without it
and no case that is known to fail alike is without it: that as first found, those on the
way to the minimum, and what was tried here. Of sizes and integer scalars the simplest
condition is printed that is so far on the right side of every run, once more were made
where it and its rivals differ.
"""

import math
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import partial
from itertools import combinations, cycle, islice, permutations, product
from operator import eq, gt, le, lt, ne
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kfuzz.core.declaration import INT32_ELEMENTS
from kfuzz.core.dtypes import DTYPES
from kfuzz.core.finding import BESIDE, Explanation, Finding, case_key
from kfuzz.core.recipe import CONTIGUOUS, Case, Scalar, TensorSpec, parsed
from kfuzz.core.verdict import Feature
from kfuzz.engine.reduce import Change, filled, kept, numbers, recast


class Outcome(StrEnum):
    """What a kernel does on a variation of a case that fails.

    FAILS: shows the same symptom. OTHERWISE: fails, with another symptom. PASSES:
    conforms. UNKNOWN: cannot be run or judged.
    """

    FAILS = "fails"
    OTHERWISE = BESIDE[1]
    PASSES = "passes"
    UNKNOWN = "unknown"


OutcomeOf = Callable[[Case], Outcome]
# Sizes of the case by name, those that follow from the others settled.
Settled = Callable[[Mapping[str, int], Case], dict[str, int]]
_FAILING: Final = (Outcome.FAILS, Outcome.OTHERWISE)


# Magnitudes up to here are ordinary; above, or below its inverse, they may matter.
ORDINARY: Final = 16.0
# What makes ordinary numbers small, their squares too, in float16 as well.
SMALL: Final = 2.0**-12
# Times the elements: what chance leaves out of few it does not of so many.
MANY: Final = 32

CLASS_OF: Final = {
    "float64": Feature.FLOAT64,
    "float32": Feature.FLOAT32,
    "float16": Feature.SIXTEEN_BIT,
    "bfloat16": Feature.SIXTEEN_BIT,
    "float8_e5m2": Feature.EIGHT_BIT,
    "float8_e4m3fn": Feature.EIGHT_BIT,
}

_Numbers = NDArray[np.float64]
_Test = Callable[[_Numbers], NDArray[np.bool_]]
# Something that a case may have: the feature, None for one that no bucket has; what is
# done without it, in words; whether a case has it; the case without it, None if there
# is none. It is necessary if the minimum passes without it and all that fail have it.
_Aspect = tuple[
    Feature | None, str, Callable[[Case], bool], Callable[[Case], Case | None]
]


class Trials:
    """What a kernel does on cases beside the minimum; none is run twice.

    Attributes:
        case: the minimum.
        failing: cases that fail alike, the minimum first.
        points: cases of other sizes or integer scalars, and whether they fail.
        few: whether only what is needed is run.
        cut: whether there was no time for a case.
    """

    def __init__(
        self, case: Case, outcome_of: OutcomeOf, failing: Iterable[Case], until: float
    ) -> None:
        self.case = case
        self.failing = [case, *failing]
        self.points = [(each, True) for each in self.failing]
        self.few = self.cut = False
        self.settled: Settled = lambda numbers, _: dict(numbers)
        self._outcome_of = outcome_of
        self._until = until
        self._known: dict[str, Outcome] = {}

    def outcome(self, case: Case) -> Outcome:
        """Return what the kernel does on a case; unknown once the time is over."""
        key = case_key(case)
        if key not in self._known:
            if time.monotonic() >= self._until:
                self.cut = True
                return Outcome.UNKNOWN
            self._known[key] = self._outcome_of(case)
            if self._known[key] is Outcome.FAILS:
                self.failing.append(case)
        return self._known[key]

    def run_ordinary(self, case: Case) -> Outcome | None:
        """Run a case with ordinary numbers; return how it fails then, if it does."""
        every = () if self.few else with_ordinary_numbers(case)
        others = (c for c in every if c != self.case)
        found = map(self.outcome, others)
        return next((outcome for outcome in found if outcome in _FAILING), None)

    def run_others(self, case: Case) -> None:
        """Run a case with ordinary numbers, with small ones, and with more of them.

        Of an eps little else shows, and what chance leaves out shows in many.
        """
        self.run_ordinary(case)
        for made in () if self.few else with_ordinary_numbers(case):
            self.outcome(_map_values(lambda n: n * SMALL, made) or self.case)
        if case.scalars != self.case.scalars and MANY * case.elements <= MOST:
            more = {a: MANY * case.dims[a] for a in case.lead.axes[-1:]}
            self.run_ordinary(_sized(case, more))

    def at(self, changed: Mapping[str, int]) -> Outcome:
        """Return what it does with other sizes or integer scalars.

        It has to pass with the values of the minimum repeated, and with ordinary
        numbers: that equal rows are taken for one another does not show.
        """
        case, dims, numbers = self.case, self.case.dims, self.numbers_at(changed)
        sizes = {a: numbers[a] for a, n in dims.items() if numbers[a] != n}
        free = changed.items() <= numbers.items()
        if not free or any(n < 1 or not dims[a] for a, n in sizes.items()):
            return Outcome.UNKNOWN
        scalars = {n: changed.get(n, v) for n, v in case.scalars.items()}
        made = replace(_sized(case, sizes) if sizes else case, scalars=scalars)
        large = made.elements > max(MOST, 2 * case.elements)
        found = Outcome.UNKNOWN if large else self.outcome(made)
        if found is Outcome.PASSES:
            found = self.run_ordinary(made) or found
        if found is not Outcome.UNKNOWN:
            self.points.append((made, found is not Outcome.PASSES))
        return found

    def numbers_at(self, changed: Mapping[str, int]) -> dict[str, int]:
        """Return the numbers with others, and what follows from them."""
        return self.settled({**numbers_of(self.case), **changed}, self.case)


def numbers_of(case: Case) -> dict[str, int]:
    """Return the sizes and the integer scalars of a case, by name."""
    scalars = {n: v for n, v in case.scalars.items() if type(v) is int and n != "dim"}
    return {**case.dims, **scalars}


def explain(
    case: Case,
    outcome_of: OutcomeOf,
    *,
    dtypes: tuple[str, ...],
    deadline: float,
    failing: Iterable[Case] = (),
    scalars: Mapping[str, Collection[Scalar]] | None = None,
    exact: bool = False,
    few: bool = False,
    settled: Settled = lambda numbers, _: dict(numbers),
) -> Explanation:
    """Return what the failure needs.

    Args:
        case: the pinned minimum.
        outcome_of: what the kernel does on a case.
        dtypes: the dtypes that the kernel declares.
        deadline: `time.monotonic()` at which to stop.
        failing: other pinned cases that fail alike.
        scalars: the values that scalars may have.
        exact: whether no rounding decides if it fails.
        few: whether runs take so long that no condition is sought.
        settled: gives sizes, with those of them that follow from the rest.
    """
    trials = Trials(case, outcome_of, failing, deadline)
    trials.few, trials.settled = few, settled
    values = scalars or {}
    within = [c for c in trials.failing if c.elements <= 2 * MOST]
    large = max(within or [case], key=lambda c: c.elements)
    trials.run_ordinary(large)
    features: list[Feature] = []
    lines: list[str] = []
    said: dict[Outcome, list[str]] = {outcome: [] for outcome in Outcome}
    if not _layout_matters(trials):
        found_of = _of_numbers(trials, values, exact=exact)
        features, lines, said[Outcome.FAILS] = found_of
    aspects = [a for a in _aspects(case, dtypes, values) if a[2](case)]
    fates: list[Outcome] = []
    for _, _, has, without in aspects:
        made = without(case)
        fates.append(Outcome.UNKNOWN if made is None else trials.outcome(made))
        if made is not None and fates[-1] is Outcome.PASSES:
            # Other numbers, or a larger case, may fail without it all the same.
            trials.run_others(made)
            other = without(large) if has(large) else None
            trials.outcome(other or case)
    needed: dict[object, list[str]] = {}
    for (feature, what, has, _), found in zip(aspects, fates, strict=True):
        if found is not Outcome.PASSES:
            said[found] += [what] if feature or what.startswith("with ") else []
        elif all(map(has, trials.failing)):
            features += [feature] if feature else []
            needed.setdefault(feature or what.partition(" = ")[0], []).append(what)
    lines += [f"passes {_joined(names)}" for names in needed.values()]
    for outcome, words in ((Outcome.FAILS, BESIDE[0]), (Outcome.OTHERWISE, BESIDE[1])):
        lines += [f"{words} {_joined(said[outcome])}"] if said[outcome] else []
    ordered = tuple(f for f in Feature if f in features)
    return Explanation(ordered, tuple(lines), complete=not trials.cut)


def _layout_matters(trials: Trials) -> bool:
    """Whether contiguous tensors mend it: then other sizes show nothing."""
    case = trials.case
    plain = _each(case, strides=None, offset=0)
    plain = plain if case.layout is None else replace(plain, layout=CONTIGUOUS)
    return plain != case and trials.outcome(plain) is Outcome.PASSES


def _aspects(
    case: Case, dtypes: tuple[str, ...], scalars: Mapping[str, Collection[Scalar]]
) -> Iterator[_Aspect]:
    """Yield what the minimum may need."""
    mine = CLASS_OF.get(case.data.dtype)  # None of integers
    for dtype in dtypes if mine else ():
        if CLASS_OF[dtype] is not mine:
            yield (
                mine, f"in {dtype}", lambda c: CLASS_OF[c.data.dtype] is mine,
                partial(_map_values, np.positive, dtype=dtype),
            )  # fmt: skip
    yield from (_of_scalar(n, value) for n, every in scalars.items() for value in every)
    strided = any(not d.spec().is_contiguous for d in case.destinations.values())
    within = [parsed(s.domain).interval for s in case.tensors.values()]
    ends = {end for i in within if i is not None for end in (i.low, i.high)} - {0.0}
    scale = -math.floor(math.log2(_greatest(case) or 1.0))
    others: tuple[_Aspect, ...] = (
        (
            Feature.NON_CONTIGUOUS, "with contiguous input",
            lambda c: any(not s.is_contiguous for s in c.tensors.values()),
            partial(_each, strides=None),
        ),
        (
            Feature.NON_CONTIGUOUS if strided else Feature.MISALIGNED,
            "with contiguous destinations",
            lambda c: c.layout not in (None, CONTIGUOUS),
            lambda c: replace(c, layout=CONTIGUOUS),
        ),
        (
            Feature.MISALIGNED, "without the storage offset",
            lambda c: any(s.offset for s in c.tensors.values()),
            partial(_each, offset=0),
        ),
        (
            Feature.ZERO_SIZE, "with one element",
            lambda c: 0 in c.dims.values(), _extended,
        ),
        *(_of_values(*each) for each in _VALUES),
        _of_values(
            None, "without the ends of intervals",
            lambda n: np.isin(n, list(ends)), lambda n: n / 2,
        ),
        (
            Feature.MAGNITUDE, "with the values scaled to about 1",
            lambda c: _magnitude(c) == _magnitude(case) != 0,
            partial(_map_values, lambda n: np.ldexp(n, scale)),
        ),
        (
            None, "with the usual bits of NaN",
            lambda c: _map_values(np.positive, c) not in (c, None),
            partial(_map_values, np.positive),
        ),
    )  # fmt: skip
    yield from others


def _of_scalar(name: str, value: Scalar) -> _Aspect:
    def differs(case: Case) -> bool:
        own = case.scalars.get(name)  # 1 is not True
        return name in case.scalars and (own != value or type(own) is not type(value))

    def changed(case: Case) -> Case:
        return replace(case, scalars={**case.scalars, name: value})

    return None, f"with {name} = {value}", differs, changed


def _of_values(
    feature: Feature | None, what: str, test: _Test, ordinary: Change
) -> _Aspect:
    def without(case: Case) -> Case | None:
        return _map_values(lambda n: np.where(test(n), ordinary(n), n), case)

    return feature, what, lambda c: bool(test(_values(c)).any()), without


def _extended(case: Case) -> Case:
    for axis in [axis for axis, n in case.dims.items() if n == 0]:
        case = filled(case, axis)
    return case


# Kinds of values, how to know them, and what is put in their place. The sign of an
# infinity is kept: of a mask's -Inf only a number below the others is like it.
_VALUES: Final[tuple[tuple[Feature | None, str, _Test, Change], ...]] = (
    (Feature.NAN, "without NaN", np.isnan, np.ones_like),
    (Feature.INF, "without infinities", np.isinf, np.sign),
    (
        Feature.SUBNORMAL, "without tiny values",
        lambda n: (abs(n) > 0) & (abs(n) < 2.0**-126), np.zeros_like,
    ),
    (None, "without zeros", lambda n: n == 0, np.ones_like),
    (None, "without negative numbers", lambda n: (n < 0) & np.isfinite(n), np.abs),
)  # fmt: skip


def _values(case: Case) -> _Numbers:
    """Return all floats of a case."""
    specs = [s for s in case.tensors.values() if _is_float(s) and s.values is not None]
    return np.concatenate([np.empty(0), *map(numbers, specs)])


def _greatest(case: Case) -> float:
    values = _values(case)
    return float(np.abs(values[np.isfinite(values)]).max(initial=0.0))


def _magnitude(case: Case) -> int:
    """Return 1 for great numbers, -1 for none but small ones, 0 for neither."""
    greatest = _greatest(case)
    return (greatest > ORDINARY) - (0 < greatest < 1 / ORDINARY)


def _each(case: Case, **changes: Any) -> Case:
    """Return the case with other fields of each tensor."""
    tensors = {n: replace(s, **changes) for n, s in case.tensors.items()}
    return replace(case, tensors=tensors)


def _is_float(spec: TensorSpec) -> bool:
    return DTYPES[spec.dtype].kind == "float"


def _map_values(change: Change, case: Case, dtype: str = "") -> Case | None:
    """Return the case with its floats changed; None if one is not held.

    Args:
        change: what becomes of the values.
        case: the case, pinned.
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


# Of magnitude 1 to 2, of both signs, in no order; eight bits hold them.
_NUMBERS: Final = np.array((1.0, -1.25, 1.5, -1.75, -1.0, 1.25, -1.5, 1.75))


def with_ordinary_numbers(case: Case, samples: int = 1) -> Iterator[Case]:
    """Yield the case with ones for what is not finite, then new numbers for all.

    Of these some are negative and all short, then none is either, `samples` times.
    """
    chance = np.random.default_rng(0)
    floats = [DTYPES[s.dtype] for s in case.tensors.values() if _is_float(s)]
    steps = 1 << min((d.mantissa_bits for d in floats), default=0)
    changes: tuple[Change, ...] = (
        lambda n: np.where(np.isfinite(n), n, np.copysign(1.0, n)),
        lambda n: chance.choice(_NUMBERS, n.shape),
        *[lambda n: 1 + chance.integers(steps, size=n.shape) / steps] * samples,
    )
    yield from filter(None, (_map_values(change, case) for change in changes))


# Sizes and integer scalars: what is tried, and the condition on them.

# Multiples of this are whole tiles of many kernels.
TILE: Final = 16
# Sizes above this are beyond one tile of most kernels.
LARGE: Final = 256
# Elements that are worth a try, all dimensions together.
MOST: Final = 1 << 14
# Smaller minima are what the symptom needs, such as two elements that differ.
LEAST_THRESHOLD: Final = 5
# Shapes that are named at most; runs that are made to find a condition, and to test it.
NAMED: Final = 2
RUNS: Final = 80
TESTS: Final = 8
# Changes that are thought of, conditions that are held apart.
POOL: Final = 600
TRIPLES: Final = 200
RIVALS: Final = 12
_SINGLE: Final = 5
# Which numbers tell most of a condition: the least, even ones, the greatest.
_TELLING: Final[tuple[Callable[[Collection[int]], int], ...]] = (
    sum, lambda numbers: -math.prod(n & -n for n in numbers),
    lambda numbers: -math.prod(numbers),
)  # fmt: skip
_DIVISORS: Final = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_TAIL: Final = re.compile(r"(.* and )?(\S+) is no (?:multiple of (\d+)|power of two)")


def _of_numbers(
    trials: Trials, scalars: Mapping[str, Collection[Scalar]], *, exact: bool
) -> tuple[list[Feature], list[str], list[str]]:
    """Return features, what of sizes and scalars is needed, and what is not.

    Where ordinary numbers do not fail, other sizes may pass for what they make of the
    values: a threshold and the rest of a tile are known all the same.
    """
    case, own = trials.case, numbers_of(trials.case)
    generic = trials.run_ordinary(case) is Outcome.FAILS
    if found := threshold(trials):
        axis, line = found
        return [Feature.BEYOND_TILE] if own[axis] > LARGE else [], [line], []
    near: dict[str, list[int]] = {}
    for name, n in () if trials.few else own.items():
        whole = max(TILE, 1 << n.bit_length())
        sizes: Collection[Scalar] = (
            n - 1, n + 1, 2 * n, whole, 4 * whole, whole + n, 1, 2, 3, 4, 8,
            *own.values(),
        )  # fmt: skip
        chosen = dict.fromkeys(scalars.get(name, sizes))
        near[name] = [v for v in chosen if type(v) is int and v != n]
        for size in near[name][:_SINGLE]:
            trials.at({name: size})
    passing = [c for c, fails in trials.points if not fails]
    if not passing:
        others = case.dims and len(trials.points) > 1
        return [], [], ["at other shapes"] if others else []
    condition = _condition(trials, near)
    tail = _TAIL.fullmatch(condition)
    told = bool(condition) or exact  # rounding may let a size pass by luck
    if not told or (not generic and (tail is None or tail[1])):
        return [], [], []

    def away(other: Case) -> tuple[int, int]:
        changed = sum(n != own.get(a) for a, n in numbers_of(other).items())
        return changed, abs(other.elements - case.elements)

    closest = sorted(passing, key=away)[:NAMED]
    changed = {a for c in closest for a, n in numbers_of(c).items() if n != own.get(a)}
    passes = " and ".join(dict.fromkeys(_shape(c, changed) for c in closest))
    line = f"passes at {passes}; fails at {_shape(case, changed)}"
    where = f"fails where {condition}: " if condition else ""
    declared = []
    if tail and not tail[1] and int(tail[3] or 0) >= TILE:
        declared = _declaration(case, tail[2], f"% {tail[3]} == 0")
    return [Feature.TAIL] if tail else [], [where + line, *declared], []


def _declaration(case: Case, name: str, keeps: str) -> list[str]:
    """Return what to declare where only other sizes of one dimension are meant."""
    dim, axes = case.scalars.get("dim", -1), case.lead.axes
    reduced = axes[dim] if isinstance(dim, int) and axes else ""
    called = "N" if name in (reduced, _name(case, reduced)) else name
    if not called.isidentifier() or re.fullmatch(r"d\d+", called):
        return []
    return [f'or declare shape_class="{called} {keeps}" if no caller has other sizes']


def is_tiled(case: Case) -> bool:
    """Whether all sizes are whole tiles, or 1, as powers of two are."""
    sizes = [n for n in case.dims.values() if n != 1]
    return bool(sizes) and all(n >= TILE and n & (n - 1) == 0 for n in sizes)


def threshold(trials: Trials) -> tuple[str, str] | None:
    """Return the dimension from whose size on the kernel fails, and that in words.

    It passes with one less, and fails with more; None if there is no such dimension.
    Where it holds all elements, their number may be what decides.
    """
    case = trials.case
    fewest = min(c.largest for c in trials.failing)
    for axis, n in case.dims.items():
        least = min(c.dims.get(axis, n) for c in trials.failing)
        # Whole tiles among them, and twice what passes.
        more = dict.fromkeys((n + 1, 1 << n.bit_length(), 2 * n - 2))
        if (
            n >= LEAST_THRESHOLD
            and (least >= n or fewest == case.largest == n)
            and trials.at({axis: n - 1}) is Outcome.PASSES
            and all(trials.at({axis: size}) is Outcome.FAILS for size in more)
        ):
            start = f"{axis} = {n:,}"
            beside = (
                () if trials.few else [b for b in case.dims.items() if b[0] != axis]
            )
            if least < n or any(
                trials.at({axis: n - 1, b: 2 * m}) is Outcome.FAILS for b, m in beside
            ):
                if case.largest > n:
                    continue
                start = f"{n:,} elements"
            elif axis == f"d{axis[1:]}" and axis in case.lead.axes:
                inner = axis == case.lead.axes[-1]
                start = f"{n:,} {'elements in a row' if inner else 'rows'}"
            return axis, f"fails from {start} on, passes at {n - 1:,}"
    return None


# A condition on the numbers of a case: how simple it is, in words, whether it holds.
_Point = dict[str, int]
_Relation = Callable[[int, int], bool]
_Atom = tuple[int, str, str, _Relation, int | str]


def _condition(trials: Trials, near: Mapping[str, Collection[int]]) -> str:
    """Return the simplest condition that fits every run; "" if none does.

    Two that fit are held apart by a run where they differ, as long as there is one that
    can be made. What is left has to foretell some more.

    Args:
        trials: of the minimum.
        near: other numbers worth a try, by name.
    """
    own = numbers_of(trials.case)
    tiles = [{a: m * k} for a in trials.case.dims for k in _DIVISORS for m in (1, 3)]
    # What holds between three sizes of 1 may hold of no others.
    tiles += [{a: n * k for a, n in trials.case.dims.items()} for k in (2, 3)]
    pairs = [
        {a: n, b: m}
        for a, b in combinations(own, 2)
        for n, m in product(near[a], near[b])
    ]
    pairs.sort(key=lambda change: sum(change.values()))
    changes = [*pairs[:POOL], *({a: n} for a in own for n in near[a]), *tiles]
    # What k of n rows do may take all three to refute.
    chance = np.random.default_rng(0)
    triples = [t for t in combinations(own, 3) if all(near[a] for a in t)]
    changes += [
        {a: int(chance.choice([*near[a]])) for a in chosen}
        for chosen in islice(cycle(triples), TRIPLES)
    ]
    points = [p for p in map(trials.numbers_at, changes) if p != own]
    runs = tests = 0
    while runs < RUNS and not trials.cut:
        found = _fitting(trials)
        if not found:
            return ""
        foretold = [[_holds(each, point) for each in found] for point in points]
        apart = [i for i, holds in enumerate(foretold) if len({*holds}) > 1]
        wanted = [i for i, holds in enumerate(foretold) if holds[0] is (tests % 2 == 0)]
        if not apart and (tests >= TESTS * len(found[0]) or not wanted):
            alike = all(numbers_of(c) == own for c, fails in trials.points if fails)
            return "" if alike else _words(found[0])
        tells = _TELLING[tests // 2 % len(_TELLING)]
        about = {name for atom in found[0] for name in atom[2::2] if name in own}
        same = [sum(p[a] == own[a] for a in about) for p in points]
        at = min(apart or wanted, key=lambda i: (same[i], tells(points[i].values())))
        known = trials.at(points.pop(at)) is not Outcome.UNKNOWN
        runs += known
        tests += known and not apart
    return ""


def _holds(condition: Sequence[_Atom], point: _Point) -> bool:
    return all(
        holds(point[name], point[other] if isinstance(other, str) else other)
        for _, _, name, holds, other in condition
    )


def _fitting(trials: Trials) -> list[tuple[_Atom, ...]]:
    """Return conditions that hold wherever it fails and nowhere else, simple first."""
    own = numbers_of(trials.case)
    points = [(numbers_of(c), fails) for c, fails in trials.points]
    points = [(p, fails) for p, fails in points if own.keys() <= p.keys()]
    failing = [p for p, fails in points if fails]
    passing = [p for p, fails in points if not fails]
    atoms = [
        a
        for a in _atoms(trials.case, failing, passing)
        if all(_holds((a,), p) for p in failing)
    ]
    left = {a[1]: {i for i, p in enumerate(passing) if _holds((a,), p)} for a in atoms}
    atoms = [a for a in atoms if len(left[a[1]]) < len(passing)]
    made: list[tuple[_Atom, ...]] = [(a,) for a in atoms if not left[a[1]]]
    atoms = [a for a in atoms if left[a[1]]]
    pairs = combinations(atoms, 2)
    made += [p for p in pairs if left[p[0][1]].isdisjoint(left[p[1][1]])]
    return sorted(made, key=lambda c: sum(a[0] for a in c) + len(c))[:RIVALS]


def _atoms(
    case: Case, failing: Sequence[_Point], passed: Sequence[_Point]
) -> Iterator[_Atom]:
    """Yield what may hold of the numbers, with how far it is from simple."""
    own = numbers_of(case)
    names = {a: _name(case, a) for a in own}
    for a, n in own.items():
        low, high = (end(p[a] for p in failing) for end in (min, max))
        passing = {p[a] for p in passed}
        for k in {0, 1, low - 1} & {0, 1, *passing}:
            if k < n:
                yield 3 * (k > 1), f"{names[a]} > {k}", a, gt, k
        if high + 1 in passing:
            yield 3, f"{names[a]} < {high + 1}", a, lt, high + 1
        for k in _DIVISORS:
            yield 2, f"{names[a]} is no multiple of {k}", a, _leaves_rest, k
        yield 2, f"{names[a]} is no power of two", a, _is_no_power, 0
    for a, b in permutations(own, 2):
        yield 1, f"{names[a]} < {names[b]}", a, lt, b
        yield 1, f"{names[a]} <= {names[b]}", a, le, b
        yield 2, f"{names[a]} is no multiple of {names[b]}", a, _leaves_rest, b
        if a < b:
            yield 1, f"{names[a]} = {names[b]}", a, eq, b
            yield 1, f"{names[a]} and {names[b]} differ", a, ne, b


def _leaves_rest(n: int, whole: int) -> bool:
    return bool(whole) and n % whole > 0


def _is_no_power(n: int, _: int) -> bool:
    return n & (n - 1) > 0


def _words(condition: Sequence[_Atom]) -> str:
    """Return a condition in words: "1 < G < H" for "G > 1" and "G < H"."""
    texts = sorted((atom[1] for atom in condition), key=lambda t: " < " in t)
    if len(texts) > 1 and " > " in texts[0] and " < " in texts[1]:
        (a, _, low), (b, _, high) = (text.split() for text in texts)
        if a == b:
            return f"{low} < {a} < {high}"
    return " and ".join(texts)


def _name(case: Case, axis: str) -> str:
    """Return a dimension as code says it: "x.shape[1]" where it has no name."""
    lead = case.lead
    if axis not in lead.axes or axis != f"d{axis[1:]}":
        return axis
    name = next(n for n, s in case.tensors.items() if s is lead)
    return f"{name}.shape[{lead.axes.index(axis)}]"


def _sized(case: Case, sizes: Mapping[str, int]) -> Case:
    """Return the case with dimensions grown, contiguous, its values repeated.

    They end as the minimum's do: what is wrong of a tail is wrong at the end.
    """
    extended = _each(case, strides=None, offset=0)
    for axis, size in sizes.items():
        n = case.dims[axis]
        extended = kept(extended, axis, np.arange(-size, 0) % n)
    return extended


def _shape(case: Case, changed: Collection[str]) -> str:
    """Return the shapes of the arguments that changed, or all: "x [2], k = 3"."""
    every = case.tensors.items()
    told = [(n, s) for n, s in every if {*changed} & {*s.axes}] or every
    scalars = [f"{n} = {v}" for n, v in case.scalars.items() if n in changed]
    return ", ".join([*(f"{n} {[*s.shape]}" for n, s in told), *scalars])


def _joined(names: Sequence[str]) -> str:
    """Return "in a and b, with k = 1 and 2" of what was done, in words."""
    groups: dict[str, list[str]] = {}
    for name in names:
        start = re.match(r"with \w+ =|\w+", name)
        assert start is not None
        groups.setdefault(start[0], []).append(name[start.end() :].strip())
    return ", ".join(f"{start} {' and '.join(rest)}" for start, rest in groups.items())


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
