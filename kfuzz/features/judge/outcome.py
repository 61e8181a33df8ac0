"""What a judgement of a candidate against a reference comes to."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Final

from kfuzz.core.declaration import Declaration
from kfuzz.core.dtypes import bits_to_number
from kfuzz.core.event import ContractTally, Note, Refusal
from kfuzz.core.finding import Finding
from kfuzz.core.recipe import Case
from kfuzz.core.value_families import FAMILIES
from kfuzz.core.verdict import CaseReport, Verdict

if TYPE_CHECKING:
    from kfuzz.features.judge.sandbox.contain import Measure


@dataclass
class Coverage:
    """On what a candidate was tried.

    Attributes:
        cases: cases that were judged.
        benchmarked: of these at the benchmarked shape.
        families: families of values of the first floating argument, with their cases.
        dtypes: dtypes of the first floating argument.
        finite: cases without NaN and infinities whose values were decided.
        refused: cases on other values or shapes than the file's own that it raised on:
            counted, no violation.
        beyond: cases on which the reference does not keep the contract either.
        undecided: cases outside the reference's own domain, or not decided.
        refused_there: cases at the benchmarked shape that it raised on and need not
            take.
        taken_there: cases there without NaN and infinities that were decided, on other
            values than the file's own.
        passed: whether it was right there, on the file's own values.
        raised_watched: cases that it has to take, and raised on only where torch's
            operators were watched.
        seen_shapes: the shapes.
    """

    cases: int = 0
    benchmarked: int = 0
    families: dict[str, int] = field(default_factory=dict)
    dtypes: tuple[str, ...] = ()
    finite: int = 0
    refused: int = 0
    beyond: int = 0
    undecided: int = 0
    refused_there: int = 0
    taken_there: int = 0
    passed: bool = False
    raised_watched: int = 0
    seen_shapes: tuple[tuple[tuple[int, ...], ...], ...] = ()

    @property
    def elsewhere(self) -> int:
        """Cases at other shapes than the benchmarked one."""
        return self.cases - self.benchmarked

    @property
    def shapes(self) -> int:
        """Different shapes."""
        return len(self.seen_shapes)

    @property
    def document(self) -> dict[str, object]:
        """What of it is told, as plain values."""
        names = ("cases", "benchmarked", "elsewhere", "shapes", "dtypes", "finite",
                 "refused", "beyond", "undecided")  # fmt: skip
        told = {name: getattr(self, name) for name in names}
        return {**told, "families": dict(sorted(self.families.items()))}

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
            self.refused_there += report.refusal == OTHER_VALUES
            self.refused += 1
        elif not decided and report.failure is None:
            self.undecided += 1
        else:
            fill = case.data.fill
            finite = decided and is_finite(case)
            self.taken_there += finite and benchmarked and not own
            shapes = tuple(s.shape for s in case.tensors.values())
            self.seen_shapes = tuple({*self.seen_shapes, shapes})
            family = fill.family if fill else "pinned"
            self.families[family] = self.families.get(family, 0) + 1
            self.cases += 1
            self.benchmarked += benchmarked
            self.dtypes = tuple(sorted({*self.dtypes, case.data.dtype}))
            self.finite += finite
            right = benchmarked and own and decided and report.failure is None
            self.passed = self.passed or right


@dataclass(frozen=True)
class Audit:
    """What a problem itself is worth.

    Attributes:
        faults: why it decides nothing about candidates; empty where it does.
        notes: what a person should know of it.
        accumulator: the arithmetic that candidates are held to.
        domain: the shapes that the reference takes, in words.
        modeless: whether it gives the same in evaluation mode as it was built.
        inputs: what the arguments of every draw have in common, in words: candidates
            may rely on it, and all values keep to it.
        finite: whether NaN and infinities are left out, since products with known
            zeros need not be computed.
    """

    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    accumulator: str = "float32"
    domain: str = ""
    modeless: bool = False
    inputs: tuple[str, ...] = ()
    finite: bool = False


@dataclass(frozen=True)
class Judgement:
    """The verdict on a candidate, and what it rests on.

    Attributes:
        verdict: violates, conforms, under_specified or error.
        reason: one line.
        reference: path of the reference file, as given.
        candidate: path of the candidate file, as given.
        device: the backend: "cpu", "interpret" or "cuda".
        device_name: what the device calls itself, "" for the CPU.
        seed: everything drawn depends on it.
        elapsed_s: seconds.
        interrupted: whether a signal ended it.
        audit: what the problem is worth.
        coverage: on what the candidate was tried.
        findings: what it violates, or may.
        paths: finding id -> its folder.
        contracts: tally per contract class.
        refusals: what it raised on.
        notes: what was suspicious and violates nothing.
        notices: what kept the judgement from going further.
        containment: measures that contain the candidate here.
        launched: Triton's kernels that were seen to be launched for it, by the word of
            its child.
        operators: torch's own operators that were seen to compute for it, by the word
            of its child.
        weights: how the candidate came to the reference's weights.
        on_finite: where all that it violates rests on NaN or infinities in the inputs,
            the verdict without these; None elsewhere.
        is_built: whether the candidate could be built.
        cut_off: whether nothing could be decided because a call of the candidate had
            not returned when the time was up.
        no_line: why the finding that the verdict rests on has no line, "" where it has
            one, and where there is no finding.
    """

    verdict: Verdict
    reason: str
    reference: str
    candidate: str
    device: str
    device_name: str = ""
    seed: int = 0
    elapsed_s: float = 0.0
    interrupted: bool = False
    audit: Audit = field(default_factory=Audit)
    coverage: Coverage = field(default_factory=Coverage)
    findings: tuple[Finding, ...] = ()
    paths: dict[str, str] = field(default_factory=dict)
    contracts: dict[str, ContractTally] = field(default_factory=dict)
    refusals: tuple[Refusal, ...] = ()
    notes: tuple[Note, ...] = ()
    notices: tuple[str, ...] = ()
    containment: tuple[Measure, ...] = ()
    launched: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    weights: str = ""
    on_finite: Verdict | None = None
    is_built: bool = True
    cut_off: bool = False
    no_line: str = ""


# On what a candidate was tried, counted.

# Why raising on a case is none of its violations.
ELSEWHERE: Final = "another shape than the benchmarked one"
OTHER_VALUES: Final = "other values than the file's own"
WATCHED: Final = "raises where torch's operators are watched, and nowhere else"


@cache
def _nonfinite() -> frozenset[str]:
    """Return the families of values that hold NaN or infinities."""
    from kfuzz.strategies.values import allowed_families

    return frozenset(FAMILIES) - frozenset(
        allowed_families(Declaration(nonfinite="undefined"))
    )


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
        if fill is not None and fill.family in _nonfinite():
            fill = replace(fill, family="randn")
        tensors[name] = replace(spec, plants=plants, fill=fill)
    return replace(case, tensors=tensors)
