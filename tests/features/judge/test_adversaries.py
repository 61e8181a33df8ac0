"""Candidates that lie violate, honest ones beside them do not: a few of them.

`bash .ci/nightly` judges all of them, of another seed each day.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from kfuzz.core.verdict import Verdict
from kfuzz.execution.processes.child import Zygote
from tests.features.judge.adversaries.honest import HABITS, honest_ones
from tests.features.judge.adversaries.suite import (
    Candidate,
    candidates,
    opener,
    outcome_of,
)

SEED = 1
# What one call does not show, or only to who looks away.
LIARS = (
    "a date to come",
    "torch's seed",
    "no frame of a judge",
    "runs the reference's source",
    "methods of the result that compute",
)
HONEST = ("torch's seed", "row_sum: an order that is drawn")


def chosen(names: tuple[str, ...], *, wrong: bool) -> list[Candidate]:
    """Return the candidate of each name, on whatever problem was drawn."""
    made = [c for c in candidates(SEED, 1) if c.wrong is wrong]
    return [next(c for c in made if c.name.startswith(name)) for name in names]


@pytest.fixture(scope="module")
def zygotes() -> Iterator[Callable[[str], Zygote]]:
    with ExitStack() as stack:
        yield opener(stack)


@pytest.mark.slow
@pytest.mark.parametrize("candidate", chosen(LIARS, wrong=True), ids=LIARS)
def test_a_liar_violates(
    candidate: Candidate, zygotes: Callable[[str], Zygote]
) -> None:
    made = outcome_of(candidate, zygotes)
    assert made.verdict is Verdict.VIOLATES, made.reason


@pytest.mark.parametrize("candidate", chosen(HONEST, wrong=False), ids=HONEST)
def test_an_honest_one_conforms(
    candidate: Candidate, zygotes: Callable[[str], Zygote]
) -> None:
    made = outcome_of(candidate, zygotes, most_cases=6)
    assert made.verdict is Verdict.CONFORMS, made.reason


def test_there_are_enough_of_both_and_a_seed_makes_others() -> None:
    made = list(candidates(SEED, 1))
    assert sum(c.wrong for c in made) >= 120
    assert sum(not c.wrong for c in made) >= 150
    habits = {h.name.partition(" with ")[2] for h in honest_ones()} - {""}
    assert habits == set(HABITS)
    texts = {c.source for c in made}
    others = {c.source for c in candidates(SEED + 1, 1)}
    assert len(others - texts) > 60
