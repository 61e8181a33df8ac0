"""K-REF-01 where one process cannot tell: a fresh child settles what is suspected."""

import itertools
import threading
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from kfuzz.contracts import operators as ops
from kfuzz.contracts.binding import kernel
from kfuzz.contracts.operator import Operator
from kfuzz.core.budget import Depth
from kfuzz.core.codec import decode, encode
from kfuzz.core.finding import Target
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import (
    CaseReport,
    Failure,
    Kind,
    Suspicion,
    Verdict,
)
from kfuzz.engine.search.record import Record
from kfuzz.engine.search.round import KernelSearch, Round
from kfuzz.targets.load import LoadedKernel, Source
from tests.engine.test_replacement import CASE, WELL, Zoo, runner_of
from tests.helpers.judged_cases import bench_of, row_case, spec

NAMES = (f"settled{i}" for i in itertools.count())
NORM = Case(
    {
        "x": spec("randn", (4, 20), axes=("d0", "N")),
        "weight": spec("randn", (20,), axes=("N",), seed=3),
    },
    {"eps": 1e-6},
)


def packed() -> Callable[[Tensor, Tensor, float], Tensor]:
    """Root mean square norm with a weight that is kept for its shape."""
    kept: dict[torch.Size, Tensor] = {}

    def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        held = kept.setdefault(weight.shape, weight.clone())
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * held

    return norm


def first_size(block: int) -> Callable[[Tensor, int], Tensor]:
    """A mean over as many elements as the first call of so many blocks had."""
    kept: dict[int, int] = {}

    def mean(x: Tensor, dim: int) -> Tensor:
        return x.sum(dim) / kept.setdefault(-(-x.shape[dim] // block), x.shape[dim])

    return mean


@pytest.mark.parametrize(
    ("operator", "made", "case", "shape", "why"),
    [
        (ops.rms_norm, packed, NORM, (4, 20), "other data of the same shapes"),
        (
            ops.mean,
            lambda: first_size(64),
            row_case("randn", (4, 20)),
            (4, 19),
            "with x of [4, 19], not [4, 20]",
        ),
    ],
    ids=["a part of the data", "a size"],
)
def test_what_is_kept_for_a_shape_is_suspected_and_right_alone(
    operator: Operator,
    made: Callable[[], Callable[..., object]],
    case: Case,
    shape: tuple[int, ...],
    why: str,
) -> None:
    report = bench_of(operator, made()).judge(case, Depth.FULL)
    assert report.suspicion is not None
    told = report.suspicion.failure
    assert (told.contract, told.kind) == ("K-REF-01", Kind.STALE_RESULT)
    assert why in told.message
    suspected = report.suspicion.case
    assert suspected.pinned
    assert suspected.tensors["x"].shape == shape
    alone = bench_of(operator, made()).judge(suspected, Depth.BASE)
    assert alone.failure is None
    assert alone.verdicts["K-VAL-01"] is Verdict.CONFORMS
    assert decode(CaseReport, encode(report)) == report
    shown = report.confirmed()
    assert shown.failure == told
    assert shown.verdicts == {"K-REF-01": Verdict.VIOLATES}


def test_what_is_wrong_by_itself_is_suspected_and_wrong_alone() -> None:
    def positive(x: Tensor) -> Tensor:
        return x.clone()

    case = Case({"x": spec("ones", (4, 8))})
    report = bench_of(ops.relu, positive).judge(case, Depth.FULL)
    assert report.failure is None
    assert report.suspicion is not None
    alone = bench_of(ops.relu, positive).judge(report.suspicion.case, Depth.BASE)
    assert alone.failure is not None


def test_a_right_kernel_is_suspected_of_nothing() -> None:
    report = bench_of(ops.mean, torch.mean).judge(
        row_case("randn", (4, 20)), Depth.FULL
    )
    assert report.failure is None
    assert report.suspicion is None
    assert "suspicion" not in encode(report)


# The campaign's side ----------------------------------------------------------

STALE = Failure("K-REF-01", Kind.STALE_RESULT, "stale", "out")
WRONG = Failure("K-VAL-01", Kind.VALUE, "wrong", "out")
ACCUSED = replace(CASE, poison="finite")
CLEAN = CaseReport({"K-VAL-01": Verdict.CONFORMS})
SUSPECTS = replace(CLEAN, suspicion=Suspicion(ACCUSED, STALE))
FAILS = CaseReport({"K-VAL-01": Verdict.VIOLATES}, failure=WRONG)
BROKEN = CaseReport({}, error="out of memory")


def replies(report: CaseReport) -> list[Any]:
    return [WELL, {"report": report, "spent": False}]


@pytest.mark.parametrize(
    ("alone", "shown"), [(CLEAN, STALE), (FAILS, None), (BROKEN, None)]
)
def test_a_confirmation_asks_one_fresh_child_about_the_suspected_call(
    alone: CaseReport, shown: Failure | None
) -> None:
    zoo = Zoo(replies(SUSPECTS), replies(CLEAN), replies(SUSPECTS), replies(alone))
    runner = runner_of(zoo, "cpu")
    reports = runner.judge_fresh(CASE, [Depth.SEARCH] * 3)
    assert len(zoo.born) == 4
    assert [r.failure for r in reports] == [shown, None, shown]
    assert not zoo.living


class Suspecting:
    """Suspects the call after every case; the accused case itself fails.

    Attributes:
        alone: what fresh children say of the accused case.
        asked: how often they were asked.
        judged: the cases that were judged.
    """

    children = SimpleNamespace(unfenced="")
    reached = SimpleNamespace(run=frozenset())
    compiled = 0.0

    def __init__(self, *, alone: bool | None) -> None:
        self.alone, self.asked = alone, 0
        self.judged: list[Case] = []

    def judge(self, case: Case, depth: str, patience: float = 0) -> CaseReport:
        self.judged.append(case)
        return FAILS if case == ACCUSED else SUSPECTS

    def conforms_alone(self, case: Case) -> bool | None:
        assert case == ACCUSED
        self.asked += 1
        return self.alone

    def prepare(self, count: int) -> None:
        """Take notice that fresh children will be asked for."""


def round_of(runner: Suspecting) -> Round:
    bound = kernel(ops.relu, name=next(NAMES))(torch.relu)
    loaded = LoadedKernel(bound, Target("a.py", "relu"), Source())
    record = Record(frozenset({"K-VAL-01", "K-REF-01"}), ("float32",))
    turns = KernelSearch(loaded, runner, None, record)  # type: ignore[arg-type]
    return Round(turns, stop=threading.Event(), deadline=float("inf"))


def test_a_search_charges_what_conforms_alone_on_the_case_that_came_before() -> None:
    runner = Suspecting(alone=True)
    turn = round_of(runner)
    turn.judge(CASE)
    assert turn.found is not None
    case, report = turn.found
    assert case == CASE
    assert report.failure == STALE
    assert runner.judged == [CASE]


def test_a_search_takes_what_fails_alone_for_a_case_like_any_other() -> None:
    runner = Suspecting(alone=False)
    turn = round_of(runner)
    turn.judge(CASE)
    assert turn.found is not None
    case, report = turn.found
    assert case == ACCUSED
    assert report.failure is not None
    assert report.failure.contract == "K-VAL-01"
