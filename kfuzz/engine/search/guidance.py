"""Guidance: what a kernel's search still discovers, and the time that this earns it.

A score for novelty in Hypothesis's `target()` is no part of it: climbing towards what
is new no longer, a search reached a tenth fewer strata in as many cases (measured).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final

from kfuzz.core.burst import Burst
from kfuzz.core.recipe import Case
from kfuzz.core.value_families import COPIES
from kfuzz.core.verdict import CaseReport
from kfuzz.engine.search.strata import Ledger, families_of

FLOOR: Final = 0.5
"""The part of the time that all kernels share equally."""

WANTED: Final = 2
"""Families least visited of which a burst has members, besides those drawn."""

# A round in which nothing new was seen halves what earlier ones count.
_FADING: Final = 0.5
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


class Discovery:
    """What the search of one kernel has discovered, and how fast it still does."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self._octave = -math.inf
        self._symptoms: set[str] = set()
        self._branches = 0
        self._new = False
        # The share of the last rounds that showed something, the last one counting
        # half, the one before it a quarter, and so on.
        self._behaviour = 1.0

    def take(self, case: Case, report: CaseReport, *, branches: int) -> None:
        """Take what one case showed.

        Args:
            case: the case.
            report: what it taught.
            branches: of the kernel's own file, that have run so far.
        """
        fails = report.failure is not None
        self.ledger.visit(case, ratio=report.ratio, fails=fails)
        symptom: tuple[object, ...] = ()
        if report.failure is not None:
            symptom = report.failure.signature("").symptom
        elif report.refusal is not None:
            symptom = (report.refusal,)
        self._note(report.ratio, branches, symptom)

    def take_batch(self, batch: Burst, *, ratio: float, branches: int) -> None:
        """Take what those items of a batch showed that passed.

        Args:
            batch: the batch.
            ratio: their largest |error| / tolerance.
            branches: of the kernel's own file, that have run so far.
        """
        for family in families_of(batch):
            self.ledger.visit(batch.case, family=family)
        self._note(ratio, branches, ())

    def wanted(self, case: Case, among: Sequence[str]) -> tuple[str, ...]:
        """Return the value families that some items of a batch are to have.

        Args:
            case: what the members have in common.
            among: the families that the kernel's declaration admits.
        """
        fill = case.data.fill
        known = COPIES if fill is None else COPIES | {fill.family}
        others = [f for f in among if f not in known]
        return self.ledger.wanting("family", others, like=case, count=WANTED)

    def _note(self, ratio: float, branches: int, symptom: tuple[object, ...]) -> None:
        octave = -math.inf
        if ratio > _LEAST_RATIO:
            octave = math.floor(math.log2(min(ratio, _GREATEST_RATIO)))
        new = octave > self._octave or branches > self._branches
        shown = " ".join(map(str, symptom))
        new = new or (bool(shown) and shown not in self._symptoms)
        self._octave = max(self._octave, octave)
        self._branches = max(self._branches, branches)
        if shown:
            self._symptoms.add(shown)
        self._new = self._new or new

    def end_round(self) -> None:
        """Let what earlier rounds discovered fade."""
        self._behaviour = _FADING * self._behaviour + (1 - _FADING) * self._new
        self._new = False

    @property
    def rate(self) -> float:
        """How much the next round may be expected to discover, from 0 to 1.

        The mean of two: the chance of a new stratum (`Ledger.discovery`), which tells
        how much of the domain is left; and the share of the rounds that showed the
        kernel do something new (a branch of its own, a symptom, a refusal, an error
        twice as close to the tolerance), the last one counting half, the one before it
        a quarter, and so on.
        """
        return (self.ledger.discovery + self._behaviour) / 2


def shares(rates: Sequence[float]) -> list[float]:
    """Return the share of the time of each kernel, by what each still discovers.

    All share `FLOOR` of the time equally, so that none starves; the rest is divided in
    proportion to the rates, equally where all are 0.

    Returns:
        Their sum is 1.
    """
    total = sum(rates)
    equal = 1 / len(rates) if rates else 0.0
    return [
        FLOOR * equal + (1 - FLOOR) * (rate / total if total else equal)
        for rate in rates
    ]


def charge(seconds: float, rates: Sequence[float], number: int) -> float:
    """Return what a round is charged: its time, divided by the kernel's share.

    The kernel that has been charged least gets the next round: stride scheduling
    (Waldspurger and Weihl, 1995). Over any stretch of a run each gets the mean of its
    shares, to within a round, and so its part of the floor.

    Args:
        seconds: what the round took.
        rates: of all kernels that still take turns.
        number: which of them is the kernel's.
    """
    return seconds / (shares(rates)[number] * len(rates))
