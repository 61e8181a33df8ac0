"""An autotuner's first call, in which it measures, and the one after it."""

from collections.abc import Callable
from typing import Final

from kfuzz.contracts.evidence import Evidence
from kfuzz.contracts.language import Probe
from kfuzz.contracts.reading import comparable, conforms, miss_of
from kfuzz.evaluation.case_calls import CaseCalls, Step
from kfuzz.execution.calls.autotuning import Measuring
from kfuzz.execution.calls.run import Manner
from kfuzz.execution.interpreter.watch import interpreting
from kfuzz.numerics.run import Run

MOST: Final = 4
"""Configurations that are measured, on a device: each is compiled first."""

MOST_INTERPRETED: Final = 2
"""Those in Triton's interpreter, where a launch takes milliseconds."""

_PROBES: Final = (Probe.COLD, Probe.WARM)


def with_measuring(evidence: Evidence, calls: CaseCalls) -> Evidence:
    """Return the evidence with a call that measures and one that then need not.

    Nothing is added where one of them does not return, or where a miss does not come
    again.
    """

    def run(step: int, measuring: Measuring | None) -> Run:
        manner = Manner(measuring=measuring)
        return calls.again(evidence, plain=True, manner=manner, step=step)

    interpreted = interpreting()
    most = MOST_INTERPRETED if interpreted else MOST
    # Compiled one by one: all in one call would look like a hang.
    for step in range(1, 1 if interpreted else min(most, evidence.base.configs)):
        if _is_lost(run(step, None)):
            return evidence
    grown = _measured(evidence, run, most)
    if grown is None or not _missed(grown):
        return grown or evidence
    again = _measured(evidence, run, most)
    if again is None or _missed(again) != _missed(grown):
        return evidence
    control = grown.running({Probe.REPEAT: run(0, None)})
    return control if conforms(control, Probe.REPEAT) else evidence


def _measured(
    evidence: Evidence, run: Callable[[int, Measuring | None], Run], most: int
) -> Evidence | None:
    """Return the evidence with both calls, None unless both can be judged."""
    with Measuring(most) as block:
        runs = {probe: run(0, block) for probe in _PROBES}
    grown = evidence.running(runs)
    if any(r.unreliable for r in runs.values()) or not comparable(grown, *_PROBES):
        return None
    return grown


def _missed(evidence: Evidence) -> list[Probe]:
    """Return which of the calls miss."""
    return [p for p in _PROBES if miss_of(evidence, p) is not None]


def _is_lost(run: Run) -> bool:
    return run.raised is not None and run.raised.lost


def _is_due(evidence: Evidence, calls: CaseCalls) -> bool:
    """Whether an autotuner chooses among several configurations."""
    return not evidence.declaration.configs and evidence.base.configs > 1


STEP: Final = Step(_PROBES, with_measuring, _is_due, place=(5, 5))
