"""C-ORD-03 on a CUDA device: a stream that has yet to write a kernel's arguments."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from kfuzz.contracts import operators as ops
from kfuzz.contracts.binding import kernel
from kfuzz.core.budget import Depth
from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.core.verdict import CaseReport, Kind, Verdict
from kfuzz.evaluation.evaluator import Evaluator, setting_of
from tests.helpers.budgets import SIZE_BUDGETS

pytestmark = pytest.mark.gpu

CASE = Case({"x": TensorSpec((4, 33), ("d0", "d1"), "float32", fill=Fill("randn", 2))})


def judged(name: str, function: Callable[[Tensor], Tensor]) -> CaseReport:
    classes = {"C-ORD-03", "K-VAL-01"}
    setting = setting_of("cuda:0", SIZE_BUDGETS["cuda"], classes)
    return Evaluator(kernel(ops.relu, name=name)(function), setting).judge(
        CASE, Depth.FULL
    )


def test_work_on_another_stream_comes_too_early() -> None:
    def aside(x: Tensor) -> Tensor:
        with torch.cuda.stream(torch.cuda.default_stream()):
            return torch.relu(x)

    report = judged("aside", aside)
    assert report.failure is not None
    assert report.failure.contract == "C-ORD-03"
    assert report.failure.kind is Kind.OVERLAP_DEPENDENT


def test_work_on_the_current_stream_waits_for_its_arguments() -> None:
    report = judged("in_line", torch.relu)
    assert report.failure is None
    assert report.verdicts["C-ORD-03"] is Verdict.CONFORMS


def test_another_stream_that_is_waited_for_is_none() -> None:
    def joined(x: Tensor) -> Tensor:
        here, other = torch.cuda.current_stream(), torch.cuda.Stream()
        other.wait_stream(here)
        with torch.cuda.stream(other):
            y = torch.relu(x)
        here.wait_stream(other)
        y.record_stream(here)
        return y

    assert judged("joined", joined).failure is None
