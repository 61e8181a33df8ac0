"""Repeats on a GPU, idle and busy: what equal calls in equal memory give."""

from collections.abc import Callable
from typing import Final

from kfuzz.contracts.classes.c_ord_02 import unrepeatable
from kfuzz.contracts.evidence import Evidence
from kfuzz.contracts.language import Probe
from kfuzz.contracts.reading import miss_of
from kfuzz.evaluation.case_calls import CaseCalls, Step
from kfuzz.execution.calls.run import Manner
from kfuzz.execution.device.surroundings import Company
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
    evidence: Evidence, repeat: Callable[[Company], Run], *, thorough: bool
) -> Evidence:
    """Return the evidence with repeats of its base run, up to the first that differs.

    Args:
        evidence: a case with its base run, whose results can be compared.
        repeat: makes the call again, in the same memory and beside other work.
        thorough: whether to leave less to chance.
    """
    if evidence.acceptance is None or not evidence.base.comparable:
        return evidence
    for _ in range(THOROUGH_ROUNDS if thorough else ROUNDS):
        grown = evidence
        for probe, company in _COMPANY.items():
            run = repeat(company)
            if run.unreliable:  # that company cannot be had here
                continue
            if not run.comparable:  # for want of memory, or of the device
                return grown
            grown = grown.running({probe: run})
            if unrepeatable(grown) is not None:
                return grown
    return grown


def loaded(evidence: Evidence, calls: CaseCalls, *, thorough: bool) -> Evidence:
    """Return the evidence with repeats of the case beside other work."""

    def repeat(company: Company) -> Run:
        return calls.again(evidence, manner=Manner(company=company))

    return with_loads(evidence, repeat, thorough=thorough)


STEP: Final = Step(
    tuple(_COMPANY),
    lambda evidence, calls: loaded(evidence, calls, thorough=calls.thorough),
    lambda evidence, calls: calls.on_gpu,
    place=(5, 1),
)
# Elsewhere what a call finds in free memory may differ from one to the next.
ON_MISS: Final = Step(
    tuple(_COMPANY),
    lambda evidence, calls: loaded(
        evidence, calls, thorough=calls.derived.case.pinned and calls.tells_apart
    ),
    lambda evidence, calls: (
        calls.on_gpu and calls.caller.stale and miss_of(evidence) is not None
    ),
)
