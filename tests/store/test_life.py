"""The life of a finding: what news and marks make of its state, and of two at once."""

from dataclasses import replace
from typing import Any

import pytest

from kfuzz.core.finding import Change, Explanation, Finding, Mark
from kfuzz.core.verdict import Feature, State
from kfuzz.store.life import covers, joined, marked, merged
from tests.helpers.findings import finding

NEW, CONFIRMED, FLAKY = State.NEW, State.CONFIRMED, State.FLAKY
UNREPRODUCED, KNOWN = State.UNREPRODUCED, State.KNOWN
WITNESSED = State.WITNESSED
FIXED, REGRESSED = State.FIXED, State.REGRESSED


def day(state: State, number: int, *, by_hand: bool = False) -> Change:
    return Change(state, f"2026-01-{number:02}T00:00:00Z", "why", by_hand)


def lived(*changes: Change, n: int = 3, **more: Any) -> Finding:
    return finding(n=n, state=changes[-1].state, history=changes, **more)


FOUND = (day(NEW, 1), day(CONFIRMED, 1))


@pytest.mark.parametrize(
    ("known", "news", "state"),
    [
        ([], CONFIRMED, CONFIRMED),
        ([day(KNOWN, 2, by_hand=True)], CONFIRMED, KNOWN),
        ([day(KNOWN, 2, by_hand=True)], FLAKY, KNOWN),
        ([day(FIXED, 2, by_hand=True)], CONFIRMED, REGRESSED),
        ([day(FIXED, 2, by_hand=True)], KNOWN, REGRESSED),  # by another one's mark
        ([day(FIXED, 2, by_hand=True)], FLAKY, FLAKY),
        ([day(FIXED, 2, by_hand=True)], UNREPRODUCED, FIXED),
        ([day(FLAKY, 2)], UNREPRODUCED, FLAKY),
        ([day(NEW, 1), day(WITNESSED, 1)], FLAKY, WITNESSED),
        ([day(NEW, 1), day(WITNESSED, 1)], CONFIRMED, CONFIRMED),
        ([day(NEW, 1), day(CONFIRMED, 1)], WITNESSED, CONFIRMED),
        ([day(CONFIRMED, 1), day(FIXED, 2, by_hand=True)], WITNESSED, REGRESSED),
    ],
)
def test_what_a_run_sees_again(known: list[Change], news: State, state: State) -> None:
    made = merged(lived(*FOUND, *known), lived(day(NEW, 9), day(news, 9)))
    assert made.state is state
    changed = state is not [*FOUND, *known][-1].state
    assert (len(made.history) > len(FOUND) + len(known)) == changed
    if changed:
        assert made.history[-1].state is state


def test_what_regressed_has_the_minimum_that_fails_now_and_says_so() -> None:
    fixed = lived(*FOUND, day(FIXED, 2, by_hand=True), n=1)
    made = merged(fixed, lived(day(NEW, 9), day(CONFIRMED, 9), n=9))
    assert made.input_elements == 9
    assert "was fixed" in made.history[-1].note
    assert made.history[-1].when.startswith("2026-01-09")
    assert merged(made, lived(day(NEW, 12), day(CONFIRMED, 12), n=9)) == made


def test_a_mark_covers_its_signature_or_what_needs_its_features() -> None:
    wide = marked(lived(*FOUND), KNOWN, mark=Mark("why"))
    other = lived(*FOUND, explanation=Explanation((Feature.NAN,)))
    assert covers(wide, other)
    narrow = replace(wide, mark=Mark("why", features=(Feature.TAIL,)))
    assert not covers(narrow, other)
    both = Explanation((Feature.NAN, Feature.TAIL))
    assert covers(narrow, replace(other, explanation=both))
    cut_short = replace(both, complete=False)
    assert not covers(narrow, replace(other, explanation=cut_short))
    assert not covers(narrow, replace(other, explanation=None))
    signature = replace(other.signature, contract="K-VAL-01")
    assert not covers(wide, replace(other, signature=signature))
    assert not covers(lived(*FOUND), other)


@pytest.mark.parametrize(
    ("ours", "theirs", "state"),
    [
        # The same night's find on two machines.
        ([*FOUND], [day(NEW, 2), day(CONFIRMED, 2)], CONFIRMED),
        # A mark outlives what other machines find after it.
        ([*FOUND, day(KNOWN, 5, by_hand=True)], [day(CONFIRMED, 9)], KNOWN),
        # Of two marks the later.
        (
            [*FOUND, day(KNOWN, 5, by_hand=True)],
            [*FOUND, day(FIXED, 7, by_hand=True)],
            FIXED,
        ),
        # Found before it was fixed here, or after.
        ([*FOUND, day(FIXED, 5, by_hand=True)], [day(CONFIRMED, 3)], FIXED),
        ([*FOUND, day(FIXED, 5, by_hand=True)], [day(CONFIRMED, 9)], REGRESSED),
        ([day(FLAKY, 1)], [day(CONFIRMED, 2)], CONFIRMED),
        ([day(CONFIRMED, 1)], [day(UNREPRODUCED, 2)], CONFIRMED),
    ],
)
def test_two_that_were_kept_apart(
    ours: list[Change], theirs: list[Change], state: State
) -> None:
    for one, other in ((ours, theirs), (theirs, ours)):
        made = joined(lived(*one), lived(*other))
        assert made.state is state
        assert set(ours) | set(theirs) <= set(made.history)
        assert [c.when for c in made.history] == sorted(c.when for c in made.history)
        assert joined(made, lived(*other)) == made  # a second time says nothing new


def test_joining_keeps_the_smaller_minimum_the_first_find_and_the_mark() -> None:
    mark = Mark("why")
    old = lived(day(CONFIRMED, 1), n=9, seed=1)
    new = marked(lived(day(CONFIRMED, 2), n=3, seed=2), KNOWN, mark=mark)
    new = replace(new, first=new.case)
    for made in (joined(old, new), joined(new, old)):
        assert (made.input_elements, made.first, made.mark) == (3, old.first, mark)
    flaky = lived(day(FLAKY, 3), n=1)
    assert joined(old, flaky).input_elements == 9  # what is sure is kept
