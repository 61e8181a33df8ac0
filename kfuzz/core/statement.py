"""What a calibration found: which contracts tell right kernels from wrong ones."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from kfuzz.core.finding import Fingerprint
from kfuzz.core.verdict import Verdict


class Soundness(StrEnum):
    """What is known about a contract's power to tell kernels apart."""

    SOUND = "sound"
    UNSOUND = "unsound"
    UNCALIBRATED = "uncalibrated"


class Role(StrEnum):
    """What an implementation is there to show."""

    CONFORMING = "conforming"
    VIOLATING = "violating"
    IMPOSTOR = "impostor"


@dataclass(frozen=True)
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
    functional: bool
    cases: int = 0
    decided: Mapping[str, int] = field(default_factory=dict)
    found: Mapping[str, str] = field(default_factory=dict)
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

    def state_of(self, identifier: str) -> Soundness:
        """Return what is known about a contract, by "C-PRC-01/matmul"."""
        states = {c.identifier: c.state for c in self.contracts}
        return states.get(identifier, Soundness.UNCALIBRATED)


@dataclass(frozen=True)
class Graded:
    """One contract on one kernel that it binds.

    Attributes:
        verdict: over all cases; `not_applicable` where no case came to bear on it.
        decided: cases that decided it.
        undecided: cases that could not.
        calibration: what witnesses say about the contract itself.
    """

    verdict: Verdict
    decided: int = 0
    undecided: int = 0
    calibration: Soundness = Soundness.UNCALIBRATED
