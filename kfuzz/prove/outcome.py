"""What comes of proving one kernel: a proof, counterexamples, premises to watch."""

from dataclasses import dataclass, field

from kfuzz.core.proof import KernelProof
from kfuzz.core.recipe import Case
from kfuzz.prove.groups import Watch


@dataclass(frozen=True)
class Counterexample:
    """A case on which a property seems not to hold.

    Attributes:
        property: which.
        case: the case.
        line: in the source.
        why: what happens there.
    """

    property: str
    case: Case
    line: int
    why: str


@dataclass
class Outcome:
    """What came of one kernel.

    Attributes:
        proof: what is proved; counterexamples are open until they are run.
        counterexamples: cases to run, those of one property together, small ones first.
        watch: the premises, None where nothing is proved.
        seconds: in all.
    """

    proof: KernelProof
    counterexamples: list[Counterexample] = field(default_factory=list)
    watch: Watch | None = None
    seconds: float = 0.0
