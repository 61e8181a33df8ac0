"""Powers of two taken out of a homogeneous operator: what scaled data give.

kfuzz's definition of C-PRC-04: a power of two is exact, so a kernel of sums and
products gives the scaled results of scaled arguments, bit by bit where no value that
it can meet overflows or is subnormal, before or after.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from kfuzz.contracts.changed import Changed, Scaling
from kfuzz.contracts.derive import Derived
from kfuzz.contracts.evidence import Evidence, Miss, Scaled
from kfuzz.contracts.language import Probe
from kfuzz.contracts.reading import miss_of
from kfuzz.core.results import output_of
from kfuzz.core.verdict import Kind
from kfuzz.evaluation.case_calls import CaseCalls, Step
from kfuzz.evaluation.probes.relational import apart, is_plain, pick, told
from kfuzz.numerics.acceptance import Acceptance
from kfuzz.numerics.accumulation import Accumulation
from kfuzz.numerics.formats import Format, exponent_of, format_of, lowest_bit_exponent

# A constant of a formula has 24 bits and is no less than 2^-8: so far below the
# lowest bits of the arguments lie those of a product with it.
_CONSTANT: Final = 32
# Rounding, and constants up to 4, enlarge a sum of magnitudes by no more.
_HEADROOM: Final = 4
# Powers beyond have no float64.
_MOST: Final = 1000
# A result near an end of the range may round on another grid once scaled.
_NEAR: Final = 4


@dataclass(frozen=True)
class _Extent:
    """Which exponents the non-zero finite elements of a tensor have.

    Attributes:
        least: of the smallest magnitude.
        greatest: of the greatest.
        lowest: of the lowest bit of any.
    """

    least: int
    greatest: int
    lowest: int

    @classmethod
    def of(cls, values: Tensor) -> "_Extent | None":
        """Return the extent of float64 values, None if all are 0 or not finite."""
        x = values[torch.isfinite(values) & (values != 0)]
        if x.numel() == 0:
            return None
        exponents = exponent_of(x)
        return cls(
            int(exponents.min()),
            int(exponents.max()),
            int(lowest_bit_exponent(x).min()),
        )


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
    exact = {n: v.to(torch.float64) for n, v in given.values.items() if _is_float(v)}
    extents = {n: e for n, x in exact.items() if (e := _Extent.of(x)) is not None}
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


def _is_float(values: Tensor) -> bool:
    return values.is_floating_point()


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
            fmt, extent = format_of(given.values[name].dtype), extents[name]
            low = max(low, fmt.emin - extent.least)
            high = min(high, _top(fmt) - 1 - extent.greatest)
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
    for name, extent in extents.items():
        times = max(degree, 1) if name in names else 1
        top += times * max(extent.greatest + 1, 0)
        bottom += times * min(extent.least, 0)
        floor += times * min(extent.lowest, 0)
    floor -= max(degree, 1) * (_CONSTANT + count)
    if degree:
        high = min(high, (most - 1 - top) // degree)
        plain = -((bottom - least) // degree)
        # An operator that may flush loses what is least in each of so many terms: right
        # on the edge its tolerance would hide what the scaling is to show.
        lift = 0 if claims.subnormals == "preserve" else count + _HEADROOM
        lifted = -((bottom - least - lift) // degree)
        low = max(low, plain, min(lifted, high))
    provable = finite and floor >= least and top <= most - 1
    provable = provable and not claims.algorithm and not claims.approx
    provable = provable and claims.store != "stochastic"
    # What a gradient multiplies with may be no product of arguments.
    forward = evidence.operator.forward
    provable = provable and (forward is None or bool(forward.homogeneous))
    exact = high + 1
    if provable:
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
    found: list[Changed] = []
    left = False
    for scaling, kept in tried:
        made = scaled(given, scaling)
        there = None if made is None else apart(calls, made)
        if made is None or there is None:
            continue
        if miss_of(there) is not None:
            if is_plain(calls, made):
                found.append(Changed(scaling, miss_of(there)))
                break
            left = True
            continue
        other = None
        if evidence.declaration.determinism == "bitwise":
            other = _changed_bits(evidence, given, made, there, scaling, kept, calls)
        if other is not None:
            found.append(Changed(scaling, other, _shift(evidence, other, scaling)))
            break
        found.append(Changed(scaling))
    return evidence.knowing(Scaled(told(found, left=left)))


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
    runs: list[Evidence] = []
    for case in (given, made, given, made):
        if (ran := run(case)) is None:
            return None
        runs.append(ran)
    plain, other, plain_again, other_again = runs
    if not (_same(plain, plain_again) and _same(other, other_again)):
        return None
    return _differing(plain, other, scaling, kept)


def _shift(evidence: Evidence, miss: Miss, scaling: Scaling) -> int:
    """Return by which power of two an output has to grow; integers stay."""
    stays = output_of(miss.output) in evidence.operator.integers
    return 0 if stays else scaling.exponent * scaling.degree


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


STEP: Final = Step(
    (Probe.SCALED, Probe.SCALED_REPEAT, Probe.UNSCALED, Probe.UNSCALED_REPEAT),
    with_scaling,
    place=(7, 1),
)
