"""What is proved of a kernel, and on which premises."""

from dataclasses import dataclass, field, replace
from enum import StrEnum


class Proven(StrEnum):
    """How far a property is proved."""

    ALL_SIZES = "proved for all sizes"
    LAUNCH = "proved for this launch, any grid"
    REFUTED = "refuted"
    OPEN = "open"

    @property
    def decided(self) -> bool:
        """Whether it is known to hold or not to."""
        return self is not Proven.OPEN


@dataclass(frozen=True)
class ProvenProperty:
    """What is known of one property.

    Attributes:
        name: such as "loads in bounds".
        answer: how far it is proved.
        why: why it is open, or what refutes it; "" where it is proved.
        line: in the source, where it is not proved; 0 where no line is at fault.
        launch: of what is proved for single launches, these, in words.
        finding: of what is refuted, the identifier of the finding.
    """

    name: str
    answer: Proven
    why: str = ""
    line: int = 0
    launch: str = ""
    finding: str = ""


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

    def count(self, *answers: Proven) -> int:
        """Return how many properties have one of these answers."""
        return sum(p.answer in answers for p in self.properties)
