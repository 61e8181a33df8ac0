"""What a judgement of a candidate against a reference comes to."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kfuzz.core.event import ContractTally, Note, Refusal
from kfuzz.core.finding import Finding
from kfuzz.core.untrusted import Measure
from kfuzz.core.verdict import Verdict


@dataclass
class Coverage:
    """On what a candidate was tried.

    Attributes:
        cases: cases that were judged.
        benchmarked: of these at the benchmarked shape.
        families: families of values of the first floating argument, with their cases.
        shapes: different shapes.
        dtypes: dtypes of the first floating argument.
        finite: cases without NaN and infinities whose values were decided.
        refused: cases on other values or shapes than the file's own that it raised on:
            counted, no violation.
        beyond: cases on which the reference does not keep the contract either.
        undecided: cases outside the reference's own domain, or not decided.
        calls: most calls that one process of the candidate has answered.
    """

    cases: int = 0
    benchmarked: int = 0
    families: dict[str, int] = field(default_factory=dict)
    shapes: int = 0
    dtypes: tuple[str, ...] = ()
    finite: int = 0
    refused: int = 0
    beyond: int = 0
    undecided: int = 0
    calls: int = 0

    @property
    def elsewhere(self) -> int:
        """Cases at other shapes than the benchmarked one."""
        return self.cases - self.benchmarked


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
        phases: seconds by phase, see `Phases`.
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
    phases: Mapping[str, float] = field(default_factory=dict)
