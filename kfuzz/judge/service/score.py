"""What a judgement comes to for who asked: one word, a reward, a finding in short."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final


class Ruling(StrEnum):
    """The verdict on a candidate; README.md says what follows from each."""

    CONFORMS = "conforms"
    CONFORMS_ON_FINITE = "conforms_on_finite"
    VIOLATES = "violates"
    UNDER_SPECIFIED = "under_specified"
    ERROR = "error"
    TIME_OUT = "time_out"


REWARDS: Final[Mapping[Ruling, float | None]] = MappingProxyType(
    {
        Ruling.CONFORMS: 1.0,
        Ruling.CONFORMS_ON_FINITE: 0.5,
        Ruling.VIOLATES: 0.0,
        Ruling.UNDER_SPECIFIED: None,
        Ruling.ERROR: 0.0,
        Ruling.TIME_OUT: 0.0,
    }
)
"""The rewards unless others are asked for; None: the sample is to be dropped."""


@dataclass(frozen=True)
class Score:
    """The verdict on one candidate.

    Attributes:
        verdict: in one word.
        reward: what it is worth; None where the sample says nothing about the
            candidate and is to be dropped.
        reason: one line.
        seconds: how long the judgement took, waiting for a free process aside.
        cases: cases that were judged.
        seed: everything drawn depends on it.
        finding: what it violates, as plain data: "contract", "kind", "state",
            "message", "inputs" (a text for each argument), "got", "expected", and
            "explanation", lines, where one was asked for; "path" where it is kept.
            None where nothing is reported.
        phases: seconds by phase: to open and audit the "reference" where it was not
            open, to "build" the candidate, to "search", to "confirm"; and what of them
            was waited for the candidate's children, as "confirm: built". Empty where
            nothing came back.
    """

    verdict: Ruling
    reward: float | None
    reason: str
    seconds: float = 0.0
    cases: int = 0
    seed: int = 0
    finding: Mapping[str, Any] | None = None
    phases: Mapping[str, float] = field(default_factory=dict)

    @property
    def document(self) -> dict[str, Any]:
        """It as plain values, for JSON."""
        return asdict(self) | {"verdict": str(self.verdict)}
