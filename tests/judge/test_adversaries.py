"""Candidates that lie violate, honest ones beside them do not; the night tries all."""

from collections.abc import Iterator

import pytest

from kfuzz.core.verdict import Verdict
from kfuzz.execution.processes import Zygote
from kfuzz.judge.sandbox import zygote_for
from tests.helpers.tiers import usual
from tests.judge.adversaries.suite import Candidate, Suite, candidates

SEED = 1
# What each push tries: one of each kind of look that a single call does not show.
USUAL = {
    "a date to come",
    "torch's seed",
    "no frame of a judge",
    "runs the reference's source",
}
ALL = [c for c in candidates(SEED, 1) if c.family != "by hand"]


def label(candidate: Candidate) -> str:
    return candidate.name.partition(" (")[0]


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    with zygote_for("cpu", output=lambda piece: None) as zygote:
        yield zygote


@pytest.mark.parametrize(
    "candidate",
    [usual(c, is_usual=label(c) in USUAL) for c in ALL if c.wrong],
    ids=label,
)
def test_a_liar_violates(candidate: Candidate, zygote: Zygote) -> None:
    made = Suite(zygote).judge(candidate)
    assert made.verdict is Verdict.VIOLATES, made.reason


@pytest.mark.parametrize(
    "candidate",
    [
        usual(
            c, is_usual=label(c) == "torch's seed" or (c.random and "row_sum" in c.name)
        )
        for c in ALL
        if not c.wrong
    ],
    ids=label,
)
def test_an_honest_one_does_not(candidate: Candidate, zygote: Zygote) -> None:
    made = Suite(zygote, most_cases=12).judge(candidate)
    assert made.verdict is Verdict.CONFORMS, made.reason


def test_there_are_enough_of_both() -> None:
    wrong = sum(c.wrong for c in candidates(SEED, 1))
    assert wrong >= 120
    assert sum(1 for c in candidates(SEED, 1)) - wrong >= 200
    texts = {c.source for c in candidates(SEED, 1)}
    others = {c.source for c in candidates(SEED + 1, 1)}
    assert len(others - texts) > 100  # another seed makes other candidates
