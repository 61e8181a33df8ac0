"""On what a candidate was tried, counted."""

import math
from dataclasses import dataclass, field, replace
from typing import Final

from kfuzz.core.declaration import Declaration
from kfuzz.core.dtypes import bits_to_number
from kfuzz.core.recipe import Case
from kfuzz.core.value_families import FAMILIES
from kfuzz.core.verdict import CaseReport, Verdict
from kfuzz.judge.outcome import Coverage
from kfuzz.strategies.value_choice import allowed_families

# Why raising on a case is none of its violations.
ELSEWHERE: Final = "another shape than the benchmarked one"
OTHER_VALUES: Final = "other values than the file's own"
WATCHED: Final = "raises where torch's operators are watched, and nowhere else"
# Families of values that hold NaN or infinities.
_NONFINITE: Final = frozenset(FAMILIES) - frozenset(
    allowed_families(Declaration(nonfinite="undefined"))
)


@dataclass
class Tried:
    """On what a candidate was tried, counted.

    Attributes:
        coverage: what of it is told.
        refused_there: cases at the benchmarked shape that it raised on and need not
            take.
        taken_there: cases there without NaN and infinities that were decided, on other
            values than the file's own.
        passed: whether it was right there, on the file's own values.
        raised_watched: cases that it has to take, and raised on only where torch's
            operators were watched.
    """

    coverage: Coverage = field(default_factory=Coverage)
    refused_there: int = 0
    taken_there: int = 0
    passed: bool = False
    raised_watched: int = 0
    _shapes: set[tuple[tuple[int, ...], ...]] = field(default_factory=set)

    def take(
        self, case: Case, report: CaseReport, *, benchmarked: bool, own: bool
    ) -> None:
        """Count one case.

        Args:
            case: the case.
            report: what it taught.
            benchmarked: whether it has the benchmarked shape.
            own: whether it has the file's own values, scaled at most.
        """
        told = self.coverage
        decided = report.verdicts.get("K-VAL-01") is Verdict.CONFORMS
        if report.refusal is not None:
            self.refused_there += report.refusal == OTHER_VALUES
            told.refused += 1
        elif not decided and report.failure is None:
            told.undecided += 1
        else:
            fill = case.data.fill
            finite = decided and is_finite(case)
            self.taken_there += finite and benchmarked and not own
            self._shapes.add(tuple(s.shape for s in case.tensors.values()))
            family = fill.family if fill else "pinned"
            counts = {**told.families, family: told.families.get(family, 0) + 1}
            told.families = dict(sorted(counts.items()))
            told.cases += 1
            told.benchmarked += benchmarked
            told.shapes = len(self._shapes)
            told.dtypes = tuple(sorted({*told.dtypes, case.data.dtype}))
            told.finite += finite
            right = benchmarked and own and decided and report.failure is None
            self.passed = self.passed or right


def is_finite(case: Case) -> bool:
    """Whether the recipe of a case makes neither NaN nor infinities."""
    return finite_of(case) == case


def finite_of(case: Case) -> Case:
    """Return a recipe with normal values in place of NaN and infinities."""
    tensors = {}
    for name, spec in case.tensors.items():
        plants = tuple(
            p for p in spec.plants if math.isfinite(bits_to_number(p.bits, spec.dtype))
        )
        fill = spec.fill
        if fill is not None and fill.family in _NONFINITE:
            fill = replace(fill, family="randn")
        tensors[name] = replace(spec, plants=plants, fill=fill)
    return replace(case, tensors=tensors)
