"""Calls that overlap: each result against its own acceptance and its own call alone."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from kfuzz.contracts.derive import Derived
from kfuzz.contracts.evidence import Evidence
from kfuzz.contracts.language import Probe
from kfuzz.contracts.oracle import expected_metadata
from kfuzz.contracts.reading import agree, conforms
from kfuzz.evaluation.probes.batches import Calls
from kfuzz.evaluation.probes.second_call import turned
from kfuzz.execution.calls.overlap import Overlapping, in_threads, on_side_stream
from kfuzz.execution.memory.pages import NoAddressSpace
from kfuzz.numerics.acceptance import Acceptance
from kfuzz.numerics.run import Run

COPIES: Final = 2
"""Calls at once on each of the two data."""

ROUNDS: Final = 2
"""How often they are made while searching: four in five show memory that is shared."""

THOROUGH_ROUNDS: Final = 12
"""How often they are made where a finding hangs on it."""


def with_overlap(
    evidence: Evidence,
    derived: Derived,
    common: Overlapping,
    admit: Callable[[Derived], Mapping[str, Acceptance] | None],
    call: Calls,
    *,
    thorough: bool,
) -> Evidence:
    """Return the evidence with one of several overlapping calls: the first at fault.

    Nothing is added where the other data are not admitted, or a call on one of the
    two by itself leaves what is not.

    Args:
        evidence: a case whose base run conforms.
        derived: the case with its values.
        common: the kernel and the form of its arguments.
        admit: the acceptance of other data; None where it is undefined.
        call: runs the kernel by itself.
        thorough: whether to repeat until next to nothing is left to chance.
    """
    other = replace(derived, values=turned(evidence.operator, derived.values))
    wanted = admit(other)
    if wanted is None or evidence.acceptance is None:
        return evidence
    if expected_metadata(wanted) != expected_metadata(evidence.acceptance):
        return evidence
    pairs = ((derived, evidence.acceptance), (other, wanted))
    alone = []
    for given, accepted in pairs:
        single = call(given, accepted, apart=True)
        alone.append(_grown(evidence, single, single, accepted))
        if not conforms(alone[-1], Probe.ALONE):
            return evidence
    data = [given.values for given, _ in pairs]
    if common.device.type == "cpu":
        rounds = THOROUGH_ROUNDS if thorough else ROUNDS
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
    return replace(
        evidence,
        runs={**evidence.runs, Probe.ALONE: single, Probe.OVERLAPPED: run},
        others={
            **evidence.others,
            Probe.ALONE: accepted,
            Probe.OVERLAPPED: accepted,
        },
    )
