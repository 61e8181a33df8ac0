"""The judge: a pure function of evidence and acceptance."""

from collections.abc import Collection
from dataclasses import replace

from kfuzz.contracts.classes import ATTRIBUTION, CLASSES, k_ref_01
from kfuzz.contracts.language import Probe
from kfuzz.contracts.view import View
from kfuzz.core.verdict import Failure, Verdict
from kfuzz.numerics.comparator.error_map import error_map


def judge(
    view: View, classes: Collection[str]
) -> tuple[dict[str, Verdict], Failure | None]:
    """Return the verdict per contract class, and the failure attributed.

    Args:
        view: evidence beside acceptance.
        classes: ids of the classes in force.

    Returns:
        Verdicts of the classes that say something about this case. If one is
        violated it alone is charged; classes that do not depend on values and
        come before it conform.
    """
    verdicts: dict[str, Verdict] = {}
    for made in ATTRIBUTION:
        binds = made.applies(view.operator, view.declaration)
        if made.id not in classes or not (binds or made.beyond_scope):
            continue
        if view.outside and not made.beyond_bounds:
            continue
        failure = made.judge(view)
        if failure is not None:
            placed = replace(failure, place=_place(view, failure.output))
            return {**verdicts, made.id: Verdict.VIOLATES}, placed
        if not binds or (view.miss is not None and made.of_values):
            continue
        if made.decides(view):
            verdicts[made.id] = Verdict.CONFORMS
        elif made.by_occasion or not made.of_values:
            continue
        elif view.undecided and not view.decided:
            verdicts.setdefault(made.id, Verdict.UNDER_SPECIFIED)
    return verdicts, None


def suspected(view: View, classes: Collection[str]) -> tuple[Probe, Failure] | None:
    """Return a later call of a conforming case that a fresh process has to settle.

    With what it shows if it conforms there.
    """
    if k_ref_01.ID not in classes or view.outside:
        return None
    found = k_ref_01.suspected(view)
    if found is None:
        return None
    probe, failure = found
    return probe, replace(failure, place=_place(view, failure.output))


def judge_alone(view: View) -> Failure | None:
    """Return the failure of a case under all classes, whichever are in force."""
    return judge(view, CLASSES)[1]


def mapped(view: View, failure: Failure) -> Failure:
    """Return a failure with the errors of all of its output, if some of it misses.

    Args:
        view: the evidence that shows it.
        failure: names the output; where it names none, the only one is meant.
    """
    names = view.operator.outputs
    output = failure.output or (names[0] if len(names) == 1 else "")
    made = view.comparison(output) if output else None
    if made is None or not bool(made.missed.any()):
        return failure
    return replace(failure, errors=error_map(output, made))


def _place(view: View, output: str) -> int | None:
    """Return the position of an output among several."""
    names = view.operator.outputs
    return names.index(output) if len(names) > 1 and output in names else None
