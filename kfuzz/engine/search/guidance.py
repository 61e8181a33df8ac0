"""Guidance: which errors a search climbs, and which families of values it lacks.

A score for novelty in Hypothesis's `target()` is no part of it: climbing towards what
is new no longer, a search reached a tenth fewer strata in as many cases (measured).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final

from kfuzz.core.recipe import Case
from kfuzz.core.value_families import COPIES
from kfuzz.core.verdict import CaseReport
from kfuzz.engine.search.strata import Ledger

WANTED: Final = 2
"""Families least visited of which a burst has members, besides those drawn."""

# Most outputs whose errors are climbed each on its own, instead of the largest one:
# Hypothesis divides its attempts among the labels.
_LABELS: Final = 3
# The logarithm of error / tolerance is climbed; below this it is noise.
_LEAST_RATIO: Final = 2.0**-40
_GREATEST_RATIO: Final = 2.0**60


def scores(report: CaseReport) -> dict[str, float]:
    """Return what the search climbs: log2(error / tolerance) of each output, by label.

    The tolerance is that of K-VAL-01. The other classes that judge values in one call
    (C-PRC-01, C-CMP-03, …) tell why it is missed and have none of their own; those with
    a tolerance of their own are asked on too few cases to be climbed.
    """
    several = 1 < len(report.ratios) <= _LABELS
    ratios: Mapping[str, float] = report.ratios if several else {"": report.ratio}
    return {
        f"error / tolerance {name}".rstrip(): math.log2(min(ratio, _GREATEST_RATIO))
        for name, ratio in ratios.items()
        if ratio > _LEAST_RATIO
    }


def is_climbed(number: int) -> bool:
    """Whether a round, counted from 0, climbs; every second one explores instead.

    In 400 cases of six operators, climbing in every round cost 16 to 35 % of the strata
    that a search without reached, climbing in every second 7 to 21 %; the largest
    errors were nearly the same, and smaller without.
    """
    return number % 2 == 1


def wanted(ledger: Ledger, case: Case, among: Sequence[str]) -> tuple[str, ...]:
    """Return the value families that some items of a batch are to have.

    Args:
        ledger: of what the kernel's search has visited.
        case: what the items have in common.
        among: the families that the kernel's declaration accepts.
    """
    fill = case.data.fill
    known = COPIES if fill is None else COPIES | {fill.family}
    others = [f for f in among if f not in known]
    return ledger.wanting("family", others, like=case, count=WANTED)
