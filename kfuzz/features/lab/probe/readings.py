"""What probes see of a kernel's arithmetic, and what they say of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from kfuzz.core.declaration import Accumulator
from kfuzz.core.recipe import Case

Tree: TypeAlias = int | tuple["Tree", ...]
"""An order of additions: the number of a term, or the trees whose sums are added."""


Claim: TypeAlias = bool | str | tuple[str, ...]
"""The value of a declaration."""


class Outcome(StrEnum):
    """How what a kernel is stands to what it declares."""

    AS_DECLARED = "as declared"
    BETTER = "better"
    DIFFERS = "differs"
    NOT_APPLICABLE = "not applicable"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Reading:
    """What one probe says of one kernel and format.

    Attributes:
        probe: the probe's name.
        dtype: format of the data.
        output: format of the results.
        found: what the arithmetic is, in words; "" where that is not known.
        declared: what the kernel declares of it, "" where nothing.
        outcome: how the two stand to one another.
        reason: why, where that does not show.
        terms: how many terms the sums had; 0 where none were made.
        tree: the order of additions, where one was found.
        claims: keywords of `kfuzz.kernel` that declare what was found.
        observed: raw observations, one line each.
        finding: id of the finding that a difference is.
        witnesses: cases that should show the difference to the contracts.
    """

    probe: str
    dtype: str
    output: str
    found: str
    declared: str
    outcome: Outcome
    reason: str = ""
    terms: int = 0
    tree: Tree | None = None
    claims: Mapping[str, Claim] = field(default_factory=dict)
    observed: tuple[str, ...] = ()
    finding: str = ""
    witnesses: tuple[Case, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class KernelReadings:
    """All readings of one kernel.

    Attributes:
        kernel: node id.
        operator: operator name.
        readings: by format, then in the order of the probes.
        calls: calls of the kernel that were made for them.
        narrowed: the declared formats that were probed, where not all were.
    """

    kernel: str
    operator: str
    readings: tuple[Reading, ...]
    calls: int = 0
    narrowed: tuple[str, ...] = ()

    @property
    def says_something(self) -> bool:
        """Whether any probe found what the arithmetic is."""
        return any(reading.found for reading in self.readings)

    @property
    def claims(self) -> dict[str, Claim]:
        """What all formats together would declare.

        A claim that formats contradict each other in is left out: one declaration
        holds for all of them. Of heights the greatest is taken, and a height never
        goes without the sizes at which it was found.
        """
        dtypes = {(r.dtype, r.output) for r in self.readings}
        found: dict[str, dict[tuple[str, str], Claim]] = {}
        for reading in self.readings:
            for key, value in reading.claims.items():
                found.setdefault(key, {})[reading.dtype, reading.output] = value
        made: dict[str, Claim] = {}
        for key, given in found.items():
            values = set(given.values())
            models = [Accumulator.parse(v) for v in values if key == "accumulator"]
            if given.keys() != dtypes:
                continue
            if len(values) == 1:
                made[key] = next(iter(values))
            elif models and all(m.model == "blocked" for m in models):
                made[key] = str(max(models, key=lambda m: m.count))
        if "shape_class" in found and not {"shape_class", "accumulator"} <= set(made):
            made.pop("shape_class", None)
            made.pop("accumulator", None)
        if made and self.narrowed:
            made["dtypes"] = self.narrowed
        return made
