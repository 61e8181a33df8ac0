"""What running a conforming case in a changed form showed, and how that is said.

Scripts read the words again (`read_scaling` and others): a finding holds the case
itself, not its changed form. Nothing here imports torch.
"""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kfuzz.contracts.evidence import Miss

ORDERS: Final = ("reversed", "with its halves swapped")
"""Orders in which the reduced dimension of a case is tried."""

BITWISE: Final = "bitwise"
"""Detail of a failure whose results are admitted but differ bit by bit."""

_SCALING: Final = re.compile(r" with ([\w, ]+) times 2\^(-?\d+)")
_SHIFT: Final = re.compile(r"but not 2\^(-?\d+) times")
_ORDER: Final = re.compile(rf" with (\w+) of ([\w, ]+) ({'|'.join(ORDERS)})")


@dataclass(frozen=True)
class Scaling:
    """Arguments that are multiplied by a power of two.

    Attributes:
        arguments: their names.
        exponent: of the power, not 0.
        degree: by how many times as much the exponent of the results changes.
    """

    arguments: tuple[str, ...]
    exponent: int
    degree: int

    def __str__(self) -> str:
        """Return for example "a times 2^12"."""
        return f"{', '.join(self.arguments)} times 2^{self.exponent}"


@dataclass(frozen=True)
class Order:
    """Another order of a dimension, the same in every argument that has it.

    Attributes:
        axis: the dimension's name.
        arguments: the names of the arguments that have it.
        order: one of `ORDERS`.
    """

    axis: str
    arguments: tuple[str, ...]
    order: str

    def __str__(self) -> str:
        """Return for example "K of a, b reversed"."""
        return f"{self.axis} of {', '.join(self.arguments)} {self.order}"

    def places(self, n: int) -> list[int]:
        """Return which of n elements comes where."""
        every = list(range(n))
        if self.order == ORDERS[0]:
            return every[::-1]
        return every[n // 2 :] + every[: n // 2]


@dataclass(frozen=True)
class Changed:
    """One changed form of a conforming case, run.

    Attributes:
        change: what was changed.
        miss: the worst element that is not admitted there, where no class that is
            more specific than K-VAL-01 would claim it; None if all are admitted.
        shift: where the miss is admitted and has other bits than the case's own
            result times a power of two, the exponent of that power.
    """

    change: Scaling | Order
    miss: "Miss | None" = None
    shift: int | None = None


def read_scaling(message: str) -> tuple[tuple[str, ...], int] | None:
    """Return the scaled arguments and the exponent that a failure's message names."""
    found = _SCALING.search(message)
    return (tuple(found[1].split(", ")), int(found[2])) if found else None


def read_shift(message: str) -> int | None:
    """Return by which power of two a result had to grow, where that was asked for."""
    found = _SHIFT.search(message)
    return int(found[1]) if found else None


def read_order(message: str) -> Order | None:
    """Return the order that a failure's message names."""
    found = _ORDER.search(message)
    return Order(found[1], tuple(found[2].split(", ")), found[3]) if found else None
