"""Repeats on a GPU, idle and busy: what equal calls in equal memory give."""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import torch
from torch import Tensor

from kfuzz.contracts.binding import Derived
from kfuzz.contracts.classes import ATTRIBUTION, CLASSES
from kfuzz.contracts.classes.order import unrepeatable
from kfuzz.contracts.evidence import Batches, Evidence, Miss, Permuted, Rows, Scaled
from kfuzz.contracts.gradients.operators import Backward, Way
from kfuzz.contracts.language import ORDERS as language_ORDERS
from kfuzz.contracts.language import Changed, Order, Probe, Scaling
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.reading import (
    ORDERS,
    accesses,
    agree,
    comparable,
    decided,
    miss_of,
)
from kfuzz.contracts.suite import judge
from kfuzz.core.random_streams import Purpose, stream
from kfuzz.core.recipe import Case, Fill
from kfuzz.core.verdict import Failure, Kind, Verdict, output_of
from kfuzz.evaluation.diagnosis import CaseCalls, Step, judge_explained
from kfuzz.execution.calls.results import Options
from kfuzz.execution.device.surroundings import Company
from kfuzz.execution.memory.poison import Poison
from kfuzz.numerics.acceptance import Acceptance
from kfuzz.numerics.accumulation import Accumulation, as_integers
from kfuzz.numerics.formats import Format, exponent_of, format_of, lowest_bit_exponent
from kfuzz.numerics.run import Run

ROUNDS: Final = 1
"""How often each repeat is made while searching."""

THOROUGH_ROUNDS: Final = 6
"""How often it is made where a finding hangs on it."""

_COMPANY: Final = {
    Probe.BACK_TO_BACK: Company.NONE,
    Probe.BESIDE_HELD: Company.HELD,
    Probe.BESIDE_COPIES: Company.STIRRED,
}


def with_loads(
    evidence: Evidence, repeat: Callable[[Company, int], Run], *, thorough: bool
) -> Evidence:
    """Return the evidence with repeats of its base run, up to the first that differs.

    Args:
        evidence: a case with its base run, whose results can be compared.
        repeat: makes the call again, in the same memory and beside other work, with
            the delay that follows from the case and the round.
        thorough: whether to leave less to chance.
    """
    if evidence.acceptance is None or not evidence.base.comparable:
        return evidence
    for turn in range(THOROUGH_ROUNDS if thorough else ROUNDS):
        extended = evidence
        delay = stream(evidence.case.drawn_delays + turn, Purpose.DELAYS)
        for probe, company in _COMPANY.items():
            run = repeat(company, delay)
            if run.unreliable:  # that company cannot be had here
                continue
            if not run.comparable:  # for want of memory, or of the device
                return extended
            extended = extended.running({probe: run})
            if unrepeatable(extended) is not None:
                return extended
    return extended


def loaded(evidence: Evidence, calls: CaseCalls, *, thorough: bool) -> Evidence:
    """Return the evidence with repeats of the case beside other work."""
    return with_loads(
        evidence,
        lambda company, delay: calls.call(
            evidence.acceptance, options=Options(company=company, delay=delay)
        ),
        thorough=thorough,
    )


STEP: Final = Step(
    tuple(_COMPANY),
    lambda evidence, calls: loaded(evidence, calls, thorough=calls.thorough),
    lambda evidence, calls: calls.on_gpu,
)
# Elsewhere what a call finds in free memory may differ from one to the next.
ON_MISS: Final = Step(
    tuple(_COMPANY),
    lambda evidence, calls: loaded(
        evidence, calls, thorough=calls.derived.case.pinned and calls.distinguishes
    ),
    lambda evidence, calls: (
        calls.on_gpu and calls.caller.stale and miss_of(evidence) is not None
    ),
)


# What a base run gives cause to: repeats, and a diagnosis of a miss.

# What repeats alone tell of a failure, whatever the shape.
_TOLD: frozenset[str] = frozenset(c.id for c in ATTRIBUTION if c.by_repeats)


def with_repeats(evidence: Evidence, calls: CaseCalls) -> Evidence:
    """Return the evidence with what its base run gives cause to."""
    if evidence.acceptance is None or not evidence.base.comparable:
        return evidence
    missed = miss_of(evidence) is not None
    if accesses(evidence, "race"):
        evidence = _with_orders(evidence, calls)
        if _is_told(judge(evidence, calls.classes)[1]):
            return evidence
    if not (missed or accesses(evidence, "unwritten")):
        return evidence
    runs = dict(evidence.runs)
    other = Poison.NAN if calls.poison is Poison.FINITE else Poison.FINITE
    if Probe.REPEAT not in runs:
        runs[Probe.REPEAT] = calls.call(evidence.acceptance)
    runs[Probe.OTHER_POISON] = calls.call(evidence.acceptance, poison=other)
    runs[Probe.OTHER_REPEAT] = calls.call(evidence.acceptance, poison=other)
    if missed and calls.asks(Probe.ELSEWHERE):
        runs[Probe.ELSEWHERE] = calls.call(evidence.acceptance, elsewhere=True)
    return replace(evidence, runs=runs)


def _is_told(failure: Failure | None) -> bool:
    """Whether a failure needs no further probe to be told from others."""
    return failure is not None and failure.contract in _TOLD


def _with_orders(evidence: Evidence, calls: CaseCalls) -> Evidence:
    """Return the evidence with other orders of programs, up to one that matters."""
    race = accesses(evidence, "race")[0]
    lasts = {Probe.ONE_LAST: race.program, Probe.OTHER_LAST: race.other}
    evidence = evidence.running({Probe.REPEAT: calls.call(evidence.acceptance)})
    for probe in ORDERS:
        reverse = probe is Probe.REVERSED
        options = Options(
            reverse=reverse, last=lasts.get(probe), outdated=probe is Probe.OUTDATED
        )
        evidence = evidence.running(
            {probe: calls.call(evidence.acceptance, options=options)}
        )
        # A program that waits for another makes some orders impossible.
        if comparable(evidence, probe) and not agree(evidence, Probe.BASE, probe):
            break
    return evidence


def _repeated(evidence: Evidence, calls: CaseCalls) -> Evidence:
    return ON_MISS(with_repeats(evidence, calls), calls)


REPEATING_STEP: Final = Step(
    (
        Probe.REPEAT,
        Probe.OTHER_POISON,
        Probe.OTHER_REPEAT,
        Probe.ELSEWHERE,
        *ORDERS,
        *ON_MISS.probes,
    ),
    _repeated,
    always=True,
)


def judge_repeated(
    evidence: Evidence,
    calls: CaseCalls,
    classes: Collection[str],
    *,
    repeat: bool = True,
    diagnose: bool = True,
) -> tuple[Evidence, dict[str, Verdict], Failure | None]:
    """Judge a case by its base run and what this gives cause to.

    Args:
        evidence: of the case, with its base run.
        calls: makes its further calls.
        classes: ids of the classes that judge it.
        repeat: whether to make repeats.
        diagnose: whether to find out what a miss depends on, where repeats do not
            tell; it is found out, too, where nothing is charged without.

    Returns:
        The evidence with all that was found; verdict per class; the failure.

    Raises:
        BindingError: if the operator's oracle or error model is malformed.
    """
    if repeat:
        evidence = REPEATING_STEP(evidence, calls)
    judged = judge_explained(evidence, classes)
    evidence, _, failure = judged
    # Where no class in force takes every miss, its cause says whether one takes this.
    diagnose = diagnose or failure is None
    if not diagnose or miss_of(evidence) is None or _is_told(failure):
        return judged
    diagnosis = calls.diagnosis
    return judge_explained(
        diagnosis.of(evidence, calls.derived),
        classes,
        diagnosis.arithmetic(calls.derived).of,
    )


# What protocols share that run a conforming case in a changed form.

T = TypeVar("T")
F = TypeVar("F", Order, Scaling)

PLAIN: Final = frozenset({"K-VAL-01", "C-CMP-01"})
"""The classes of a miss that no more specific one claims."""


def apart(calls: CaseCalls, given: Derived) -> Evidence | None:
    """Return the evidence of a case run in memory that no recent call has met.

    None where nothing of it could be judged.
    """
    evidence = calls.caller.apart()(given)
    return None if evidence is None or not decided(evidence) else evidence


def is_plain(calls: CaseCalls, given: Derived) -> bool:
    """Whether a changed case fails, and for no reason of its own.

    What is a narrow accumulator there, or a tail, is that class's, and found under it
    where such a case is drawn.
    """
    evidence = calls.caller.apart()(given)
    if evidence is None or miss_of(evidence) is None:
        return False
    own = replace(calls, derived=given)
    failure = judge_repeated(evidence, own, CLASSES)[2]
    return failure is not None and failure.contract in PLAIN


def pick(case: Case, choices: Sequence[T]) -> list[T]:
    """Return the one choice that a case's seed names, none if there are none."""
    if not choices:
        return []
    return [choices[stream(case.seed, Purpose.FORM) % len(choices)]]


def changes(
    calls: CaseCalls,
    tried: Iterable[tuple[F, Derived | None]],
    shown: Callable[[F, Derived, Evidence], Changed],
) -> tuple[Changed, ...]:
    """Return what changed forms of a case tell, up to the first that fails.

    Nothing where none fails and one misses for a reason that another class reports.

    Args:
        calls: makes the calls.
        tried: each form with the case in it, None where it changes nothing.
        shown: what a form shows whose results do not miss.
    """
    found: list[Changed] = []
    left = False
    for form, made in tried:
        there = None if made is None else apart(calls, made)
        if made is None or there is None:
            continue
        if miss_of(there) is None:
            found.append(shown(form, made, there))
        elif is_plain(calls, made):
            found.append(Changed(form, miss_of(there)))
        else:
            left = True
            continue
        if found[-1].miss is not None:
            return tuple(found)
    return () if left else tuple(found)


# The reduced dimension in another order: what a schedule may not depend on.
#
# kfuzz's definition of C-ORD-01: in whatever order a kernel meets what it reduces, the
# results lie within the bound of the declared accumulation. Two results of one sum then
# differ by no more than twice the bound and one rounding of the store each.


def reduced_name(operator: Operator, case: Case) -> str | None:
    """Return the name of the dimension that a case reduces; None if it has none."""
    if operator.dim is None and isinstance(operator.reduced, str):
        return operator.reduced
    axis, lead = operator.reduced_axis(case), case.lead
    rank = len(lead.axes)
    return None if axis is None or not -rank <= axis < rank else lead.axes[axis]


def orders(operator: Operator, case: Case) -> list[Order]:
    """Return the orders in which a case can be run, none where nothing is reduced."""
    axis = reduced_name(operator, case)
    names = tuple(n for n, s in case.tensors.items() if axis in s.axes)
    return (
        [Order(axis, names, order) for order in language_ORDERS]
        if axis and names
        else []
    )


def permuted(given: Derived, order: Order) -> Derived | None:
    """Return the case in another order; None where that changes no element."""
    values, changed = dict(given.values), False
    for name in order.arguments:
        x, axis = values[name], given.case.tensors[name].axes.index(order.axis)
        wanted = order.places(x.shape[axis])
        places = torch.tensor(wanted, device=x.device, dtype=torch.int64)
        raw = as_integers(x.contiguous())
        made = raw.index_select(axis, places)
        changed = changed or not torch.equal(made, raw)
        values[name] = made.contiguous().view(x.dtype)
    return Derived(given.case, values) if changed else None


def with_orders(evidence: Evidence, calls: CaseCalls) -> Evidence:
    """Return the evidence of a conforming case with what other orders gave."""
    given = calls.plain
    tried = ((o, permuted(given, o)) for o in orders(evidence.operator, given.case))
    found = changes(calls, tried, lambda order, *_: Changed(order))
    return evidence.knowing(Permuted(found))


PERMUTING_STEP: Final = Step((Probe.PERMUTED,), with_orders)


# Powers of two taken out of a homogeneous operator: what scaled data give.
#
# kfuzz's definition of C-PRC-04: a power of two is exact, so a kernel of sums and
# products gives the scaled results of scaled arguments, bit by bit where no value that
# it can meet overflows or is subnormal, before or after.

# A constant of a formula has 24 bits and is no less than 2^-8: so far below the
# lowest bits of the arguments lie those of a product with it.
_CONSTANT: Final = 32
# Rounding, and constants up to 4, enlarge a sum of magnitudes by no more.
_HEADROOM: Final = 4
# Powers beyond have no float64.
_MOST: Final = 1000
# A result near an end of the range may round on another grid once scaled.
_NEAR: Final = 4


_Extent = tuple[int, int, int]
"""Which exponents the non-zero finite elements of a tensor have: of the smallest
magnitude, of the greatest, and of the lowest bit of any."""


def _extent(values: Tensor) -> _Extent | None:
    """Return the extent of float64 values, None if all are 0 or not finite."""
    x = values[torch.isfinite(values) & (values != 0)]
    if x.numel() == 0:
        return None
    of = exponent_of(x)
    return int(of.min()), int(of.max()), int(lowest_bit_exponent(x).min())


@dataclass(frozen=True)
class _Range:
    """The exponents of one scaling that keep all values in range.

    Attributes:
        low: exponent under which no argument and no term becomes subnormal, the least
            one or, where subnormal numbers may be flushed, so far above it that what
            all terms may lose is less than the least of them.
        high: greatest under which none overflows, and no sum.
        exact: least exponent under which no bit of any term does; more than `high`
            where the arithmetic is not one in which that shows.
        floor: exponent below which no bit of any term lies as the case is.
    """

    low: int
    high: int
    exact: int
    floor: int


def scalings(evidence: Evidence, given: Derived) -> Iterator[tuple[Scaling, _Range]]:
    """Yield the scalings of a case: of each argument by either end of the range."""
    bitwise = evidence.declaration.determinism == "bitwise"
    floats = ((n, v) for n, v in given.values.items() if v.is_floating_point())
    exact = {n: v.to(torch.float64) for n, v in floats}
    extents = {n: e for n, x in exact.items() if (e := _extent(x)) is not None}
    finite = all(bool(torch.isfinite(x).all()) for x in exact.values())
    for text, degree in evidence.operator.homogeneous.items():
        names = tuple(n for n in text.split() if n in given.values)
        if not any(n in extents for n in names):
            continue
        kept = _range(evidence, given, extents, names, degree, finite=finite)
        low = kept.low
        if bitwise and kept.exact <= kept.high:
            low = max(low, kept.exact)
        for exponent in dict.fromkeys((kept.high, low)):
            if exponent and low <= kept.high:
                yield Scaling(names, exponent, degree), kept


def _top(fmt: Format) -> int:
    """Return the exponent of the greatest numbers of a format."""
    return math.frexp(fmt.max_finite)[1] - 1


def _range(
    evidence: Evidence,
    given: Derived,
    extents: Mapping[str, _Extent],
    names: tuple[str, ...],
    degree: int,
    *,
    finite: bool,
) -> _Range:
    """Return what exponents keep a case in range; see `_Range`.

    A term is at most a product of one element of each argument: of as many as the
    degree says of the scaled ones. Magnitudes below 1, or above, of an argument may
    be missing from it.
    """
    low, high = -_MOST, _MOST
    for name in names:
        if name in extents:
            fmt = format_of(given.values[name].dtype)
            low = max(low, fmt.emin - extents[name][0])
            high = min(high, _top(fmt) - 1 - extents[name][1])
    problem, claims = evidence.problem, evidence.declaration
    assert problem is not None
    assert evidence.acceptance is not None
    acc = Accumulation.declared(claims)
    held = [acc.format] if acc.stored is None else [acc.format, acc.stored]
    if claims.intermediates == "output":
        held.append(problem.output)
    least = max(f.emin for f in held)
    outputs = [a.output for a in evidence.acceptance.values() if not a.output.integral]
    most = min(_top(f) for f in (*held, *outputs))

    elements = max((v.numel() for v in given.values.values()), default=1)
    count = max(elements, 1).bit_length()
    top, bottom, floor = count + _HEADROOM, 0, 0
    for name, (least_here, greatest, lowest) in extents.items():
        times = max(degree, 1) if name in names else 1
        top += times * max(greatest + 1, 0)
        bottom += times * min(least_here, 0)
        floor += times * min(lowest, 0)
    floor -= max(degree, 1) * (_CONSTANT + count)
    if degree:
        high = min(high, (most - 1 - top) // degree)
        plain = -((bottom - least) // degree)
        # An operator that may flush loses what is least in each of so many terms: right
        # on the edge its tolerance would hide what the scaling is to show.
        lift = 0 if claims.subnormals == "preserve" else count + _HEADROOM
        lifted = -((bottom - least - lift) // degree)
        low = max(low, plain, min(lifted, high))
    # What a gradient multiplies with may be no product of arguments.
    forward = evidence.operator.forward
    exact = high + 1
    if (
        finite
        and floor >= least
        and top <= most - 1
        and not (claims.algorithm or claims.approx or claims.store == "stochastic")
        and (forward is None or forward.homogeneous)
    ):
        exact = -((floor - least) // degree) if degree else low
    return _Range(low, high, exact, floor)


def scaled(given: Derived, scaling: Scaling) -> Derived | None:
    """Return the scaled case; None where an argument has no such element."""
    values = dict(given.values)
    for name in scaling.arguments:
        x = values[name].to(torch.float64)
        wanted = x * 2.0**scaling.exponent
        made = wanted.to(values[name].dtype)
        back = made.to(torch.float64)
        if not bool(((back == wanted) | wanted.isnan()).all()):
            return None
        values[name] = made
    return Derived(given.case, values)


def with_scaling(evidence: Evidence, calls: CaseCalls) -> Evidence:
    """Return the evidence of a conforming case with what scaled data gave."""
    given = calls.plain
    tried = list(scalings(evidence, given))
    if not calls.thorough:
        chosen = pick(given.case, sorted({s.arguments for s, _ in tried}))
        tried = [t for t in tried if t[0].arguments in chosen]
    ranges = dict(tried)

    def shown(scaling: Scaling, made: Derived, there: Evidence) -> Changed:
        kept, miss = ranges[scaling], None
        if evidence.declaration.determinism == "bitwise":
            miss = _changed_bits(evidence, given, made, there, scaling, kept, calls)
        if miss is None:
            return Changed(scaling)
        stays = output_of(miss.output) in evidence.operator.integers
        return Changed(scaling, miss, 0 if stays else scaling.exponent * scaling.degree)

    each = ((scaling, scaled(given, scaling)) for scaling, _ in tried)
    return evidence.knowing(Scaled(changes(calls, each, shown)))


def _changed_bits(
    evidence: Evidence,
    given: Derived,
    made: Derived,
    there: Evidence,
    scaling: Scaling,
    kept: _Range,
    calls: CaseCalls,
) -> Miss | None:
    """Return the first element whose bits do not scale, or None.

    What another place in memory changes, or a repeat, counts for nothing.
    """
    if (
        scaling.exponent < kept.exact
        or _differing(evidence, there, scaling, kept) is None
    ):
        return None
    # In the same places of one memory.
    run = calls.caller.apart()
    plain, other, plain_again, other_again = map(run, (given, made, given, made))
    if not (plain and other and plain_again and other_again):
        return None
    if not (_same(plain, plain_again) and _same(other, other_again)):
        return None
    return _differing(plain, other, scaling, kept)


def _same(one: Evidence, other: Evidence) -> bool:
    left, right = one.base.outputs, other.base.outputs
    return all(
        torch.equal(y.to(torch.float64), right[name].to(torch.float64))
        for name, y in left.items()
    )


def _differing(
    plain: Evidence, other: Evidence, scaling: Scaling, kept: _Range
) -> Miss | None:
    """Return the first result that is not the plain one times the power of two."""
    assert plain.acceptance is not None
    for name, accepted in plain.acceptance.items():
        shift = 0 if accepted.output.integral else scaling.exponent * scaling.degree
        y = plain.base.outputs[name].to(torch.float64)
        wanted, got = y * 2.0**shift, other.base.outputs[name].to(torch.float64)
        wrong = _tells(accepted, y, wanted, kept.floor + min(shift, 0)) & (
            got != wanted
        )
        at = wrong.nonzero()
        if len(at):
            index = tuple(int(i) for i in at[0])
            due = float(wanted[index])
            return Miss(
                output=name, kind=Kind.VALUE, index=index, got=float(got[index]),
                expected=due, low=due, high=due, ratio=None,
                elements=int(wrong.sum()), of=wrong.numel(),
            )  # fmt: skip
    return None


def _tells(accepted: Acceptance, y: Tensor, wanted: Tensor, floor: int) -> Tensor:
    """Return where a stored result and the scaled one are rounded alike.

    Zeros are, where no result so small as to vanish is possible.
    """
    fmt = accepted.output
    if fmt.integral:
        return torch.ones_like(y, dtype=torch.bool)
    apart = torch.ones_like(y, dtype=torch.bool)
    for x in (y, wanted):
        size = x.abs()
        within = (size >= _NEAR * fmt.min_normal) & (size <= fmt.max_finite / _NEAR)
        apart = apart & within
    return apart | (y == 0) if floor >= fmt.emin else apart


SCALING_STEP: Final = Step(
    (Probe.SCALED, Probe.SCALED_REPEAT, Probe.UNSCALED, Probe.UNSCALED_REPEAT),
    with_scaling,
)


# Batch invariance: the same rows in other batches, for kernels that declare it.

# Two rows are the fewest of which a batch can be a part.
_FEWEST: Final = 2
# Few rows are where kernels choose another split or another tile.
_FEW: Final = (1, 2, 3, 5)


def with_batches(evidence: Evidence, calls: CaseCalls) -> Evidence:
    """Return the evidence with the case twice, then parts: fewer rows, or reordered.

    Unchanged where that is not declared, or the case has no two rows along a leading
    axis. A part that the declaration excludes is left out.
    """
    operator, claims, whole = (
        evidence.operator,
        evidence.declaration,
        evidence.acceptance,
    )
    derived = calls.plain
    axis = batch_axis(operator, derived.case)
    if not claims.batch_invariant or axis is None or whole is None:
        return evidence
    n = derived.case.dims[axis]
    found: list[Rows] = []
    axes: Mapping[str, int] | None = None
    # Rows can change places where none of them share memory.
    sharing = (s for s in derived.case.tensors.values() if axis in s.axes)
    for rows in _parts(n, reordered=all(s.is_contiguous for s in sharing)):
        part = taken(derived, axis, rows)
        if not operator.accepts(part.case, claims):
            continue
        wanted = calls.caller.accepted(part)
        if wanted is None:
            continue
        if len(rows) < n:
            if whole.keys() != wanted.keys():
                return evidence
            sizes = n, len(rows)
            places = {
                name: axis_of_rows(a.shape, wanted[name].shape, sizes)
                for name, a in whole.items()
            }
            axes = {name: at for name, at in places.items() if at is not None}
            if len(axes) < len(places):
                return evidence
        if axes is not None:
            found.append(Rows(rows, axes, calls.call(wanted, part)))
    if axes is None or not found:
        return evidence
    everything = tuple(range(n))
    twice = [Rows(everything, axes, calls.call(whole, derived)) for _ in "12"]
    return evidence.knowing(Batches((*twice, *found)))


def batch_axis(operator: Operator, case: Case) -> str | None:
    """Return the dimension of independent rows; None where the case has none.

    It is the first axis of every tensor that has it, no index is below it, and it is
    not reduced.
    """
    name = operator.batch or "d0"
    specs = case.tensors.values()
    holding = [s for s in specs if name in s.axes]
    if not holding or case.dims[name] < _FEWEST:
        return None
    if any(s.axes[0] != name for s in holding) or any(s.below == name for s in specs):
        return None
    reduced = operator.reduced_axis(case)
    if reduced is not None and case.lead.axes[reduced] == name:
        return None
    return name


def taken(derived: Derived, axis: str, rows: tuple[int, ...]) -> Derived:
    """Return the case with some of its rows, each tensor laid out as it was."""
    tensors, values = {}, {}
    for name, spec in derived.case.tensors.items():
        tensors[name], values[name] = spec, derived.values[name]
        if axis not in spec.axes:
            continue
        x = values[name]
        index = torch.tensor(rows, device=x.device)
        # As integers: float8 has no operators.
        values[name] = as_integers(x).index_select(0, index).view(x.dtype)
        # The values are given apart: a recipe has to name some.
        fill = spec.fill or Fill("zeros")
        shape = (len(rows), *spec.shape[1:])
        tensors[name] = replace(spec, shape=shape, fill=fill, plants=(), values=None)
    return Derived(replace(derived.case, tensors=tensors, edge=None), values)


def _parts(n: int, *, reordered: bool) -> Iterator[tuple[int, ...]]:
    """Yield rows of batches other than the whole, the fewest first."""
    for count in sorted({c for c in (*_FEW, n // 2, n - 1) if 0 < c < n}):
        yield tuple(range(count))
    yield (n - 1,)
    if reordered:
        yield tuple(range(n - 1, -1, -1))


def axis_of_rows(
    one: tuple[int, ...], other: tuple[int, ...], rows: tuple[int, int]
) -> int | None:
    """Return the axis of two shapes that holds so many rows; None if none does."""
    differ = [i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b]
    if len(one) != len(other) or len(differ) != 1:
        return None
    at = differ[0]
    return at if (one[at], other[at]) == rows else None


BATCHES_STEP: Final = Step((Probe.SLICED,), with_batches)


# The same gradients, asked of autograd in other ways; see `Way`.

PROBES: Final = {
    Way.ALONE: Probe.ONE_WANTED,
    Way.TWICE: Probe.TWO_RESULTS,
    Way.LATER: Probe.LATER_BACKWARD,
    Way.AGAIN: Probe.SECOND_BACKWARD,
    Way.OVERWRITTEN: Probe.RESULT_OVERWRITTEN,
}


def with_ways(evidence: Evidence, calls: CaseCalls) -> Evidence:
    """Return the evidence of conforming gradients with what other ways gave.

    The first way that shows a fault is the last one tried.
    """
    function = calls.caller.kernel.function
    if not isinstance(function, Backward):
        return evidence
    wanted = function.wanted
    alone = list(wanted) if calls.thorough else pick(evidence.case, wanted)
    asked = [(Way.ALONE, name) for name in alone if len(wanted) > 1]
    asked += [(way, "") for way in Way if way is not Way.ALONE]
    for way, argument in asked:
        instead = function.asked(way, argument)
        run = calls.call(evidence.acceptance, calls.plain, instead=instead)
        if run.unreliable:
            continue
        shown = _comparable(evidence, run, way, f"d{argument}")
        evidence = evidence.running({PROBES[way]: shown})
        if shown.raised or shown.metadata or miss_of(evidence, PROBES[way]) is not None:
            break
    return evidence


def _comparable(evidence: Evidence, run: Run, way: Way, output: str) -> Run:
    """Return a run with the case's own results where nothing is to be compared.

    Of one argument alone the other gradients are none; twice a gradient may overflow.
    """
    if not run.comparable:
        return run
    outputs = dict(run.outputs)
    for name, own in evidence.base.outputs.items():
        if way is Way.ALONE and name != output:
            outputs[name] = own
        elif way is Way.TWICE:
            beyond = ~torch.isfinite(outputs[name]) & torch.isfinite(own)
            outputs[name] = torch.where(beyond, own, outputs[name])
    return replace(run, outputs=outputs)


GRADIENTS_STEP: Final = Step(
    tuple(PROBES.values()),
    with_ways,
    lambda evidence, calls: evidence.operator.forward is not None,
)
