"""K-REF-01 in calls replayed from a graph, whatever captured them."""

from collections.abc import Callable, Mapping, Sequence

import pytest
import torch
from torch import Tensor

from kfuzz.contracts import operators as ops
from kfuzz.core.budget import Depth
from kfuzz.core.verdict import CaseReport, Kind
from kfuzz.evaluation.evaluator import Evaluator
from kfuzz.execution.calls.batches import Overlapping
from kfuzz.execution.device import graphs
from kfuzz.numerics.run import Run
from tests.helpers.judged_cases import bench_of, x_case

Data = Sequence[Mapping[str, Tensor]]
Given = Callable[[int, Tensor], Tensor]


def judged(
    monkeypatch: pytest.MonkeyPatch,
    given: Given,
    depth: Depth = Depth.FULL,
    function: Callable[[Tensor], Tensor] = torch.relu,
) -> tuple[CaseReport, Evaluator, list[int]]:
    """Judge relu, its replays played: what each gives, by its number and data."""
    counted: list[int] = []

    def replayed(
        common: Overlapping, captured: Mapping[str, Tensor], data: Data
    ) -> tuple[tuple[Run, ...], bool]:
        runs = []
        for values in data:
            out = given(len(counted), values["x"])
            counted.append(1)
            runs.append(Run(outputs={"y": out}))
        return tuple(runs), False

    monkeypatch.setattr(graphs, "replayed", replayed)
    evaluator = bench_of(ops.relu, function, classes={"K-REF-01", "K-VAL-01"})
    evaluator.captures = True
    return evaluator.judge(x_case("randn", (4, 8)), depth), evaluator, counted


def test_replays_that_follow_their_data_are_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    report, _, counted = judged(monkeypatch, lambda _, x: torch.relu(x))
    assert report.failure is None
    assert len(counted) == 2


@pytest.mark.parametrize("at_fault", [0, 1])
def test_a_replay_that_does_not_is_charged_if_it_comes_again(
    monkeypatch: pytest.MonkeyPatch, at_fault: int
) -> None:
    report, _, counted = judged(
        monkeypatch, lambda n, x: torch.relu(x) + (n % 2 == at_fault)
    )
    assert report.failure is not None
    assert report.failure.contract == "K-REF-01"
    assert report.failure.kind is Kind.STALE_RESULT
    assert "replayed from a CUDA graph" in report.failure.message
    assert len(counted) == 4


def test_a_miss_that_does_not_come_again_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    report, _, _ = judged(monkeypatch, lambda n, x: torch.relu(x) + (n == 0))
    assert report.failure is None


def test_data_on_which_the_kernel_is_wrong_anyway_say_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The case is right; flipped and negated it is not, captured or called."""
    met: list[Tensor] = []

    def wrong_on_others(x: Tensor) -> Tensor:
        met.append(x.clone())
        return torch.relu(x) + float(not torch.equal(x, met[0]))

    report, _, counted = judged(
        monkeypatch, lambda _, x: wrong_on_others(x), function=wrong_on_others
    )
    assert report.failure is None
    assert len(counted) == 4


def test_a_capture_that_broke_ends_the_child_and_is_no_finding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(graphs, "replayed", lambda *_: ((), True))
    evaluator = bench_of(ops.relu, torch.relu, classes={"K-REF-01"})
    evaluator.captures = True
    report = evaluator.judge(x_case("randn", (4, 8)), Depth.FULL)
    assert report.failure is None
    assert evaluator.spent
    assert not evaluator.captures
