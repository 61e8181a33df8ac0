"""Limits of a search: how long, how many cases, how large the inputs, how deep.

And what was spent of them.
"""

from dataclasses import dataclass
from enum import StrEnum

from kfuzz.core.errors import UsageError


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
        tall: greatest number of rows, each tiny, that a few cases have beyond `rows`;
            0 for no such cases.
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


@dataclass(frozen=True)
class Spending:
    """Where the time of one request went, in the child that answered it.

    Attributes:
        compiling: seconds of the kernel's calls in which something was compiled, or
            read from a cache.
        calling: other seconds in which the kernel had the process or its device.
        rest: seconds for all else: values, the oracle, the comparison.
        compiled: how often a compiler ran in them; what came from a cache does not
            count.
    """

    compiling: float = 0.0
    calling: float = 0.0
    rest: float = 0.0
    compiled: int = 0

    @property
    def running(self) -> float:
        """Seconds that it takes again where nothing has to be compiled."""
        return self.calling + self.rest

    @property
    def total(self) -> float:
        """All seconds."""
        return self.compiling + self.running
