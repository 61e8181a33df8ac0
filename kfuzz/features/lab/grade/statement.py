"""A conformance statement: what a suite found out about kernels on one device."""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import ClassVar, Final, TypeVar

from kfuzz.core.event import KernelProof, Refusal
from kfuzz.core.finding import Fingerprint
from kfuzz.core.verdict import Graded, Kind, Role, Soundness, State, Tried
from kfuzz.store import files


class Instrument(StrEnum):
    """What looks at a kernel besides its results."""

    GUARD_ZONES = "guard zones"
    PAGE_GUARDS = "page guards"
    ADDRESS_CHECK = "address check"
    RACE_CHECK = "race check"


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
    def states(self) -> dict[str, Soundness]:
        """What is known about each contract that bore, by "C-PRC-01/matmul"."""
        return {
            f"{name}/{kernel.name_in_contracts}": graded.calibration
            for kernel in self.kernels
            for name, graded in kernel.contracts.items()
        }

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
    fix = "`kfuzz grade --format json` prints one"
    return read_kept(Statement, "statement", path, fix)


# What a calibration found: which contracts tell right kernels from wrong ones.


@dataclass
class Outcome:
    """What the search of one witness showed.

    Attributes:
        kernel: its name.
        operator: name of the operator that it is bound to.
        role: what it is there to show.
        contract: class that it violates, "" unless it is a violating one.
        backend: where it ran: "cpu", "interpret" or "cuda".
        functional: whether it passes the plain functional test.
        cases: cases judged.
        decided: cases that bore on a class and were kept, by class.
        found: classes found broken, in the order of discovery, each with how the
            first failure shows.
        problem: what kept kfuzz from judging, "" if nothing did.
    """

    kernel: str
    operator: str
    role: Role
    contract: str
    backend: str
    functional: bool = False
    cases: int = 0
    decided: dict[str, int] = field(default_factory=dict)
    found: dict[str, str] = field(default_factory=dict)
    problem: str = ""

    @property
    def fault(self) -> str:
        """Why it does not show what it is there to show, "" if it does."""
        if self.problem:
            return self.problem
        if self.role is Role.IMPOSTOR:
            return "" if self.found else f"not rejected in {self.cases} cases"
        if not self.functional:
            return "does not pass the plain functional test"
        if self.role is Role.VIOLATING:
            if self.contract in self.found:
                return ""
            others = ", ".join(self.found)
            instead = f"; found under {others}" if others else ""
            return f"not falsified in {self.cases} cases{instead}"
        if self.found:
            contract, text = next(iter(self.found.items()))
            return f"conforms, and is reported under {contract}: {text}"
        return ""


@dataclass(frozen=True)
class ContractCalibration:
    """What is known about one contract.

    Attributes:
        identifier: class id, slash, operator: "C-PRC-01/matmul".
        state: sound, unsound or uncalibrated.
        conforming: names of conforming witnesses that it bore on.
        violating: names of violating witnesses.
        problems: what makes it unsound, or why it is not calibrated, one line each.
    """

    identifier: str
    state: Soundness
    conforming: tuple[str, ...] = ()
    violating: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Calibration:
    """One calibration of the suite.

    Attributes:
        seed: everything drawn depends on it.
        cases: most cases for a violating witness or an impostor.
        conforming_cases: cases for a conforming one.
        device: "cpu", where Triton kernels are interpreted, or a CUDA device.
        fingerprint: versions and hardware.
        contracts: every contract in question, sorted by identifier.
        outcomes: every witness searched, in order.
        unsearched: witnesses left out because it was interrupted.
    """

    seed: int
    cases: int
    conforming_cases: int
    device: str
    fingerprint: Fingerprint
    contracts: tuple[ContractCalibration, ...]
    outcomes: tuple[Outcome, ...]
    unsearched: int = 0

    @property
    def unsound(self) -> tuple[ContractCalibration, ...]:
        """The contracts that a witness contradicts."""
        return tuple(c for c in self.contracts if c.state is Soundness.UNSOUND)

    @property
    def admitted(self) -> tuple[Outcome, ...]:
        """The trivial baselines that nothing rejected."""
        mine = (o for o in self.outcomes if o.role is Role.IMPOSTOR)
        return tuple(o for o in mine if o.fault)

    @property
    def is_sound(self) -> bool:
        """Whether no contract is unsound and every impostor is refused."""
        return not self.unsound and not self.admitted

    @property
    def states(self) -> dict[str, Soundness]:
        """What is known about each contract, by "C-PRC-01/matmul"."""
        return {c.identifier: c.state for c in self.contracts}


# Statements and calibrations as files: what others wrote, read with care.

T = TypeVar("T")

FORMAT: Final = 1
# A statement of every kernel of a platform has some hundred kilobytes.
_STATEMENTS_MOST_BYTES: Final = 64 << 20


def read_calibration(path: Path) -> Calibration:
    """Return the calibration that `kfuzz calibrate --format json` printed.

    Raises:
        DecodeError: if the file cannot be read, or holds no calibration of this
            format; names the field.
    """
    fix = "`kfuzz calibrate --format json >FILE` writes one"
    return read_kept(Calibration, "calibration", path, fix)


def read_kept(kind: type[T], name: str, path: Path, fix: str) -> T:
    """Return a value that a document of format 1 holds under a name.

    Args:
        kind: its class.
        name: the key.
        path: the file.
        fix: how one comes by such a file.

    Raises:
        DecodeError: if the file cannot be read, or holds none; names the field.
    """
    text = files.read_plain(path, _STATEMENTS_MOST_BYTES, fix=fix)
    return files.value_of(kind, name, text, FORMAT, where=str(path), fix=fix)
