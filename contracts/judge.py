"""The judge: a pure function of evidence and acceptance."""

from collections.abc import Collection
from dataclasses import replace

from kfuzz.contracts.classes import ATTRIBUTION, k_ref_01
from kfuzz.contracts.evidence import Evidence
from kfuzz.contracts.language import Probe
from kfuzz.contracts.reading import comparison, is_decided, miss_of, undecided
from kfuzz.core.results import output_of
from kfuzz.core.verdict import Failure, Verdict
from kfuzz.numerics.comparator.error_map import error_map


def judge(
    evidence: Evidence,
    classes: Collection[str],
    *,
    asked: Collection[str] | None = None,
) -> tuple[dict[str, Verdict], Failure | None]:
    """Return the verdict per contract class, and the failure attributed.

    Args:
        evidence: evidence beside acceptance.
        classes: ids of the classes in force.
        asked: those of which it is asked whether they conform; all by default.

    Returns:
        Verdicts of the classes that say something about this case. If one is
        violated it alone is reported; classes that do not depend on values and
        come before it conform.
    """
    verdicts: dict[str, Verdict] = {}
    outside, missed = evidence.outside, miss_of(evidence) is not None
    for made in ATTRIBUTION:
        binds = made.applies(evidence.operator, evidence.declaration)
        if made.id not in classes or not (binds or made.beyond_scope):
            continue
        if outside and not made.beyond_bounds:
            continue
        failure = made.judge(evidence)
        if failure is not None:
            placed = replace(failure, place=_place(evidence, failure.output))
            return {**verdicts, made.id: Verdict.VIOLATES}, placed
        if not binds or (missed and made.of_values):
            continue
        if asked is not None and made.id not in asked:
            continue
        if made.decides(evidence):
            verdicts[made.id] = Verdict.CONFORMS
        elif made.by_occasion or not made.of_values:
            continue
        elif undecided(evidence) and not is_decided(evidence):
            verdicts.setdefault(made.id, Verdict.UNDER_SPECIFIED)
    return verdicts, None


def suspected(
    evidence: Evidence, classes: Collection[str]
) -> tuple[Probe, Failure] | None:
    """Return a later call of a conforming case that a fresh process has to settle.

    With what it shows if it conforms there.
    """
    if "K-REF-01" not in classes or evidence.outside:
        return None
    found = k_ref_01.suspected(evidence)
    if found is None:
        return None
    probe, failure = found
    return probe, replace(failure, place=_place(evidence, failure.output))


def mapped(evidence: Evidence, failure: Failure) -> Failure:
    """Return a failure with the errors of all of its output, if some of it misses.

    Args:
        evidence: the evidence that shows it.
        failure: names the output; where it names none, the only one is meant.
    """
    names = list(evidence.acceptance or {})
    output = failure.output or (names[0] if len(names) == 1 else "")
    made = comparison(evidence, output) if output else None
    if made is None or not bool(made.missed.any()):
        return failure
    return replace(failure, errors=error_map(output, made))


def _place(evidence: Evidence, output: str) -> int | None:
    """Return the position of an output among several."""
    names, name = [*map(output_of, evidence.operator.outputs)], output_of(output)
    return names.index(name) if len(names) > 1 and name in names else None
