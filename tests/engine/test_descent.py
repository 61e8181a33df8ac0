"""How a reduction goes from a case to smaller ones."""

import math
import random
from collections.abc import Callable

import pytest

from kfuzz.core.dtypes import unpack_numbers
from kfuzz.core.recipe import Case, TensorSpec
from kfuzz.engine import reduce as descending
from kfuzz.engine.reduce import Descent, Spent

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
    """Answers, and notes the cases that it looked at."""

    def __init__(self, fails: Fails) -> None:
        self.fails = fails
        self.judged: list[Case] = []

    def __call__(self, case: Case) -> bool:
        self.judged.append(case)
        return self.fails(case)


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
