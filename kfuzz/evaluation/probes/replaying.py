"""A call captured in a CUDA graph, replayed on other data and on its own."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from torch import Tensor

from kfuzz.contracts.evidence import Evidence
from kfuzz.contracts.language import Probe
from kfuzz.contracts.oracle import expected_metadata
from kfuzz.contracts.reading import miss_of
from kfuzz.core.dtypes import DTYPES
from kfuzz.evaluation.case_calls import CaseCalls, Step
from kfuzz.evaluation.probes.second_call import second_data
from kfuzz.execution.calls.overlap import Overlapping
from kfuzz.execution.device import graphs
from kfuzz.numerics.run import Run

_PROBES: Final = (Probe.REPLAYED, Probe.REPLAYED_OWN)


def with_replays(evidence: Evidence, calls: CaseCalls) -> Evidence:
    """Return the evidence with what replays of its captured call left.

    Nothing is added where the call cannot be captured, where the other data are not
    admitted, or where a miss does not come again.
    """
    derived, common = calls.plain, calls.overlapping(evidence)
    other = replace(
        derived, values=second_data(evidence.operator, derived.case, derived.values)
    )
    wanted = evidence.others.get(Probe.SECOND) or calls.accepted(other)
    if wanted is None or evidence.acceptance is None:
        return evidence
    if expected_metadata(wanted) != expected_metadata(evidence.acceptance):
        return evidence

    def replays() -> Evidence | None:
        runs = _replayed(calls, common, (other.values, derived.values))
        if not runs or not all(run.comparable for run in runs):
            return None
        made = dict(zip(_PROBES, runs, strict=True))
        return evidence.running(made, {Probe.REPLAYED: wanted})

    grown = replays()
    if grown is None or not _missed(grown):
        return grown or evidence
    again = replays()
    if again is None or _missed(again) != _missed(grown):
        return evidence
    alone = calls.on(other, wanted, apart=True)
    return grown.running({Probe.SECOND_ALONE: alone}, {Probe.SECOND_ALONE: wanted})


def _missed(evidence: Evidence) -> list[Probe]:
    """Return the replays that miss."""
    return [p for p in _PROBES if miss_of(evidence, p) is not None]


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
    made = graphs.replayed(common, derived.values, data)
    if made.broken:
        caller.lost, caller.captures = True, False
    return made.runs


STEP: Final = Step(
    _PROBES, with_replays, lambda evidence, calls: calls.caller.captures, place=(6, 1)
)
