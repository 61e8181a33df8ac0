"""C-ORD-03 on a CUDA device: a stream that has yet to write a kernel's arguments."""

from functools import partial

import pytest
import torch
from torch import Tensor

from kfuzz.contracts import operators as ops
from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.core.verdict import Kind, Verdict
from tests.helpers import judged_cases

pytestmark = pytest.mark.gpu

CASE = Case({"x": TensorSpec((4, 33), ("d0", "d1"), "float32", fill=Fill("randn", 2))})


judged = partial(
    judged_cases.judged,
    ops.relu,
    case=CASE,
    classes={"C-ORD-03", "K-VAL-01"},
    backend="cuda:0",
)


def test_work_on_another_stream_comes_too_early() -> None:
    def aside(x: Tensor) -> Tensor:
        with torch.cuda.stream(torch.cuda.default_stream()):
            return torch.relu(x)

    report = judged(aside)
    assert report.failure is not None
    assert report.failure.contract == "C-ORD-03"
    assert report.failure.kind is Kind.OVERLAP_DEPENDENT


def test_work_on_the_current_stream_waits_for_its_arguments() -> None:
    report = judged(torch.relu)
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

    assert judged(joined).failure is None
