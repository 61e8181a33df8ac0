"""Bursts: many inputs of one structure, told apart by their values alone.

And what the prefilter says of one: counts, and the members to be looked at.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kfuzz.core.errors import KfuzzError
from kfuzz.core.recipe import Case

MEMBERS: Final = 128
"""Most members of a burst, unless less is asked for."""


@dataclass(frozen=True)
class Burst:
    """Members that share the structure of one case and differ in their values.

    `kfuzz.execution.values` makes their recipes (`items`) and values (`fills`).

    Attributes:
        case: the drawn recipe; member 0 is this very case.
        members: how many, at least 1.
        families: per further group of members, the value family of each argument by
            name (arguments not named keep the case's family); the case's own is
            group 0. Groups are consecutive members, nearly equal in number.
        planted: arguments in which some members have special values planted, in
            place of the case's own plants, which every member has elsewhere.
        finite: whether NaN and infinities are never planted.
    """

    case: Case
    members: int
    families: tuple[Mapping[str, str], ...] = ()
    planted: tuple[str, ...] = ()
    finite: bool = False

    def __post_init__(self) -> None:
        """Check the number of members and the names.

        Raises:
            KfuzzError: if there is no member, or a name is no argument of the case.
        """
        if self.members < 1:
            raise KfuzzError(f"a batch of {self.members} items")
        named = [*self.planted, *(name for group in self.families for name in group)]
        for name in named:
            if name not in self.case.tensors:
                raise KfuzzError(
                    f"{name!r} is no argument of this case",
                    fix=f"name some of: {', '.join(self.case.tensors)}",
                )

    def group(self, member: int) -> int:
        """Return the group of a member, 0 to len(families)."""
        return member * (1 + len(self.families)) // self.members

    def family(self, name: str, group: int) -> str | None:
        """Return the family of an argument in a group; None for the case's own."""
        return self.families[group - 1].get(name) if group else None


@dataclass(frozen=True)
class Suspect:
    """A member of a burst that did not pass."""

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
        compared: of each result, whether some number of some member could be judged.
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
    compared: dict[str, bool] = field(default_factory=dict)
    unsupported: str = ""
    error: str = ""
    lost: str = ""
    spent: bool = False
