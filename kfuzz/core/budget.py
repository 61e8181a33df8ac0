"""Limits of a search: how long, how many cases, how large the inputs."""

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


@dataclass(frozen=True)
class Budget:
    """Limits of one campaign; the first one reached ends it.

    Attributes:
        max_time: seconds for the whole run, None for no limit.
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
