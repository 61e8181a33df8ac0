"""Limits of a search: how long, how many cases, how large the inputs, how deep."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from kfuzz.core.errors import UsageError
from kfuzz.core.recipe import Case


@dataclass(frozen=True)
class SizeBudget:
    """Limits on the tensors of one case.

    Attributes:
        elements: greatest number of elements of one tensor.
        rows: greatest product of the sizes outside the reduced axis, for
            backends that pay per program; matmul counts 16 x 16 tiles.
        span: greatest number of bytes from the first to the last element of a
            view that leaves memory between them unused; 0 where that memory
            must exist.
        tall: greatest number of rows, each tiny, that some cases have instead; 0 for no
            such cases.
    """

    elements: int
    rows: int
    span: int = 0
    tall: int = 0


class Scale(StrEnum):
    """Which sizes a search is about.

    USUAL keeps to the element budget. LARGE has tensors above 2^31 elements, more
    blocks than one grid dimension holds, and views that span gigabytes.
    """

    USUAL = "usual"
    LARGE = "large"


class Depth(StrEnum):
    """How far a case is judged.

    BASE runs the base probe alone: enough to see a known symptom again.
    SEARCH runs again what misses or was seen to touch memory that it should not,
    also under the other poison, elsewhere, or with its programs reversed; a share
    of the other cases, and all pinned ones, gets a second call.
    FULL adds the probes that tell the contract classes apart, and the second call
    to every case that does not fail without.
    """

    BASE = "base"
    SEARCH = "search"
    FULL = "full"


@dataclass(frozen=True)
class Budget:
    """Limits of one campaign; the first one reached ends it.

    Attributes:
        max_time: seconds for the whole run, its start-up aside; None for no limit.
        max_cases: cases per kernel, None for no limit.
        max_findings: findings over the whole run, None for no limit.
    """

    max_time: float | None = 60.0
    max_cases: int | None = None
    max_findings: int | None = None

    def __post_init__(self) -> None:
        """Check the limits.

        Raises:
            UsageError: if one is not a positive number.
        """
        for name in ("max_time", "max_cases", "max_findings"):
            value = getattr(self, name)
            kinds = (int, float) if name == "max_time" else (int,)
            if value is not None and not (
                isinstance(value, kinds) and not isinstance(value, bool) and value > 0
            ):
                raise UsageError(f"{name}={value!r} is not a positive number")


# Bursts: many inputs of one structure, distinguished by their values alone.
#
# And what the prefilter says of one: counts, and the members to be looked at.

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
        seconds: for which members are called, from the end of the first call on.
    """

    case: Case
    members: int
    families: tuple[Mapping[str, str], ...] = ()
    planted: tuple[str, ...] = ()
    finite: bool = False
    seconds: float = math.inf

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
        dropped: members for which there was no time.
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
    dropped: int = 0
    conforms: Mapping[str, int] = field(default_factory=dict)
    undecided: Mapping[str, int] = field(default_factory=dict)
    ratio: float = 0.0
    compared: dict[str, bool] = field(default_factory=dict)
    unsupported: str = ""
    error: str = ""
    lost: str = ""
    spent: bool = False
