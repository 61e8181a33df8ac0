"""The same gradients, asked of autograd in other ways; see `Way`."""

from dataclasses import replace
from typing import Final

import torch

from kfuzz.contracts.evidence import Evidence
from kfuzz.contracts.gradients.function import Backward, Way
from kfuzz.contracts.language import Probe
from kfuzz.contracts.reading import miss_of
from kfuzz.evaluation.case_calls import CaseCalls, Step
from kfuzz.evaluation.probes.relational import pick
from kfuzz.numerics.run import Run

PROBES: Final = {
    Way.ALONE: Probe.ONE_WANTED,
    Way.TWICE: Probe.TWO_RESULTS,
    Way.LATER: Probe.LATER_BACKWARD,
    Way.AGAIN: Probe.SECOND_BACKWARD,
    Way.OVERWRITTEN: Probe.RESULT_OVERWRITTEN,
}


def with_ways(evidence: Evidence, calls: CaseCalls) -> Evidence:
    """Return the evidence of conforming gradients with what other ways gave.

    The first way that shows a fault is the last one tried.
    """
    function = calls.caller.kernel.function
    if not isinstance(function, Backward):
        return evidence
    wanted = function.wanted
    alone = list(wanted) if calls.thorough else pick(evidence.case, wanted)
    asked = [(Way.ALONE, name) for name in alone if len(wanted) > 1]
    asked += [(way, "") for way in Way if way is not Way.ALONE]
    for way, argument in asked:
        instead = function.asked(way, argument)
        run = calls.again(evidence, plain=True, instead=instead)
        if run.unreliable:
            continue
        shown = _comparable(evidence, run, way, f"d{argument}")
        evidence = evidence.running({PROBES[way]: shown})
        if shown.raised or shown.metadata or miss_of(evidence, PROBES[way]) is not None:
            break
    return evidence


def _comparable(evidence: Evidence, run: Run, way: Way, output: str) -> Run:
    """Return a run with the case's own results where nothing is to be compared.

    Of one argument alone the other gradients are none; twice a gradient may overflow.
    """
    if not run.comparable:
        return run
    outputs = dict(run.outputs)
    for name, own in evidence.base.outputs.items():
        if way is Way.ALONE and name != output:
            outputs[name] = own
        elif way is Way.TWICE:
            beyond = ~torch.isfinite(outputs[name]) & torch.isfinite(own)
            outputs[name] = torch.where(beyond, own, outputs[name])
    return replace(run, outputs=outputs)


STEP: Final = Step(
    tuple(PROBES.values()),
    with_ways,
    lambda evidence, calls: evidence.operator.forward is not None,
    place=(4, 1),
)
