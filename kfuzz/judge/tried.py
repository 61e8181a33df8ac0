"""On what a candidate was tried, counted."""

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Final

from kfuzz.core.declaration import Declaration
from kfuzz.core.dtypes import bits_to_number
from kfuzz.core.families import FAMILIES
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CaseReport, Verdict
from kfuzz.strategies.values import allowed_families

# Why raising on a case is none of its violations.
ELSEWHERE: Final = "another shape than the benchmarked one"
OTHER_VALUES: Final = "other values than the file's own"
# Families of values that hold NaN or infinities.
_NONFINITE: Final = frozenset(FAMILIES) - frozenset(
    allowed_families(Declaration(nonfinite="undefined"))
)


@dataclass
class Tried:
    """On what a candidate was tried, counted.

    Attributes:
        cases: cases that were judged.
        benchmarked: of these at the benchmarked shape.
        families: families of the first floating argument.
        shapes: shapes of all arguments.
        dtypes: dtypes of the first floating argument.
        refused: cases that it raised on and need not take.
        refused_there: of these at the benchmarked shape.
        finite: cases without NaN and infinities that were decided.
        taken_there: of these at the benchmarked shape, on other values than the file's
            own.
        beyond: cases on which the reference does not keep the contract either.
        undecided: cases of which nothing could be decided.
        passed: whether it was right at the benchmarked shape, on the file's own values.
    """

    cases: int = 0
    benchmarked: int = 0
    families: Counter[str] = field(default_factory=Counter)
    shapes: set[tuple[tuple[int, ...], ...]] = field(default_factory=set)
    dtypes: set[str] = field(default_factory=set)
    refused: int = 0
    refused_there: int = 0
    finite: int = 0
    taken_there: int = 0
    beyond: int = 0
    undecided: int = 0
    passed: bool = False

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
        decided = report.verdicts.get("K-VAL-01") is Verdict.CONFORMS
        if report.refusal is not None:
            self.refused += 1
            self.refused_there += report.refusal == OTHER_VALUES
            return
        if not decided and report.failure is None:
            self.undecided += 1
            return
        fill = case.data.fill
        self.cases += 1
        self.benchmarked += benchmarked
        if decided and is_finite(case):
            self.finite += 1
            self.taken_there += benchmarked and not own
        self.families[fill.family if fill else "pinned"] += 1
        self.shapes.add(tuple(s.shape for s in case.tensors.values()))
        self.dtypes.add(case.data.dtype)


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
