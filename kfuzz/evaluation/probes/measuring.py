"""An autotuner's first call, in which it measures, and the one after it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from kfuzz.contracts.evidence import Evidence
from kfuzz.contracts.language import Probe
from kfuzz.contracts.reading import comparable, conforms, miss_of
from kfuzz.execution.calls.autotuning import Measuring
from kfuzz.numerics.run import Run

MOST: Final = 4
"""Configurations that are measured, on a device: each is compiled first."""

MOST_INTERPRETED: Final = 2
"""Those in Triton's interpreter, where a launch takes milliseconds."""

_PROBES: Final = (Probe.COLD, Probe.WARM)


def with_measuring(
    evidence: Evidence,
    run: Callable[[int, Measuring | None], Run],
    *,
    interpreted: bool,
) -> Evidence:
    """Return the evidence with a call that measures and one that then need not.

    Nothing is added where one of them does not return, or where a miss does not come
    again.

    Args:
        evidence: a case that conforms, of an autotuned kernel.
        run: runs it so many configurations further on, in a block in which autotuners
            measure or, with None, outside one.
        interpreted: whether in Triton's interpreter.
    """
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
    control = replace(grown, runs={**grown.runs, Probe.REPEAT: run(0, None)})
    return control if conforms(control, Probe.REPEAT) else evidence


def _measured(
    evidence: Evidence, run: Callable[[int, Measuring | None], Run], most: int
) -> Evidence | None:
    """Return the evidence with both calls, None unless both can be judged."""
    with Measuring(most) as block:
        runs = {probe: run(0, block) for probe in _PROBES}
    grown = replace(evidence, runs={**evidence.runs, **runs})
    if any(r.unreliable for r in runs.values()) or not comparable(grown, *_PROBES):
        return None
    return grown


def _missed(evidence: Evidence) -> list[Probe]:
    """Return which of the calls miss."""
    return [p for p in _PROBES if miss_of(evidence, p) is not None]


def _is_lost(run: Run) -> bool:
    return run.raised is not None and run.raised.lost
