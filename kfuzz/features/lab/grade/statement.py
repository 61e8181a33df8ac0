"""A conformance statement: what a suite found out about kernels on one device."""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import ClassVar

from kfuzz.core.event import KernelProof, Refusal
from kfuzz.core.finding import Fingerprint
from kfuzz.core.statement import Graded
from kfuzz.core.verdict import Kind, State, Tried
from kfuzz.store.files import read_kept


class Instrument(StrEnum):
    """What looks at a kernel besides its results."""

    GUARD_ZONES = "guard zones"
    PAGE_GUARDS = "page guards"
    ADDRESS_CHECK = "address check"
    RACE_CHECK = "race check"
    SANITIZER = "sanitizer"


@dataclass(frozen=True)
class Fault:
    """A finding as a statement names it.

    Attributes:
        id: its id in the corpus.
        contract: the class that it breaks.
        kind: how it shows.
        state: where it stands in its life.
        message: one line.
        listed: whether the platform's table of defects has it.
    """

    id: str
    contract: str
    kind: Kind
    state: State
    message: str
    listed: bool = False


@dataclass(frozen=True)
class KnownDefect:
    """A defect that the platform's table lists for a kernel.

    Attributes:
        contract: the class that it breaks.
        where: the inputs that show it.
        evidence: what comes out, and how it was seen.
    """

    contract: str
    where: str
    evidence: str


@dataclass(frozen=True)
class KernelStatement:
    """What is stated about one kernel.

    Attributes:
        kernel: node id.
        name: the name that it is bound to.
        operator: what it computes.
        source: what identifies its code, see `kfuzz.targets.load`.
        claims: declarations that differ from the language's defaults, as text.
        bound: the operator's tolerance, in words.
        cases: cases judged.
        worst_ratio: greatest |error| / tolerance of a passing case.
        contracts: by class id, those in force that bind the kernel.
        refusals: what it declined.
        findings: what broke a contract.
        defects: what the platform's table says of it.
        forward: the operator of which `operator` gives the gradients; "" for others,
            and in files written before there was this field.
        tried: what its verdicts rest on; None in files written before.
        proof: what is proved of it, with the premises; None where nothing was tried.
    """

    UNSAID: ClassVar = ("forward", "proof")

    kernel: str
    name: str
    operator: str
    source: str
    claims: dict[str, str]
    bound: str
    cases: int
    worst_ratio: float
    contracts: dict[str, Graded]
    refusals: tuple[Refusal, ...] = ()
    findings: tuple[Fault, ...] = ()
    defects: tuple[KnownDefect, ...] = ()
    forward: str = ""
    tried: Tried | None = None
    proof: KernelProof | None = None

    @property
    def name_in_contracts(self) -> str:
        """What follows the class in identifiers: "softmax" in "K-GRD-01/softmax"."""
        return self.forward or self.operator


@dataclass(frozen=True)
class Calibrated:
    """The calibration that a statement rests on.

    Attributes:
        device: where it ran.
        seed: its seed.
        cases: most cases for a violating witness.
        conforming_cases: cases for a conforming one.
        sound: how many contracts are sound.
        unsound: identifiers of those that are not.
    """

    device: str
    seed: int
    cases: int
    conforming_cases: int
    sound: int
    unsound: tuple[str, ...] = ()


@dataclass(frozen=True)
class Statement:
    """A conformance statement.

    Attributes:
        device: backend: "cpu", "interpret" or "cuda".
        fingerprint: versions, device and driver.
        seed: the run's seed.
        max_cases: cases allowed for each kernel, None for no limit.
        max_time: seconds allowed for the whole run, None for no limit.
        elapsed_s: seconds that it took.
        classes: ids of the contract classes in force, in order.
        kernels: one for each kernel, in order.
        instruments: what looked at the kernels besides their results.
        platform: whether the kernels are the platform's own.
        calibration: None where the contracts were not calibrated.
        interrupted: whether a signal ended the run.
        notices: what a person should know, one line each.
    """

    device: str
    fingerprint: Fingerprint
    seed: int
    max_cases: int | None
    max_time: float | None
    elapsed_s: float
    classes: tuple[str, ...]
    kernels: tuple[KernelStatement, ...]
    instruments: tuple[Instrument, ...] = ()
    platform: bool = False
    calibration: Calibrated | None = None
    interrupted: bool = False
    notices: tuple[str, ...] = field(default=())

    @property
    def place(self) -> str:
        """Where the kernels ran, in a few words."""
        made = self.fingerprint
        where = f"{self.device} ({made.device})" if made.device else self.device
        return f"{where}, torch {made.torch}" if made.torch else where


def read_statement(path: Path) -> Statement:
    """Return the statement in a file that `kfuzz grade` wrote.

    Raises:
        DecodeError: if the file cannot be read, or holds no statement of this
            format; names the field.
    """
    fix = "`kfuzz grade --json FILE` writes one"
    return read_kept(Statement, "statement", path, fix)
