"""The second call: other data over the first, while the first results are alive.

It shows memos, buffers that two calls share, and state that a call leaves behind.
Most cases do without: it costs two calls and an oracle more.
"""

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import torch
from torch import Tensor

from kfuzz.contracts.binding import Derived
from kfuzz.contracts.evidence import PARTLY, Evidence, Shorter
from kfuzz.contracts.language import SECOND_CALL_SHARE, Probe
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.oracle import expected_metadata
from kfuzz.contracts.reading import agree, comparable, conforms, miss_of
from kfuzz.core.declaration import Declaration
from kfuzz.core.dtypes import DTYPES
from kfuzz.core.random_streams import Purpose, is_sampled, stream
from kfuzz.core.recipe import OFFSETS, RISING, SPANS, Case, Fill, TensorSpec, parsed
from kfuzz.evaluation.diagnosis import CaseCalls, Step
from kfuzz.evaluation.probes.repeats import reduced_name
from kfuzz.execution.calls.batches import Overlapping, in_threads, on_side_stream
from kfuzz.execution.calls.results import Options
from kfuzz.execution.calls.tuning import Measuring
from kfuzz.execution.device import graphs
from kfuzz.execution.device.backends import backend_of
from kfuzz.execution.interpreter.watch import interpreting
from kfuzz.execution.memory.fences import NoAddressSpace
from kfuzz.execution.values.fills import OTHER_SEED, SEED
from kfuzz.execution.values.items import repeated_axes
from kfuzz.numerics.acceptance import Acceptance
from kfuzz.numerics.accumulation import as_integers, same_bits
from kfuzz.numerics.run import Run

# Roles of arguments whose sign means something.
_ONE_SIDED: Final = frozenset({"variance", "mask"})
_SORTED: Final = frozenset({RISING, OFFSETS, SPANS})

_WORDS: Final = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def is_due(case: Case, share: float = 1 / SECOND_CALL_SHARE) -> bool:
    """Whether a case is among the share; those with seed 0, as pinned ones, are."""
    return not case.seed or is_sampled(case.seed, Purpose.PROBES, share)


def turned(operator: Operator, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return other data: flipped along every axis, floats negated.

    But for variances and masks: a domain need not hold what is negative, or +Inf.
    Integers that rise, as offsets do, are mirrored between their ends: parts have the
    sizes in reverse order. Only flipped, they would be sorted back to what they were.
    """
    out = {}
    for name, x in values.items():
        # As integers: float8 has no operators.
        raw = x.view(_WORDS[x.element_size()])
        floats, one = x.is_floating_point(), operator.tensors[name]
        if not floats and raw.numel() and _SORTED & {*parsed(one.domain).words}:
            raw = raw.amin() + raw.amax() - raw
        raw = raw.flip(tuple(range(x.dim()))).contiguous()
        if floats and one.role not in _ONE_SIDED:
            raw = raw ^ torch.iinfo(raw.dtype).min
        out[name] = raw.view(x.dtype)
    return out


def second_data(
    operator: Operator, case: Case, values: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return the data of the second call: turned, and put back into the domain."""
    return operator.fitted(case, turned(operator, values))


def partly_turned(
    operator: Operator, case: Case, values: Mapping[str, Tensor]
) -> dict[Probe, dict[str, Tensor]]:
    """Return other data that have most of their elements in common with the first.

    In the middle of every argument the elements of half of it stand in reverse order,
    so that neither ends nor sums tell; one element differs; the last argument does.
    Where several indices are one element in memory an argument stays as it is.
    """
    out: dict[Probe, dict[str, Tensor]] = {p: dict(values) for p in PARTLY}
    other = turned(operator, values)
    for name, x in values.items():
        if repeated_axes(case.tensors[name]):
            continue
        flat = x.view(_WORDS[x.element_size()]).reshape(-1)
        n = flat.numel()
        swapped = flat.clone()
        swapped[n // 4 : n - n // 4] = flat[n // 4 : n - n // 4].flip(0)
        out[Probe.MIDDLE][name] = swapped.reshape(x.shape).view(x.dtype)
        if n and x.is_floating_point():
            one = flat.clone()
            one[n // 2] = other[name].view(one.dtype).reshape(-1)[n // 2]
            out[Probe.ELEMENT][name] = one.reshape(x.shape).view(x.dtype)
    last = list(values)[-1]
    out[Probe.LAST_ARGUMENT][last] = other[last]
    if len(values) == 1:  # that is the second call
        del out[Probe.LAST_ARGUMENT]
    return out


def halved(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return other data: floats halved, exactly where they stay normal."""
    return {
        name: (x.to(torch.float64) / 2).to(x.dtype) if x.is_floating_point() else x
        for name, x in values.items()
    }


def with_second_call(evidence: Evidence, calls: CaseCalls) -> Evidence:
    """Return the evidence with what calls after the first one leave."""
    derived, data = calls.derived, calls.derived.values
    runs, others = dict(evidence.runs), dict(evidence.others)
    whole = evidence.acceptance
    assert whole is not None
    within = partial(evidence.operator.fitted, derived.case)
    second = second_data(evidence.operator, derived.case, data)

    def run(probe: Probe, values: Mapping[str, Tensor], seed: int = SEED) -> None:
        given = replace(derived, values=values)
        runs[probe] = calls.call(whole, given, options=Options(seed=seed), stays=True)

    def extended() -> Evidence:
        return replace(evidence, runs=dict(runs), others=dict(others))

    def accept(values: Mapping[str, Tensor], *probes: Probe) -> None:
        wanted = calls.caller.accepted(Derived(derived.case, values))
        if wanted and expected_metadata(wanted) == expected_metadata(whole):
            others.update(dict.fromkeys(probes, wanted))

    accept(second, Probe.SECOND, Probe.SECOND_ALONE)
    run(Probe.SECOND, second)
    run(Probe.AGAIN, data, OTHER_SEED)
    evidence = extended()
    if not agree(evidence, Probe.BASE, Probe.AGAIN):
        run(Probe.AFTERWARDS, data)
        run(Probe.AGAIN_REPEAT, data, OTHER_SEED)
    if evidence.operator.relation is not None and calls.asks(Probe.ELSEWHERE):
        runs[Probe.ELSEWHERE] = calls.call(whole, elsewhere=True, stays=True)
    if not conforms(evidence, Probe.SECOND):
        given = replace(derived, values=second)
        runs[Probe.SECOND_ALONE] = calls.call(
            whole, given, elsewhere=True, options=Options(seed=SEED), stays=True
        )
        third = within(halved(data))
        accept(third, Probe.THIRD)
        run(Probe.THIRD, third)
        return extended()
    parts = partly_turned(evidence.operator, derived.case, data)
    asked = list(parts)
    if not calls.thorough:
        asked = [asked[stream(derived.case.seed, Purpose.CHANGED_PART) % len(asked)]]
    for probe in asked:
        changed = within(parts[probe])
        if all(same_bits(x, data[name]).all() for name, x in changed.items()):
            continue
        accept(changed, probe)
        if probe not in others:
            continue
        run(probe, changed)
        evidence = extended()
        if agree(evidence, Probe.BASE, probe) and not conforms(evidence, probe):
            control = within(halved(changed))
            accept(control, Probe.CHANGED_HALVED)
            run(Probe.CHANGED_HALVED, control)
            break
    return extended()


def _is_due(evidence: Evidence, calls: CaseCalls) -> bool:
    return bool(calls.caller.held) and bool(evidence.acceptance)


STEP: Final = Step(
    (
        Probe.SECOND,
        Probe.AGAIN,
        Probe.SECOND_ALONE,
        Probe.THIRD,
        *PARTLY,
        Probe.CHANGED_HALVED,
        Probe.AFTERWARDS,
        Probe.AGAIN_REPEAT,
    ),
    with_second_call,
    _is_due,
)


# A shorter call after calls on the case's own shape: what they left behind in it.
#
# A buffer that is kept for the next call may be larger than that call needs, as one
# padded to whole blocks is. Beyond the call's own data it holds those of the call
# before.


def with_shorter(evidence: Evidence, calls: CaseCalls) -> Evidence:
    """Return the evidence with a shorter call after the first data and the second.

    Where the two differ, and one of them misses, the first is made once more in the
    same order: bits that differ by chance are no matter of what came before. Unchanged
    where the kernel promises no bits, where the second data do not conform, and where
    no shorter case is in the domain.
    """
    claims, whole, derived = evidence.declaration, evidence.acceptance, calls.plain
    promised = claims.promises_bits and conforms(evidence, Probe.SECOND)
    if whole is None or not promised:
        return evidence
    part = shortened(evidence.operator, claims, derived)
    wanted = None if part is None else calls.caller.accepted(part)
    if part is None or wanted is None:
        return evidence
    turned = second_data(evidence.operator, derived.case, derived.values)
    second = replace(derived, values=turned)

    def after(evidence: Evidence, before: Derived, probe: Probe) -> Evidence:
        # What is admitted of the second data has the same form.
        calls.call(whole, before)
        run = calls.call(wanted, part)
        return evidence.running({probe: run}, {probe: wanted})

    evidence = evidence.knowing(Shorter(_difference(part.case, derived.case)))
    evidence = after(evidence, derived, Probe.SHORTER)
    if not comparable(evidence, Probe.SHORTER):
        return evidence  # to be judged where such a case is drawn
    evidence = after(evidence, second, Probe.SHORTER_AGAIN)
    missed = not all(
        conforms(evidence, p) for p in (Probe.SHORTER, Probe.SHORTER_AGAIN)
    )
    if missed and not agree(evidence, Probe.SHORTER, Probe.SHORTER_AGAIN):
        evidence = after(evidence, derived, Probe.SHORTER_REPEAT)
    return evidence


def shortened(
    operator: Operator, claims: Declaration, derived: Derived
) -> Derived | None:
    """Return the case with one dimension shorter, the others as they were.

    By one where that is in the domain, else by the least power of two that is. It is
    the reduced dimension, else the last one that can be cut; None where none can.
    """
    case = derived.case
    for axis in _axes(operator, case):
        less, n = 1, case.dims[axis]
        while less < n:
            sizes = operator.settled({**case.dims, axis: n - less}, case)
            if sizes[axis] == n - less:  # it does not follow from another one
                part = _cut(derived, sizes)
                if part is not None and operator.accepts(part.case, claims):
                    fitted = operator.fitted(part.case, part.values)
                    return replace(part, values=fitted)
            less *= 2
    return None


def _difference(part: Case, whole: Case) -> str:
    """Return for example "x of [3, 19], not [3, 20]"."""
    pairs = ((n, s.shape, whole.tensors[n].shape) for n, s in part.tensors.items())
    return " and ".join(
        f"{name} of {list(shape)}, not {list(have)}"
        for name, shape, have in pairs
        if shape != have
    )


def _axes(operator: Operator, case: Case) -> Iterator[str]:
    """Yield the dimensions to cut, the most telling first; none that bounds indices."""
    names = [reduced_name(operator, case), *reversed(case.dims)]
    bounds = {spec.below for spec in case.tensors.values()}
    yield from (n for n in dict.fromkeys(names) if n in case.dims and n not in bounds)


def _cut(derived: Derived, sizes: Mapping[str, int]) -> Derived | None:
    """Return the leading part of every tensor; None if one would have to grow."""
    tensors: dict[str, TensorSpec] = {}
    values: dict[str, Tensor] = {}
    for name, spec in derived.case.tensors.items():
        shape = tuple(sizes[axis] for axis in spec.axes)
        if any(n > have for n, have in zip(shape, spec.shape, strict=True)):
            return None
        # As integers: float8 has no operators.
        x = derived.values[name]
        part = as_integers(x)[tuple(slice(n) for n in shape)]
        values[name] = part.contiguous().view(x.dtype)
        tensors[name] = replace(
            spec,
            shape=shape,
            strides=None if spec.is_contiguous else spec.strides,
            # The values are given apart: a recipe has to name some.
            fill=spec.fill or Fill("zeros"),
            plants=(),
            values=None,
        )
    case = replace(derived.case, tensors=tensors, destinations={}, edge=None)
    return Derived(case, values)


SHORTER_STEP: Final = Step(
    (Probe.SHORTER, Probe.SHORTER_AGAIN, Probe.SHORTER_REPEAT), with_shorter
)


# Calls that overlap: each result against its own acceptance and its own call alone.

COPIES: Final = 2
"""Calls at once on each of the two data."""

ROUNDS: Final = 2
"""How often they are made while searching: four in five show memory that is shared."""

THOROUGH_ROUNDS: Final = 12
"""How often they are made where a finding hangs on it."""

LONG_SECONDS: Final = 0.05
"""A call that takes longer by itself is not overlapped on the host: dozens that take
turns at each function of Python's would take minutes, in a simulator of a GPU."""

# A function, or the simulator below it, may be for one call at a time and say so: that
# is a limit, like any rejection, and no race. What says so raises with such a word; the
# word is also in what a race has an operation raise.
_REJECTS: Final = re.compile(r"concurren|thread|reentran|re-entran", re.IGNORECASE)


def _other(
    evidence: Evidence, calls: CaseCalls
) -> tuple[Derived, Mapping[str, Acceptance]] | None:
    """Return the second data and what is accepted of them; None where they differ."""
    values = second_data(evidence.operator, calls.derived.case, calls.derived.values)
    other = replace(calls.plain, values=values)
    wanted = evidence.others.get(Probe.SECOND) or calls.caller.accepted(other)
    if wanted is None or evidence.acceptance is None:
        return None
    alike = expected_metadata(wanted) == expected_metadata(evidence.acceptance)
    return (other, wanted) if alike else None


def _missed(evidence: Evidence, probes: Sequence[Probe]) -> list[Probe]:
    """Return the probes that miss."""
    return [p for p in probes if miss_of(evidence, p) is not None]


def _confirmed(
    make: Callable[[], Evidence | None], probes: Sequence[Probe]
) -> Evidence | None:
    """Return what is made; None where nothing is, or a miss does not come again."""
    extended = make()
    if extended is None or not (missed := _missed(extended, probes)):
        return extended
    again = make()
    return extended if again is not None and _missed(again, probes) == missed else None


def with_overlap(evidence: Evidence, calls: CaseCalls) -> Evidence:
    """Return the evidence with one of several overlapping calls: the first at fault.

    Nothing is added where the other data are not admitted, or a call on one of the
    two by itself leaves what is not.
    """
    calls.caller.step()
    common, found = calls.overlapping(evidence), _other(evidence, calls)
    if found is None or evidence.acceptance is None:
        return evidence
    pairs = ((calls.plain, evidence.acceptance), found)
    alone, seconds = [], math.inf
    for given, accepted in pairs:
        began = time.monotonic()
        single = calls.call(accepted, given, elsewhere=True)
        seconds = min(seconds, time.monotonic() - began)
        alone.append(_extended(evidence, single, single, accepted))
        if not conforms(alone[-1], Probe.ALONE):
            return evidence
    data = [given.values for given, _ in pairs]
    if backend_of(common.device).has.on_host:
        # Where a finding hangs on it, a slower machine must not mend it.
        if seconds > LONG_SECONDS * (4 if calls.thorough else 1):
            return evidence
        many = calls.thorough and seconds <= LONG_SECONDS
        rounds = THOROUGH_ROUNDS if many else ROUNDS
        overlapped = in_threads(common, data * COPIES, rounds)
    else:  # nothing is left to chance there
        overlapped = on_side_stream(common, data, 1)
    extended = evidence
    try:
        for number, run in overlapped:
            which = number % len(pairs)
            single = alone[which].runs[Probe.ALONE]
            extended = _extended(evidence, single, run, pairs[which][1])
            raised = run.raised
            stated = raised and raised.stated and _REJECTS.search(raised.message)
            if raised and (raised.memory or stated):
                return evidence
            if _is_at_fault(extended):
                return extended
    except NoAddressSpace:  # for several arguments that span gigabytes
        return evidence
    return extended


def _is_at_fault(evidence: Evidence) -> bool:
    """Whether the call that overlapped others left what the one alone does not."""
    if agree(evidence, Probe.ALONE, Probe.OVERLAPPED):
        return False
    bitwise = evidence.declaration.determinism == "bitwise"
    return bitwise or not conforms(evidence, Probe.OVERLAPPED)


def _extended(
    evidence: Evidence, single: Run, run: Run, accepted: Mapping[str, Acceptance]
) -> Evidence:
    others = dict.fromkeys((Probe.ALONE, Probe.OVERLAPPED), accepted)
    return evidence.running({Probe.ALONE: single, Probe.OVERLAPPED: run}, others)


_PROBES: Final = (Probe.ALONE, Probe.OVERLAPPED)


def _may_overlap(evidence: Evidence, calls: CaseCalls) -> bool:
    """Whether calls may overlap; where Triton interprets, one runs at a time."""
    alone = not getattr(calls.caller.kernel.function, "overlaps", True)
    return not (evidence.base.programs or alone)


OVERLAPPING_STEP: Final = Step(_PROBES, with_overlap, _may_overlap)

# A call captured in a CUDA graph, replayed on other data and on its own.

_REPLAYING_PROBES: Final = (Probe.REPLAYED, Probe.REPLAYED_OWN)


def with_replays(evidence: Evidence, calls: CaseCalls) -> Evidence:
    """Return the evidence with what replays of its captured call left.

    Nothing is added where the call cannot be captured, where the other data are not
    admitted, or where a miss does not come again.
    """
    common, found = calls.overlapping(evidence), _other(evidence, calls)
    if found is None:
        return evidence
    other, wanted = found

    def replays() -> Evidence | None:
        runs = _replayed(calls, common, (other.values, calls.plain.values))
        if not runs or not all(run.comparable for run in runs):
            return None
        made = dict(zip(_REPLAYING_PROBES, runs, strict=True))
        return evidence.running(made, {Probe.REPLAYED: wanted})

    extended = _confirmed(replays, _REPLAYING_PROBES)
    if extended is None or not _missed(extended, _REPLAYING_PROBES):
        return extended or evidence
    alone = calls.call(wanted, other, elsewhere=True)
    return extended.running({Probe.SECOND_ALONE: alone}, {Probe.SECOND_ALONE: wanted})


def _replayed(
    calls: CaseCalls, common: Overlapping, data: Sequence[Mapping[str, Tensor]]
) -> tuple[Run, ...]:
    """Capture a call on the case's data and replay it on each of others.

    Returns what the replays left, nothing where there are none.
    """
    caller, derived = calls.caller, calls.derived
    specs = derived.case.tensors.values()
    held = sum(DTYPES[s.dtype].itemsize * (s.offset + s.span) for s in specs)
    if held > graphs.MOST_BYTES or not caller.captures:
        return ()
    caller.step()
    runs, broken = graphs.replayed(common, derived.values, data)
    if broken:
        caller.lost, caller.captures = True, False
    return runs


REPLAYING_STEP: Final = Step(
    _REPLAYING_PROBES, with_replays, lambda evidence, calls: calls.caller.captures
)


# An autotuner's first call, in which it measures, and the one after it.

MOST: Final = 4
"""Configurations that are measured, on a device: each is compiled first."""

MOST_INTERPRETED: Final = 2
"""Those in Triton's interpreter, where a launch takes milliseconds."""

_MEASURING_PROBES: Final = (Probe.COLD, Probe.WARM)


def with_measuring(evidence: Evidence, calls: CaseCalls) -> Evidence:
    """Return the evidence with a call that measures and one that then need not.

    Nothing is added where one of them does not return, or where a miss does not come
    again.
    """

    def run(step: int, measuring: Measuring | None) -> Run:
        options = Options(measuring=measuring)
        return calls.call(evidence.acceptance, calls.plain, options=options, step=step)

    interpreted = interpreting()
    most = MOST_INTERPRETED if interpreted else MOST
    # Compiled one by one: all in one call would look like a hang.
    for step in range(1, 1 if interpreted else min(most, evidence.base.configs)):
        lost = run(step, None).raised
        if lost is not None and lost.lost:
            return evidence
    extended = _confirmed(lambda: _measured(evidence, run, most), _MEASURING_PROBES)
    if extended is None or not _missed(extended, _MEASURING_PROBES):
        return extended or evidence
    control = extended.running({Probe.REPEAT: run(0, None)})
    return control if conforms(control, Probe.REPEAT) else evidence


def _measured(
    evidence: Evidence, run: Callable[[int, Measuring | None], Run], most: int
) -> Evidence | None:
    """Return the evidence with both calls, None unless both can be judged."""
    with Measuring(most) as block:
        runs = {probe: run(0, block) for probe in _MEASURING_PROBES}
    extended = evidence.running(runs)
    if any(r.unreliable for r in runs.values()) or not comparable(
        extended, *_MEASURING_PROBES
    ):
        return None
    return extended


def _measuring_is_due(evidence: Evidence, calls: CaseCalls) -> bool:
    """Whether an autotuner chooses among several configurations."""
    return not evidence.declaration.configs and evidence.base.configs > 1


MEASURING_STEP: Final = Step(_MEASURING_PROBES, with_measuring, _measuring_is_due)
