"""The second call: other data over the first, while the first results are alive.

It shows memos, buffers that two calls share, and state that a call leaves behind.
Most cases do without: it costs two calls and an oracle more.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final

import torch
from torch import Tensor

from kfuzz.contracts.derive import Derived
from kfuzz.contracts.evidence import PARTLY, Evidence
from kfuzz.contracts.language import SECOND_CALL_SHARE, Probe
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.oracle import expected_metadata
from kfuzz.contracts.reading import agree, conforms
from kfuzz.core.random_streams import Purpose, is_sampled, stream
from kfuzz.core.recipe import Case
from kfuzz.evaluation.case_calls import CaseCalls, Step
from kfuzz.execution.values.items import repeated_axes
from kfuzz.execution.values.randomness import OTHER_SEED, SEED
from kfuzz.numerics.elements import same_bits

# Roles of arguments whose sign means something.
_ONE_SIDED: Final = frozenset({"variance", "mask"})

_WORDS: Final = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def is_due(case: Case, share: float = 1 / SECOND_CALL_SHARE) -> bool:
    """Whether a case is among the share; those with seed 0, as pinned ones, are."""
    return not case.seed or is_sampled(case.seed, Purpose.PROBES, share)


def turned(operator: Operator, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return other data: flipped along every axis, floats negated.

    But for variances and masks: a domain need not hold what is negative, or +Inf.
    """
    out = {}
    for name, x in values.items():
        # As integers: float8 has no operators.
        raw = x.view(_WORDS[x.element_size()])
        raw = raw.flip(tuple(range(x.dim()))).contiguous()
        if x.is_floating_point() and operator.tensors[name].role not in _ONE_SIDED:
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
    within = partial(evidence.operator.fitted, derived.case)
    second = second_data(evidence.operator, derived.case, data)

    def run(probe: Probe, values: Mapping[str, Tensor], seed: int = SEED) -> None:
        runs[probe] = calls.held(values, evidence, seed, apart=False)

    def grown() -> Evidence:
        return replace(evidence, runs=dict(runs), others=dict(others))

    def admit(values: Mapping[str, Tensor], *probes: Probe) -> None:
        wanted = calls.accepted(Derived(derived.case, values))
        if wanted is None or evidence.acceptance is None:
            return
        if expected_metadata(wanted) == expected_metadata(evidence.acceptance):
            others.update(dict.fromkeys(probes, wanted))

    admit(second, Probe.SECOND, Probe.SECOND_ALONE)
    run(Probe.SECOND, second)
    run(Probe.AGAIN, data, OTHER_SEED)
    evidence = grown()
    if not agree(evidence, Probe.BASE, Probe.AGAIN):
        run(Probe.AFTERWARDS, data)
        run(Probe.AGAIN_REPEAT, data, OTHER_SEED)
    if not conforms(evidence, Probe.SECOND):
        runs[Probe.SECOND_ALONE] = calls.held(second, evidence, SEED, apart=True)
        third = within(halved(data))
        admit(third, Probe.THIRD)
        run(Probe.THIRD, third)
        return grown()
    parts = partly_turned(evidence.operator, derived.case, data)
    asked = list(parts)
    if not calls.thorough:
        number = stream(derived.case.seed, Purpose.CHANGED_PART)
        asked = [asked[number % len(asked)]]
    for probe in asked:
        changed = within(parts[probe])
        if all(same_bits(x, data[name]).all() for name, x in changed.items()):
            continue
        admit(changed, probe)
        if probe not in others:
            continue
        run(probe, changed)
        evidence = grown()
        if agree(evidence, Probe.BASE, probe) and not conforms(evidence, probe):
            control = within(halved(changed))
            admit(control, Probe.CHANGED_HALVED)
            run(Probe.CHANGED_HALVED, control)
            break
    return grown()


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
    place=(1, 1),
)
