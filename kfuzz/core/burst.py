"""Bursts: many inputs of one structure, told apart by their values alone."""

from collections.abc import Mapping
from dataclasses import dataclass
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
            raise KfuzzError(f"a burst of {self.members} members")
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
