"""What evidence says: pure functions of what probes left and what is accepted.

The contract classes import this, and listing them must not import torch.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakKeyDictionary

from kfuzz.contracts.evidence import (
    OTHER_DATA,
    Builds,
    Difference,
    Evidence,
    Miss,
    OpCheck,
    Rows,
)
from kfuzz.contracts.language import Probe
from kfuzz.contracts.operator import Operator
from kfuzz.core.recipe import Case, is_dtype, unravel
from kfuzz.core.verdict import Access, Kind

if TYPE_CHECKING:
    from torch import Tensor

    from kfuzz.numerics.acceptance import Acceptance
    from kfuzz.numerics.compare import Comparison
    from kfuzz.numerics.run import Run


# The core domain, which a kernel has to take: what of a case lies beyond it.
#
# The usual rank (2, of indices 1), contiguous, float32, sizes from 1 up, finite, the
# last dimension reduced, with every tensor that the kernel takes; and whatever is
# declared explicitly.

# What the aspect of an optional tensor that a case is without begins with.
WITHOUT: Final = "no "
# And that of one which it has.
GIVEN: Final = "optional tensor "
# And that of a rank.
RANK: Final = "rank "


def aspects_beyond_core(
    case: Case,
    operator: Operator,
    explicit: Collection[str],
    *,
    finite: bool,
    lacking: Sequence[str] = (),
) -> tuple[str, ...]:
    """Return the aspects of a case that lie in the default breadth only, in words.

    Args:
        case: with the destinations that the kernel was given.
        operator: what it asks to compute.
        explicit: names of the claims that the author wrote down.
        finite: whether the inputs are.
        lacking: the optional tensors that the kernel takes and the case is without.
    """
    aspects = [f"{WITHOUT}{name}" for name in lacking]
    specs = case.tensors.values()
    data = [s for s in specs if s.numel or s.shape]
    if any(0 in s.shape for s in specs) and "shape_class" not in explicit:
        aspects.append("zero-size input")
    if "layouts" not in explicit:
        given = [d.spec() for d in case.destinations.values()]
        if any(not s.is_contiguous for s in data):
            aspects.append("non-contiguous input")
        if any(not s.is_contiguous for s in given):
            aspects.append("non-contiguous destination")
        if any(s.offset for s in (*specs, *given)):
            aspects.append("storage offset")
    if "dtypes" not in explicit:
        aspects += _unusual_dtypes(case, operator)
    if "ranks" not in explicit:
        aspects += _unusual_rank(case, operator)
    if operator.dim is not None and "dims" not in explicit:
        axis = operator.reduced_axis(case)
        if axis != -1:
            aspects.append("dim other than the last")
    if not finite and "nonfinite" not in explicit:
        aspects.append("non-finite input")
    return tuple(aspects)


def _unusual_dtypes(case: Case, operator: Operator) -> list[str]:
    """Return the declared dtype that the case takes, if not float32."""
    own = {n for n, p in operator.tensors.items() if p.dtype}
    tensors = case.tensors.items()
    found = {s.dtype for n, s in tensors if n not in own and not s.below}
    found |= {str(v) for v in case.scalars.values() if is_dtype(v)}
    return [f"dtype {name}" for name in sorted(found - {"float32"})]


def _unusual_rank(case: Case, operator: Operator) -> list[str]:
    """Return the rank that varies, if not the usual one (of indices 1).

    It is that of the tensors with most named dimensions, which settles the others'.
    """
    widest = operator.widest(case)
    for name, spec in sorted(
        case.tensors.items(), key=lambda item: bool(item[1].below)
    ):
        parameter, rank = operator.tensors[name], len(spec.shape)
        whole = parameter.variadic and not parameter.without
        if whole and len(parameter.names) == widest:
            usual = 1 if spec.below else operator.usual_rank
            of_indices = f" of {name}" if spec.below else ""
            return [] if rank == usual else [f"{RANK}{rank}{of_indices}"]
    return []


def given_optionals(case: Case, operator: Operator) -> tuple[str, ...]:
    """Return the aspects of a case that are its optional tensors, in words.

    They are of the core domain where the kernel has a parameter for them.
    """
    tensors = operator.tensors
    given = (n for n in case.tensors if tensors[n].optional)
    return tuple(f"{GIVEN}{name}" for name in given if name not in operator.listed)


def is_friendly(case: Case) -> bool:
    """Whether all sizes are powers of two from 16 up, contiguous."""
    return all(
        s.is_contiguous and all(n >= 16 and n & (n - 1) == 0 for n in s.shape)
        for s in case.tensors.values()
    )


T = TypeVar("T")

# Orders of programs, and of their accesses, other than the usual.
ORDERS: Final = (
    Probe.REVERSED, Probe.OUTDATED, Probe.ONE_LAST, Probe.OTHER_LAST,
)  # fmt: skip

# Repeats on a GPU, each with what ran meanwhile, in words.
UNDER_LOAD: Final = {
    Probe.BACK_TO_BACK: "",
    Probe.BESIDE_HELD: " while another kernel holds a part of the multiprocessors",
    Probe.BESIDE_COPIES: " while copies keep the memory busy",
}

# Base runs with what each was last held against, and all runs with their misses: a case
# is read many times. Comparisons are as large as results, so those of others go.
_COMPARED: WeakKeyDictionary[Run, tuple[object, dict[str, Comparison]]]
_COMPARED = WeakKeyDictionary()
_MISSES: WeakKeyDictionary[Run, tuple[object, Miss | None]] = WeakKeyDictionary()


def _once(fact: Callable[[Evidence], T]) -> Callable[[Evidence], T]:
    """Have a fact of an evidence remembered as long as this lives."""

    @functools.wraps(fact)
    def remembered(evidence: Evidence) -> T:
        kept = evidence.concluded
        if fact not in kept:
            kept[fact] = fact(evidence)
        made: T = kept[fact]
        return made

    return remembered


def accepted(evidence: Evidence, probe: Probe) -> Mapping[str, Acceptance] | None:
    """Return what is accepted for the data of a probe; None where undefined."""
    other = probe in OTHER_DATA
    return evidence.others.get(probe) if other else evidence.acceptance


def comparisons(evidence: Evidence, probe: Probe) -> Mapping[str, Comparison]:
    """Return the comparison of each output of a probe; none where impossible."""
    run, wanted = evidence.runs.get(probe), accepted(evidence, probe)
    if run is None or not run.comparable or wanted is None:
        return {}
    known = _COMPARED.get(run)
    if known is not None and known[0] is wanted:
        return known[1]
    from kfuzz.contracts.oracle import compare_all

    made = compare_all(run.outputs, wanted)
    if probe is Probe.BASE:
        _COMPARED[run] = wanted, made
    return made


def comparison(
    evidence: Evidence, output: str, probe: Probe = Probe.BASE
) -> Comparison | None:
    """Return the comparison of one output of one probe, None if impossible."""
    return comparisons(evidence, probe).get(output)


@_once
def decided(evidence: Evidence) -> int:
    """Output elements of the base run that could be judged."""
    made = comparisons(evidence, Probe.BASE).values()
    return sum(m.outcomes.numel() for m in made) - undecided(evidence)


@_once
def undecided(evidence: Evidence) -> int:
    """Output elements of the base run that could not be judged."""
    from kfuzz.numerics.compare import Outcome

    made = comparisons(evidence, Probe.BASE).values()
    return sum(int((m.outcomes == Outcome.UNDECIDED).sum()) for m in made)


@_once
def unjudged(evidence: Evidence) -> tuple[str, ...]:
    """Results of the base run of whose elements none could be judged.

    Of those that hold numbers, where there are such: that NaN stays NaN tells nothing
    of the others.
    """
    every = _open_elements(evidence).items()
    return tuple(
        name
        for name, (open_, numbers) in every
        if bool((open_ | ~numbers if bool(numbers.any()) else open_).all())
    )


@_once
def compared(evidence: Evidence) -> dict[str, bool]:
    """Whether some number of a result of the base run was judged, if it has any."""
    left = unjudged(evidence)
    every = _open_elements(evidence).items()
    return {n: n not in left for n, (_, numbers) in every if bool(numbers.any())}


def is_decided(evidence: Evidence) -> bool:
    """Whether each result of the base run that has elements could be judged."""
    return bool(_open_elements(evidence)) and not unjudged(evidence)


@_once
def _open_elements(evidence: Evidence) -> dict[str, tuple[Tensor, Tensor]]:
    """Return where each result with elements cannot be judged, and has a number."""
    import torch

    from kfuzz.numerics.compare import Outcome

    return {
        name: (
            made.outcomes == Outcome.UNDECIDED,
            torch.isfinite(made.acceptance.reference),
        )
        for name, made in comparisons(evidence, Probe.BASE).items()
        if made.outcomes.numel()
    }


@_once
def worst_ratio(evidence: Evidence) -> float:
    """Largest |error| / tolerance of the base run."""
    made = comparisons(evidence, Probe.BASE).values()
    return max((float(m.ratio.max()) for m in made if m.ratio.numel()), default=0.0)


def miss_of(evidence: Evidence, probe: Probe = Probe.BASE) -> Miss | None:
    """Return the worst miss of the first output that misses; None if none."""
    run, wanted = evidence.runs.get(probe), accepted(evidence, probe)
    if run is None:
        return None
    known = _MISSES.get(run)
    if known is None or known[0] is not wanted:
        every = comparisons(evidence, probe)
        missing = {n: made for n, made in every.items() if bool(made.missed.any())}
        miss = None
        if missing:
            name, made = next(iter(missing.items()))
            near = all(map(_is_near, missing.values()))
            miss = replace(_worst(evidence, name, made, probe), near=near)
        known = _MISSES[run] = wanted, miss
    return known[1]


def _is_near(made: Comparison) -> bool:
    """Whether all elements that miss lie within four times the derived bound."""
    from kfuzz.numerics.shadow import SAFETY

    got, expected = made.value, made.acceptance.reference
    room = (made.high - expected).where(got > expected, expected - made.low)
    far = (got - expected).abs() * made.acceptance.safety
    near = room.isfinite() & (far < SAFETY * room)
    if made.unrelated is not None:
        near = near & ~made.unrelated
    return bool(near[made.missed].all())


def _worst(evidence: Evidence, name: str, made: Comparison, probe: Probe) -> Miss:
    from kfuzz.numerics.compare import KIND_OF, Outcome

    outcomes = made.outcomes.flatten()
    severest = int(outcomes.max())
    # Among equals the largest ratio, then the largest error, then the first.
    score = made.ratio.where(made.tolerance > 0, made.error).flatten()
    score = score.where(outcomes == severest, -1.0)
    index = unravel(int(score.argmax()), made.outcomes.shape)
    kind, count = KIND_OF[Outcome(severest)], int(made.missed.sum())
    miss = miss_at(evidence, name, index[1:], kind, count, probe)
    return replace(miss, ratio=miss.excess)


def miss_at(
    evidence: Evidence,
    output: str,
    index: tuple[int, ...],
    kind: Kind,
    elements: int,
    probe: Probe = Probe.BASE,
) -> Miss:
    """Return one element of a probe as a miss, without its ratio."""
    made, wanted = comparison(evidence, output, probe), accepted(evidence, probe)
    assert made is not None
    assert wanted is not None
    at = (0, *index)
    miss = Miss(
        output=output,
        kind=kind,
        index=index,
        got=float(evidence.runs[probe].outputs[output][index]),
        expected=float(wanted[output].reference[at]),
        low=float(made.low[at]),
        high=float(made.high[at]),
        ratio=None,
        elements=elements,
        of=made.outcomes.numel(),
    )
    exact = wanted[output].exact
    if exact is not None and miss.got == miss.expected:
        # Float64 does not tell them apart.
        got = int(evidence.runs[probe].outputs[output][index])
        text = f"{got}, not {int(exact[at])}"
        return replace(miss, expected=None, low=None, high=None, promise=text)
    if made.unrelated is None or not bool(made.unrelated[at]):
        return miss
    from kfuzz.contracts.oracle import promise

    text = promise(evidence.operator)
    return replace(miss, expected=None, low=None, high=None, promise=text)


def spacings_off(evidence: Evidence, miss: Miss) -> float:
    """Return how far a result lies from what is admitted.

    In distances between neighbours of its format at the greater magnitude of both,
    infinite where no finite number is held against another.
    """
    from kfuzz.numerics.formats import FORMATS, WHOLE

    if miss.kind is not Kind.VALUE or miss.low is None or miss.high is None:
        return math.inf
    dtype = str(evidence.base.outputs[miss.output].dtype).removeprefix("torch.")
    far = max(miss.low - miss.got, miss.got - miss.high)
    greatest = max(abs(miss.got), abs(miss.low), abs(miss.high))
    spacing = greatest * 2.0 ** (1 - {**WHOLE, **FORMATS}[dtype].precision)
    return far / spacing if spacing else math.inf


def comparable(evidence: Evidence, *probes: Probe) -> bool:
    """Whether all these probes ran and left results of the right metadata."""
    for probe in probes:
        run = evidence.runs.get(probe)
        if run is None or not run.comparable:
            return False
    return True


def differing(evidence: Evidence, one: Probe, other: Probe) -> dict[str, Tensor]:
    """Return, per output, where two comparable probes left other bits."""
    from kfuzz.numerics.accumulation import same_bits

    left, right = evidence.runs[one].outputs, evidence.runs[other].outputs
    return {name: ~same_bits(y, right[name]) for name, y in left.items()}


def rows_differing(part: Rows, whole: Rows) -> dict[str, Tensor]:
    """Return, per output, where rows hold other bits than they have in the whole."""
    import torch

    from kfuzz.numerics.accumulation import as_integers, same_bits

    places = {}
    for name, made in part.run.outputs.items():
        rows = torch.tensor(part.rows, device=made.device)
        bits = as_integers(whole.run.outputs[name]).index_select(part.axes[name], rows)
        places[name] = ~same_bits(bits.view(made.dtype), made)
    return places


def difference(evidence: Evidence, one: Probe, other: Probe) -> Difference | None:
    """Return the first element in which two comparable probes left other bits."""
    places = differing(evidence, one, other)
    if (found := first_of(places)) is None:
        return None
    output, index = found
    left, right = (evidence.runs[p].outputs[output][index] for p in (one, other))
    elements = int(places[output].sum())
    return Difference(output, index, float(left), float(right), elements)


def agree(evidence: Evidence, one: Probe, other: Probe) -> bool:
    """Whether two probes ran and left the same bits in every output."""
    if not comparable(evidence, one, other):
        return False
    return not any(bool(d.any()) for d in differing(evidence, one, other).values())


def conforms(evidence: Evidence, probe: Probe) -> bool:
    """Whether a probe ran and every element of it is admitted."""
    if not comparable(evidence, probe) or accepted(evidence, probe) is None:
        return False
    return miss_of(evidence, probe) is None


def first_of(places: Mapping[str, Tensor]) -> tuple[str, tuple[int, ...]] | None:
    """Return the output and index of the first True element, None if none."""
    for name, mask in places.items():
        found = mask.nonzero()
        if len(found):
            return name, tuple(int(i) for i in found[0])
    return None


def accesses(evidence: Evidence, where: str) -> tuple[Access, ...]:
    """Return the base run's accesses of one sort."""
    return tuple(a for a in evidence.base.accesses if a.where == where)


def follows_poison(evidence: Evidence) -> Miss | None:
    """Return the first element whose acceptance follows the poison, or None.

    An element counts if it is admitted under one poison and not under the
    other, or misses under both with different bits, while repeats under
    the same poison agree bit for bit. Different bits alone suffice where
    determinism is declared bitwise, and where the kernel was seen to load
    elements that nothing wrote, unless the store is stochastic.
    """
    probes = (Probe.REPEAT, Probe.OTHER_POISON, Probe.OTHER_REPEAT)
    if not comparable(evidence, Probe.BASE, *probes):
        return None
    claims = evidence.declaration
    bits_suffice = bool(accesses(evidence, "unwritten"))
    bits_suffice = bits_suffice or claims.determinism == "bitwise"
    # Other bits may be another draw, whatever the poison.
    bits_suffice = bits_suffice and claims.store != "stochastic"
    unstable = differing(evidence, Probe.BASE, Probe.REPEAT)
    unstable_other = differing(evidence, Probe.OTHER_POISON, Probe.OTHER_REPEAT)
    first = comparisons(evidence, Probe.BASE)
    other = comparisons(evidence, Probe.OTHER_POISON)
    for name, differs in differing(evidence, Probe.BASE, Probe.OTHER_POISON).items():
        if name not in first or name not in other:
            return None
        follows = differs & ~unstable[name] & ~unstable_other[name]
        if not bits_suffice:
            follows = follows & (first[name].missed[0] | other[name].missed[0])
        found = first_of({name: follows})
        if found is not None:
            return miss_at(evidence, *found, Kind.UNWRITTEN, int(follows.sum()))
    return None


def place_of(access: Access) -> str:
    """Return where in the source and in which program an access happened."""
    parts = []
    if access.line:
        parts.append(f"at {access.line}")
    if access.program is not None:
        parts.append(f"in program {access.program}")
    return " ".join(parts)


@_once
def inputs_finite(evidence: Evidence) -> bool:
    """Whether no input element is NaN or infinite."""
    assert evidence.problem is not None
    if evidence.nonfinite is not None:  # the problem holds zeros instead
        return False
    tensors = evidence.problem.tensors.values()
    return all(bool(t.isfinite().all()) for t in tensors)


@_once
def keeps_subnormals(evidence: Evidence) -> bool:
    """Whether all that misses are subnormal results where flush is declared."""
    from kfuzz.numerics.formats import is_subnormal

    if evidence.declaration.subnormals != "flush" or evidence.acceptance is None:
        return False
    kept = False
    for name, wanted in evidence.acceptance.items():
        made = comparison(evidence, name)
        if made is None:
            return False
        small = is_subnormal(evidence.base.outputs[name].double(), wanted.output)
        if bool((made.missed[0] & ~small).any()):
            return False
        kept = kept or bool(made.missed.any())
    return kept


@_once
def subnormals_matter(evidence: Evidence) -> bool:
    """Whether an argument or an expected result is a subnormal number."""
    from kfuzz.numerics.formats import FORMATS, is_subnormal

    if evidence.problem is None or evidence.acceptance is None:
        return False
    formats = {n: FORMATS.get(s.dtype) for n, s in evidence.case.tensors.items()}
    met = [(x, formats[n]) for n, x in evidence.problem.tensors.items()]
    met += [(a.reference, a.output) for a in evidence.acceptance.values()]
    return any(bool(is_subnormal(x, f).any()) for x, f in met if f and not f.integral)


@_once
def beyond_core(evidence: Evidence) -> tuple[str, ...]:
    """The aspects of the case that lie in the default breadth only.

    Raising is a violation where there are none: in the core domain, and in what is
    declared explicitly. The inputs count as finite where the oracle has none.
    """
    return aspects_beyond_core(
        evidence.case, evidence.operator, evidence.explicit,
        finite=evidence.problem is None or inputs_finite(evidence),
        lacking=evidence.lacking,
    )  # fmt: skip


# What is suspicious about a case that violates nothing.


def notes(evidence: Evidence) -> tuple[str, ...]:
    """Return one line each; equal ones for equal faults, so that they can be counted.

    Only what was tried is reported: other poisons, another order of programs.
    """
    return tuple(dict.fromkeys((*_accesses(evidence), *_beside(evidence))))


def _accesses(evidence: Evidence) -> Iterator[str]:
    """Yield accesses on which no result depends, where that was tried."""
    repeats = agree(evidence, Probe.BASE, Probe.REPEAT)
    poisons = (
        repeats
        and agree(evidence, Probe.OTHER_POISON, Probe.OTHER_REPEAT)
        and agree(evidence, Probe.BASE, Probe.OTHER_POISON)
    )
    for access in accesses(evidence, "unwritten") if poisons else ():
        place = f" ({access.line})" if access.line else ""
        yield f"loads uninitialized elements{place}; no result depends on them"
    orders = repeats and all(agree(evidence, Probe.BASE, p) for p in ORDERS)
    for access in accesses(evidence, "race") if orders else ():
        place = f" ({access.line})" if access.line else ""
        memory = access.argument or "memory of its own"  # its shape changes by case
        done = "store different values to"
        if {access.access, access.other_access} - {"store", ""}:
            done = f"{access.access} and {access.other_access}, unordered,"
        yield (
            f"two programs {done} one element of {memory}{place}; no result depends on "
            "it"
        )


def _beside(evidence: Evidence) -> Iterator[str]:
    """Yield what is known besides the values."""
    if reason := evidence.of(Builds).reason:
        yield f"not known to build for the named GPUs: {reason}"
    yield from evidence.of(OpCheck).notes
    yield from _beyond_bounds(evidence)
    for run in evidence.runs.values():
        yield from (f"leaves {each} changed; it was put back" for each in run.left)


def _beyond_bounds(evidence: Evidence) -> Iterator[str]:
    """What the running-error shadow finds suspicious and does not report.

    An operator without an error rule leaves results undecided; a result beyond the
    derived bound, and within the safety factor that only a violation exceeds, may be
    another form of the same function, or a fault.
    """
    from kfuzz.numerics.acceptance import tightened
    from kfuzz.numerics.compare import compare

    for name, accepted in (evidence.acceptance or {}).items():
        for operator in accepted.unknown:
            yield f"{name} is undecided: no error rule for {operator}"
        if accepted.safety == 1 or not evidence.base.comparable:
            continue
        y = evidence.base.outputs[name].unsqueeze(0)
        if bool(compare(y, tightened(accepted)).missed.any()):
            yield (
                f"{name} lies beyond the running-error bound, within "
                f"{accepted.safety:g} times of it"
            )
