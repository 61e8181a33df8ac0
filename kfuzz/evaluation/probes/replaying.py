"""A call captured in a CUDA graph, replayed on other data and on its own."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from torch import Tensor

from kfuzz.contracts.derive import Derived
from kfuzz.contracts.evidence import Evidence
from kfuzz.contracts.language import Probe
from kfuzz.contracts.oracle import expected_metadata
from kfuzz.contracts.reading import miss_of
from kfuzz.evaluation.probes.batches import Calls
from kfuzz.evaluation.probes.second_call import turned
from kfuzz.numerics.acceptance import Acceptance
from kfuzz.numerics.run import Run


def with_replays(
    evidence: Evidence,
    derived: Derived,
    replay: Callable[[Sequence[Mapping[str, Tensor]]], Sequence[Run]],
    admit: Callable[[Derived], Mapping[str, Acceptance] | None],
    call: Calls,
) -> Evidence:
    """Return the evidence with what replays of its captured call left.

    Nothing is added where the call cannot be captured, where the other data are not
    admitted, or where a miss does not come again.

    Args:
        evidence: a case whose base run conforms.
        derived: the case with its values.
        replay: captures a call on the case's data and replays it on each of the
            given; returns nothing where it cannot.
        admit: the acceptance of other data; None where it is undefined.
        call: runs the kernel by itself.
    """
    other = replace(derived, values=turned(evidence.operator, derived.values))
    wanted = evidence.others.get(Probe.SECOND) or admit(other)
    if wanted is None or evidence.acceptance is None:
        return evidence
    if expected_metadata(wanted) != expected_metadata(evidence.acceptance):
        return evidence

    def replays() -> Evidence | None:
        runs = replay((other.values, derived.values))
        if not runs or not all(run.comparable for run in runs):
            return None
        made = dict(zip((Probe.REPLAYED, Probe.REPLAYED_OWN), runs, strict=True))
        return replace(
            evidence,
            runs={**evidence.runs, **made},
            others={**evidence.others, Probe.REPLAYED: wanted},
        )

    grown = replays()
    if grown is None or not _missed(grown):
        return grown or evidence
    again = replays()
    if again is None or _missed(again) != _missed(grown):
        return evidence
    alone = call(other, wanted, apart=True)
    return replace(
        grown,
        runs={**grown.runs, Probe.SECOND_ALONE: alone},
        others={**grown.others, Probe.SECOND_ALONE: wanted},
    )


def _missed(evidence: Evidence) -> list[Probe]:
    """Return the replays that miss."""
    probes = (Probe.REPLAYED, Probe.REPLAYED_OWN)
    return [p for p in probes if miss_of(evidence, p) is not None]
