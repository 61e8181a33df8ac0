"""Events: what a campaign yields; terminal, JSON and reports are folds over them."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import ClassVar, Final

from kfuzz.core.finding import Finding
from kfuzz.core.verdict import (
    ATTRIBUTED,
    Compared,
    Kind,
    ReplayOutcome,
    State,
    Tried,
    Verdict,
)

# What is proved of a kernel, and on which premises.


class Proven(StrEnum):
    """How far a property is proved."""

    ALL_SIZES = "proved for all sizes"
    REFUTED = "refuted"
    OPEN = "open"


@dataclass(frozen=True)
class ProvenProperty:
    """What is known of one property.

    Attributes:
        name: such as "loads in bounds".
        answer: how far it is proved.
        why: why it is open, or what refutes it; "" where it is proved.
        line: in the source, where it is not proved; 0 where no line is at fault.
        finding: of what is refuted, the identifier of the finding.
    """

    RETIRED: ClassVar = ("launch",)

    name: str
    answer: Proven
    why: str = ""
    line: int = 0
    finding: str = ""


_CONTRADICTED: Final = {
    "loads in bounds": Kind.READ_OUTSIDE,
    "stores in bounds": Kind.WRITE_OUTSIDE,
    "stores of programs apart": Kind.RACE,
    "loads apart from other programs' stores": Kind.RACE,
    "results stored whole": Kind.UNWRITTEN,
}


@dataclass(frozen=True)
class KernelProof:
    """What is proved of one kernel.

    Attributes:
        kernel: node id.
        properties: those that say something of it.
        premises: what a launch has to satisfy, by the Triton kernel that it is of.
        variants: sets of constants that its launches had.
        observed: real launches that were held against the kernels' IR and the premises.
        queries: put to the solver.
        seconds: of the solver.
        watched: structures of cases of a run whose launches were held against the
            premises.
        unwatched: those for which there was no time.
        layouts: those of tensors that it holds of, where it is not of all, in words.
        withdrawn: the launch that broke a premise, in words; then nothing is proved
            for all sizes any more. "" where none did.
    """

    kernel: str
    properties: tuple[ProvenProperty, ...] = ()
    premises: dict[str, tuple[str, ...]] = field(default_factory=dict)
    variants: int = 0
    observed: int = 0
    queries: int = 0
    seconds: float = 0.0
    watched: int = 0
    unwatched: int = 0
    layouts: tuple[str, ...] = ()
    withdrawn: str = ""

    def without(self, broken: str) -> "KernelProof":
        """Return what is left where a launch broke a premise: nothing for all sizes.

        Args:
            broken: the launch and the premise, in words.
        """
        left = tuple(
            replace(p, answer=Proven.OPEN, why=broken)
            if p.answer is Proven.ALL_SIZES
            else p
            for p in self.properties
        )
        return replace(self, properties=left, withdrawn=broken)

    def beside(self, findings: Iterable[Finding]) -> "KernelProof":
        """Return what is left beside findings: nothing that one contradicts."""
        found = {f.signature.kind: f.id for f in findings if f.state in ATTRIBUTED}
        left = []
        for p in self.properties:
            kind = _CONTRADICTED.get(p.name)
            by = "" if kind is None else found.get(kind, "")
            if by and p.answer is Proven.ALL_SIZES:
                why = "a finding shows a launch that the proof's premises leave out"
                p = replace(p, answer=Proven.OPEN, why=why, finding=by)
            left.append(p)
        return replace(self, properties=tuple(left))

    def count(self, *answers: Proven) -> int:
        """Return how many properties have one of these answers."""
        return sum(p.answer in answers for p in self.properties)


@dataclass(frozen=True)
class RunStarted:
    """A campaign begins.

    Attributes:
        seed: the run's seed.
        device: backend: "cpu", "interpret" or "cuda".
        kernels: node ids, in the order in which they take turns.
        when: UTC time, ISO 8601 to the second; "" where it is unknown.
        jobs: kernels searched side by side.
        outside: of kernels that lie outside the project, whose findings do not say
            where, by node id: what `--target` takes for them.
    """

    seed: int
    device: str
    kernels: tuple[str, ...]
    when: str = ""
    jobs: int = 1
    outside: dict[str, str] = field(default_factory=dict)


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
        stage: "found" or "done".
        merged: id of another finding, which is one with this from now on; "" for none.
    """

    kernel: str
    finding: Finding
    path: str
    is_new: bool
    stage: str
    merged: str = ""


@dataclass(frozen=True)
class FindingReplayed:
    """A stored finding was run again before the search.

    Attributes:
        kernel: node id, "" where its entry cannot be read.
        id: the finding's id; "" where its entry cannot be read.
        contract: the contract class that it breaks, "" likewise.
        state: its state after the replay, None likewise.
        path: its folder.
        outcome: whether it still fails.
        failures: runs that failed as stored.
        runs: runs made, in fresh children.
        message: one line for people.
        differences: how the environment differs from the stored one.
        seems_fixed: whether it passes and is reported as a violation, not by chance.
        by_chance: whether chance decides if it shows, so that passing says little.
        reason: why people know it, "" where they do not or do not say.
    """

    kernel: str
    id: str
    contract: str
    state: State | None
    path: str
    outcome: ReplayOutcome
    failures: int
    runs: int
    message: str
    differences: tuple[str, ...] = ()
    seems_fixed: bool = False
    by_chance: bool = False
    reason: str = ""

    @property
    def excused(self) -> bool:
        """Whether it is known and fails as it is known to."""
        known = self.state is State.KNOWN
        return known and self._reproduces and self.failures > 0

    @property
    def fails(self) -> bool:
        """Whether it fails the run, as a finding of the search would."""
        told_only = self.state in (State.FLAKY, State.UNREPRODUCED)
        return self._reproduces and not told_only and not self.excused

    @property
    def _reproduces(self) -> bool:
        return self.outcome in (ReplayOutcome.FAILS, ReplayOutcome.FLAKY)


@dataclass(frozen=True)
class Notice:
    """Something a person should know that is no finding.

    Attributes:
        kernel: node id concerned, "" for the run.
        message: one line.
        about: for programs, what it warns of: "rejected" draws, input "unexercised",
            an "impostor" that passes, a contract "uncalibrated"; "" for all else.
        trace: the traceback of an error of kfuzz's own; "" for all else.
    """

    UNSAID: ClassVar = ("trace",)

    kernel: str
    message: str
    about: str = ""
    trace: str = ""


@dataclass(frozen=True)
class ContractTally:
    """One contract over a whole run.

    Attributes:
        verdict: violates > error > conforms > under_specified > not_applicable.
        decided: cases that decided it.
        undecided: cases that could not.
        failed: of those that decided it the ones that violate it, confirmed or not.
    """

    verdict: Verdict
    decided: int = 0
    undecided: int = 0
    failed: int = 0


@dataclass(frozen=True)
class Refusal:
    """Cases outside the core domain, or beyond a limit of the kernel.

    Attributes:
        reason: what they have in common.
        cases: how many.
        remedy: the declaration that would make it explicit.
        example: the exception's first line; "" of a limit beyond which nothing is
            raised.
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
        fenced: whether on a share of the cases its arguments lay beside pages that
            fault when touched.
        needs_gpu: whether nothing could be judged of it, for want of a GPU.
        tried: what its verdicts rest on; None where that is not known.
        searched: the same by classes of sizes, from the smallest on; the last one is
            above all that is searched. Empty where that is not known.
        errors: the same by dtype and classes of sizes, of those with cases: how far the
            results lay from the oracle's.
        largest: the largest size of each dimension that was judged, by the operator's
            name for it.
        uncompared: why no value was compared with the oracle's; "" if one was, if it
            was not asked for, and if the kernel violates a contract.
        compared: what `uncompared` rests on; None where that is not known.
        proof: what is proved of it, None where nothing was tried.
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
    fenced: bool = False
    needs_gpu: bool = False
    tried: Tried | None = None
    searched: tuple[Tried, ...] = ()
    errors: tuple[Tried, ...] = ()
    largest: dict[str, int] = field(default_factory=dict)
    uncompared: str = ""
    compared: Compared | None = None
    proof: KernelProof | None = None


@dataclass(frozen=True)
class RunFinished:
    """The campaign is over.

    Attributes:
        elapsed_s: seconds since the start.
        interrupted: whether a signal ended it.
        seed: the run's seed.
        device: backend.
        startup_s: of these seconds those before cases could be judged, which a time
            limit does not count.
        reducing_s: those in which findings were reduced, and their lines found, once
            the search was over, which it does not count either.
        import_s: those of start-up in which users' files, and what they import, were
            imported, by the process of the campaign; others do so beside it.
    """

    elapsed_s: float
    interrupted: bool
    seed: int
    device: str
    startup_s: float = 0.0
    reducing_s: float = 0.0
    import_s: float = 0.0


@dataclass(frozen=True)
class Exited:
    """How the command ended: the last event of a report, whatever came before.

    No campaign yields it.

    Attributes:
        code: its exit code; None where it is not known.
        error: what ended the run before its time, one line; "" if nothing did.
        command: the command line that repeats the run; "" where there is none.
    """

    code: int | None = None
    error: str = ""
    command: str = ""


Event = (
    RunStarted
    | Progress
    | FindingSaved
    | FindingReplayed
    | Notice
    | KernelFinished
    | RunFinished
    | Exited
)
