"""What the screening of a burst says: counts, and the members to be looked at."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Suspect:
    """A member of a burst that did not pass.

    Attributes:
        member: its number.
        why: what was seen, one line.
    """

    member: int
    why: str


@dataclass(frozen=True)
class Screened:
    """One burst, screened by the contracts that are always on.

    A suspect violates nothing yet: it is judged as a case of its own.

    Attributes:
        passed: members in which nothing was seen.
        suspects: the others, in order.
        conforms: per contract class, how many of the passed it says to conform.
        undecided: per contract class, how many of the passed it could not decide.
        ratio: largest |error| / tolerance of a passed member.
        unsupported: why a burst of this structure cannot be screened, "" if it was;
            all else is empty then.
        error: what failed in kfuzz or the machine, "" if nothing did; likewise.
        lost: what ended the process or its device, "" if nothing did: which member is
            to blame is not known then.
        spent: whether this process can judge no more.
    """

    passed: int = 0
    suspects: tuple[Suspect, ...] = ()
    conforms: Mapping[str, int] = field(default_factory=dict)
    undecided: Mapping[str, int] = field(default_factory=dict)
    ratio: float = 0.0
    unsupported: str = ""
    error: str = ""
    lost: str = ""
    spent: bool = False
