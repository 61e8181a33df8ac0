"""Candidates go out several at a time, and nothing else changes by that."""

import math
import random
from collections.abc import Callable, Iterator, Sequence

import pytest

from kfuzz.core.dtypes import unpack_numbers
from kfuzz.core.recipe import Case, TensorSpec
from kfuzz.engine import reduce as descending
from kfuzz.engine.reduce import Descent, Spent, reduce_case
from tests.helpers.asking_alone import one_by_one

Fails = Callable[[Case], bool]


def case_of(*sizes: int, seed: int = 0) -> Case:
    draw = random.Random(seed)
    data = bytes(draw.randrange(256) for _ in range(2 * math.prod(sizes)))
    return Case(
        {"x": TensorSpec(sizes, tuple("abc"[: len(sizes)]), "int16", values=data)}
    )


def values(case: Case) -> list[float]:
    spec = case.tensors["x"]
    assert spec.values is not None
    return unpack_numbers(spec.values, spec.dtype)


class Recorded:
    """Answers requests, counts them and the cases that it looked at."""

    def __init__(self, fails: Fails) -> None:
        self.fails = fails
        self.requests = 0
        self.judged: list[Case] = []

    def __call__(self, cases: Sequence[Case]) -> int | None:
        self.requests += 1
        for i, case in enumerate(cases):
            self.judged.append(case)
            if self.fails(case):
                return i
        return None


def sums_high(case: Case) -> bool:
    return sum(map(abs, values(case))) > 40_000


def has_a_pair(case: Case) -> bool:
    odd = [v for v in values(case) if v % 2]
    return len(odd) >= 2 and case.dims.get("a", 1) % 3 == 0


@pytest.mark.parametrize("fails", [sums_high, has_a_pair])
@pytest.mark.parametrize("seed", range(3))
def test_the_minimum_is_that_of_one_after_the_other(
    fails: Fails, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = case_of(6, 11, seed=seed)
    assert fails(case)
    together = Recorded(fails)
    made, reduction = reduce_case(case, together, lambda c: True, deadline=math.inf)
    monkeypatch.setattr(descending, "MOST_TOGETHER", 1)
    monkeypatch.setattr(descending, "FIRST_TOGETHER", 1)
    alone = Recorded(fails)
    wanted, apart = reduce_case(case, alone, lambda c: True, deadline=math.inf)
    assert (made, reduction) == (wanted, apart)
    assert together.judged == alone.judged
    assert alone.requests == len(alone.judged) == apart.evaluations
    assert together.requests < alone.requests


def test_what_is_kept_is_there_in_the_next_change() -> None:
    case = case_of(12)

    def zeroed(case: Case, i: int) -> Case | None:
        spec = case.tensors["x"]
        assert spec.values is not None
        data = bytearray(spec.values)
        if not any(data[2 * i : 2 * i + 2]):
            return None
        data[2 * i : 2 * i + 2] = bytes(2)
        return case.with_tensor(
            "x", TensorSpec((12,), ("a",), "int16", values=bytes(data))
        )

    needed = {3, 4, 9}
    descent = Descent(
        case,
        one_by_one(lambda c: all(values(c)[i] for i in needed)),
        lambda c: True,
        math.inf,
    )
    descent.take_each(range(12), zeroed)
    assert {i for i, v in enumerate(values(descent.best)) if v} == needed
    assert descent.evaluations == 12


def test_of_each_the_first_that_fails_is_taken_and_the_next_begins_there() -> None:
    case = case_of(12)

    def lowered(case: Case, i: int) -> Iterator[Case]:
        for lower in range(int(values(case)[i]) % 3):
            made = [int(v) for v in values(case)]
            made[i] = lower
            data = b"".join(v.to_bytes(2, "little", signed=True) for v in made)
            yield case.with_tensor("x", TensorSpec((12,), ("a",), "int16", values=data))

    def alone(descent: Descent) -> None:
        for i in range(12):
            descent.take_first(lowered(descent.best, i))

    def together(descent: Descent) -> None:
        descent.take_first_of_each(range(12), lowered)

    ends, looked, requests = [], [], []
    for walk in (alone, together):
        asked = Recorded(lambda c: sum(v in (0, 1) for v in values(c)) % 3 > 0)
        descent = Descent(case, asked, lambda c: True, math.inf)
        walk(descent)
        ends.append(descent.best)
        looked.append(asked.judged)
        requests.append(asked.requests)
    assert ends[0] == ends[1] != case
    assert looked[0] == looked[1]
    assert requests[1] < requests[0]


def test_no_case_is_asked_about_twice_and_none_outside_the_domain() -> None:
    case = case_of(8)
    shorter = [case_of(n) for n in (4, 2, 4, 3, 2, 1)]
    asked = Recorded(lambda c: False)
    descent = Descent(case, asked, lambda c: c.elements != 3, math.inf)
    assert not descent.take_first([case, *shorter])
    assert not descent.take_first(shorter)
    assert [c.elements for c in asked.judged] == [4, 2, 1]


def test_it_stops_at_its_number_of_evaluations_exactly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(descending, "MAX_EVALUATIONS", 9)
    asked = Recorded(lambda c: False)
    descent = Descent(case_of(40), asked, lambda c: True, math.inf)
    with pytest.raises(Spent, match="evaluations"):
        descent.take_first(case_of(n) for n in range(1, 30))
    assert len(asked.judged) == descent.evaluations == 9


def test_after_its_time_nothing_is_judged() -> None:
    asked = Recorded(lambda c: True)
    with pytest.raises(Spent, match="time"):
        Descent(case_of(4), asked, lambda c: True, 0.0).take(case_of(2))
    assert not asked.judged
