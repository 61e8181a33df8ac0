"""Calls that overlap: each result against its own acceptance and its own call alone."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from kfuzz.contracts.evidence import Evidence
from kfuzz.contracts.language import Probe
from kfuzz.contracts.oracle import expected_metadata
from kfuzz.contracts.reading import agree, conforms
from kfuzz.evaluation.case_calls import CaseCalls, Step
from kfuzz.evaluation.probes.second_call import second_data
from kfuzz.execution.calls.overlap import in_threads, on_side_stream
from kfuzz.execution.device.backends import backend_of
from kfuzz.execution.memory.host_fences import NoAddressSpace
from kfuzz.numerics.acceptance import Acceptance
from kfuzz.numerics.run import Run

COPIES: Final = 2
"""Calls at once on each of the two data."""

ROUNDS: Final = 2
"""How often they are made while searching: four in five show memory that is shared."""

THOROUGH_ROUNDS: Final = 12
"""How often they are made where a finding hangs on it."""


def with_overlap(evidence: Evidence, calls: CaseCalls) -> Evidence:
    """Return the evidence with one of several overlapping calls: the first at fault.

    Nothing is added where the other data are not admitted, or a call on one of the
    two by itself leaves what is not.
    """
    calls.caller.step()
    derived, common = calls.plain, calls.overlapping(evidence)
    other = replace(
        derived, values=second_data(evidence.operator, derived.case, derived.values)
    )
    wanted = calls.accepted(other)
    if wanted is None or evidence.acceptance is None:
        return evidence
    if expected_metadata(wanted) != expected_metadata(evidence.acceptance):
        return evidence
    pairs = ((derived, evidence.acceptance), (other, wanted))
    alone = []
    for given, accepted in pairs:
        single = calls.on(given, accepted, apart=True)
        alone.append(_grown(evidence, single, single, accepted))
        if not conforms(alone[-1], Probe.ALONE):
            return evidence
    data = [given.values for given, _ in pairs]
    if backend_of(common.device).has.on_host:
        rounds = THOROUGH_ROUNDS if calls.thorough else ROUNDS
        overlapped = in_threads(common, data * COPIES, rounds)
    else:  # nothing is left to chance there
        overlapped = on_side_stream(common, data, 1)
    grown = evidence
    try:
        for number, run in overlapped:
            which = number % len(pairs)
            single = alone[which].runs[Probe.ALONE]
            grown = _grown(evidence, single, run, pairs[which][1])
            if run.raised is not None and run.raised.memory:
                return evidence
            if _is_at_fault(grown):
                return grown
    except NoAddressSpace:  # for several arguments that span gigabytes
        return evidence
    return grown


def _is_at_fault(evidence: Evidence) -> bool:
    """Whether the call that overlapped others left what the one alone does not."""
    if agree(evidence, Probe.ALONE, Probe.OVERLAPPED):
        return False
    bitwise = evidence.declaration.determinism == "bitwise"
    return bitwise or not conforms(evidence, Probe.OVERLAPPED)


def _grown(
    evidence: Evidence, single: Run, run: Run, accepted: Mapping[str, Acceptance]
) -> Evidence:
    others = dict.fromkeys((Probe.ALONE, Probe.OVERLAPPED), accepted)
    return evidence.running({Probe.ALONE: single, Probe.OVERLAPPED: run}, others)


def with_collective(evidence: Evidence, calls: CaseCalls) -> Evidence:
    """Return the evidence with the kernel beside a collective."""
    assert calls.beside_collective is not None
    calls.caller.step()
    return evidence.knowing(calls.beside_collective(evidence.case, calls.caller.step))


def _beside_collective(evidence: Evidence, calls: CaseCalls) -> bool:
    asked = evidence.case.collective and calls.beside_collective is not None
    return asked and not evidence.base.programs


_PROBES: Final = (Probe.ALONE, Probe.OVERLAPPED)
# Where Triton interprets, one call runs at a time.
STEP: Final = Step(
    _PROBES,
    with_overlap,
    lambda evidence, calls: not evidence.base.programs,
    place=(5, 3),
)
COLLECTIVE: Final = Step(_PROBES, with_collective, _beside_collective, place=(5, 4))
