"""Calls in a row: what changes late is found, whatever the bits of each call."""

from typing import Any

import pytest
import torch
from torch import Tensor

from kfuzz.core.verdict import CaseReport, Failure, Kind
from kfuzz.features.judge.candidate import Recorded, long_run
from kfuzz.features.judge.sandbox.meeting import Perturbations

WRONG = Failure("K-VAL-01", Kind.VALUE, "wrong")
LATE = 400


def holds(x: Tensor, y: Any) -> bool:
    return torch.allclose(y, x.relu(), rtol=1e-6, atol=0)


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("lies", [False, True])
def test_a_result_that_turns_wrong_late_is_found(noisy: bool, lies: bool) -> None:
    calls: list[bool] = []
    judged: list[Any] = []

    def call(x: Tensor) -> Tensor:
        y = x.relu()
        calls.append(lies and len(calls) > LATE)
        if noisy:  # as a sum by atomics is: the last bit
            y.view(-1)[len(calls) % y.numel()] *= 1 + 2**-23
        return torch.zeros_like(y) if calls[-1] else y

    def judge(case: Any, made: Recorded) -> CaseReport:
        judged.append(case)
        return CaseReport({}, failure=None if holds(case, made.returned) else WRONG)

    cases: list[Any] = [torch.rand(4, 8) + 0.1 for _ in range(3)]
    found = long_run(
        cases, values=lambda case: [case], call=call, judge=judge,
        bound=lambda case: lambda y: holds(case, y),
        seed=0, calls=600, over=lambda made: False,
    )  # fmt: skip
    assert (found is not None) is lies
    assert sum(calls) == lies, "the first wrong one ends it"
    assert len(judged) <= 3 * 16 + 1


@pytest.mark.parametrize("late", [0, LATE])
def test_an_argument_that_a_call_changes_is_judged(late: int) -> None:
    calls = 0

    def call(x: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        y = x.relu()
        if calls > late:
            x.zero_()
        return y

    def judge(case: Any, made: Recorded) -> CaseReport:
        x = case.clone()
        made.play(x)
        return CaseReport({}, failure=None if torch.equal(x, case) else WRONG)

    cases: list[Any] = [torch.rand(4, 8) + 0.1 for _ in range(3)]
    found = long_run(
        cases, values=lambda case: [case], call=call, judge=judge,
        bound=lambda case: lambda y: holds(case, y),
        seed=0, calls=600, over=lambda made: False,
    )  # fmt: skip
    assert found is not None
    assert calls == late + 1


def test_no_seed_changes_how_many_threads_a_call_meets() -> None:
    """A sum in another order would pass for a result that follows the seed."""
    around = Perturbations(3)
    for x in torch.rand(40, 4, 4):
        around.begin()
        met = [around.of(seed, [x]) for seed in range(8)]
        assert len({each.threads for each in met}) == 1
        assert len({each.seed for each in met}) == 8
