"""What the search of one kernel has learnt, as it is kept from run to run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

N = TypeVar("N", int, float)

# What earlier runs came upon counts for half in each later one, and in the end nothing.
_FADING: Final = 0.5
_LEAST_NEWS: Final = 0.1


@dataclass(frozen=True)
class Learnt:
    """What the search of one kernel has learnt.

    Attributes:
        visits: cases by stratum, each under its text.
        news: how often a case of a stratum showed something that none had before.
        behaviour: the share of the last rounds that showed something, the last one
            counting half, the one before it a quarter, and so on.
        octave: the greatest error / tolerance, in powers of two; None where there
            was none.
        branches: of the kernel's own file, that have run.
        symptoms: how cases failed or were declined, each as a text.
    """

    visits: Mapping[str, int] = field(default_factory=dict)
    news: Mapping[str, float] = field(default_factory=dict)
    behaviour: float = 1.0
    octave: int | None = None
    branches: int = 0
    symptoms: tuple[str, ...] = ()

    def without(self, told: "Learnt") -> "Learnt":
        """Return what is new since an earlier state of the same run."""
        return Learnt(
            {s: n - told.visits.get(s, 0) for s, n in self.visits.items()},
            {s: n - told.news.get(s, 0.0) for s, n in self.news.items()},
            self.behaviour,
            self.octave,
            self.branches,
            self.symptoms,
        )

    def faded(self) -> "Learnt":
        """Return what is left of it when another run begins."""
        news = {s: _FADING * n for s, n in self.news.items()}
        news = {s: n for s, n in news.items() if n >= _LEAST_NEWS}
        return Learnt(
            self.visits, news, self.behaviour, self.octave, self.branches, self.symptoms
        )

    def joined(self, later: "Learnt") -> "Learnt":
        """Return both; `later` says how the search went in the end."""
        octaves = [o for o in (self.octave, later.octave) if o is not None]
        symptoms = {*self.symptoms, *later.symptoms}
        return Learnt(
            _sum(self.visits, later.visits),
            _sum(self.news, later.news),
            later.behaviour,
            max(octaves, default=None),
            max(self.branches, later.branches),
            tuple(sorted(symptoms)),
        )


def _sum(one: Mapping[str, N], other: Mapping[str, N]) -> dict[str, N]:
    made = dict(one)
    for key, number in other.items():
        made[key] = made[key] + number if key in made else number
    return {key: number for key, number in sorted(made.items()) if number}
