"""Compiling what a case launches for GPUs that are not here."""

from typing import Final

from kfuzz.contracts.evidence import Builds, Evidence
from kfuzz.contracts.language import Probe
from kfuzz.evaluation.case_calls import CaseCalls, Step


def with_builds(evidence: Evidence, calls: CaseCalls) -> Evidence:
    """Return the evidence with whether each launch builds for each GPU."""
    if calls.builds is None:
        return evidence.knowing(Builds("no process compiles beside this one"))
    return evidence.knowing(calls.builds(evidence.case, calls.caller.step))


STEP: Final = Step(
    (Probe.BUILD,),
    with_builds,
    lambda evidence, calls: bool(evidence.case.targets),
    place=(1, 2),
)
