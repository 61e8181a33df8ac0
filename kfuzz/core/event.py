"""Events: what a campaign yields; terminal, JSON and reports are folds over them."""

from dataclasses import dataclass, field

from kfuzz.core.finding import Finding
from kfuzz.core.verdict import Verdict


@dataclass(frozen=True)
class RunStarted:
    """A campaign begins.

    Attributes:
        seed: the run's seed.
        device: backend: "cpu", "interpret" or "cuda".
        kernels: node ids, in the order in which they take turns.
    """

    seed: int
    device: str
    kernels: tuple[str, ...]


@dataclass(frozen=True)
class Progress:
    """Counters between two rounds.

    Attributes:
        kernel: node id of the kernel whose round ended.
        elapsed_s: seconds since the start.
        cases: cases run so far, all kernels.
        worst_ratio: greatest |error| / tolerance of a passing case so far.
        findings: findings so far.
        kernels_done: kernels that need no further rounds.
    """

    kernel: str
    elapsed_s: float
    cases: int
    worst_ratio: float
    findings: int
    kernels_done: int


@dataclass(frozen=True)
class FindingSaved:
    """A finding is on disk; sent again whenever it changes.

    Attributes:
        kernel: node id.
        finding: as stored.
        path: its folder.
        is_new: False if the corpus already held the bucket.
        stage: "found", "reduced" or "done".
    """

    kernel: str
    finding: Finding
    path: str
    is_new: bool
    stage: str


@dataclass(frozen=True)
class Notice:
    """Something a person should know that is no finding.

    Attributes:
        kernel: node id concerned, "" for the run.
        message: one line.
    """

    kernel: str
    message: str


@dataclass(frozen=True)
class ContractTally:
    """One contract over a whole run.

    Attributes:
        verdict: violates > error > conforms > under_specified > not_applicable.
        decided: cases that decided it.
        undecided: cases that could not.
    """

    verdict: Verdict
    decided: int = 0
    undecided: int = 0


@dataclass(frozen=True)
class Refusal:
    """Cases that a kernel declined outside its core domain.

    Attributes:
        reason: what they have in common.
        cases: how many.
        remedy: the declaration that would make it explicit.
        example: the exception's first line.
    """

    reason: str
    cases: int
    remedy: str = ""
    example: str = ""


@dataclass(frozen=True)
class Note:
    """Something suspicious that violates nothing.

    Attributes:
        note: one line.
        cases: on how many cases it was seen.
    """

    note: str
    cases: int


@dataclass(frozen=True)
class KernelFinished:
    """The result for one kernel.

    Attributes:
        kernel: node id.
        operator: operator name.
        cases: cases run.
        cases_per_s: cases per second of this kernel's own time.
        screened: of the cases those that ran in bursts, held to what is always on.
        bursts: bursts of such cases; each has one structure.
        contracts: tally per contract class.
        refusals: what it declined.
        findings: the findings of this run.
        paths: finding id -> its folder.
        worst_ratio: greatest |error| / tolerance of a passing case.
        notes: what was suspicious and violates nothing.
    """

    kernel: str
    operator: str
    cases: int
    cases_per_s: float
    contracts: dict[str, ContractTally]
    refusals: tuple[Refusal, ...] = ()
    findings: tuple[Finding, ...] = ()
    paths: dict[str, str] = field(default_factory=dict)
    worst_ratio: float = 0.0
    notes: tuple[Note, ...] = ()
    screened: int = 0
    bursts: int = 0


@dataclass(frozen=True)
class RunFinished:
    """The campaign is over.

    Attributes:
        elapsed_s: seconds since the start.
        interrupted: whether a signal ended it.
        seed: the run's seed.
        device: backend.
    """

    elapsed_s: float
    interrupted: bool
    seed: int
    device: str


Event = RunStarted | Progress | FindingSaved | Notice | KernelFinished | RunFinished
