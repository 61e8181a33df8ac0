"""C-CMP-02 around an autotuner's measurement, in Triton's interpreter."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor

from kfuzz.contracts import operators as ops
from kfuzz.contracts.classes import CLASSES
from kfuzz.contracts.operator import Operator
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CaseReport, Kind, Verdict
from kfuzz.execution.interpreter.watch import interpreting
from tests.helpers import judged_cases
from tests.helpers.judged_cases import spec

pytestmark = pytest.mark.skipif(
    not interpreting(), reason="Triton compiles kernels here"
)
CONFIGS = [triton.Config({"BLOCK": b}) for b in (8, 16)]


@triton.jit
def add_relu(x, y, n, BLOCK: tl.constexpr):
    """y += relu(x)"""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n, other=0.0)
    before = tl.load(y + at, mask=at < n, other=0.0)
    tl.store(y + at, before + tl.maximum(value, 0.0), mask=at < n)


def tuned(**options: Any) -> Any:
    return triton.autotune(CONFIGS, key=["n"], **options)(add_relu)


def launched(made: Any, x: Tensor, y: Tensor) -> Tensor:
    n = x.numel()
    made[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x.contiguous(), y, n)
    return y


def judged(
    function: Callable[..., object],
    *,
    operator: Operator = ops.relu,
    seed: int = 2,
    **more: object,
) -> CaseReport:
    case = Case({"x": spec("ones", (3, 7), seed=seed)})
    return judged_cases.judged(
        operator, function, case, classes=CLASSES, sizes="interpret", **more
    )


def test_a_sum_that_nothing_resets_is_right_in_one_call_and_not_in_the_first() -> None:
    made = tuned()
    report = judged(lambda x: launched(made, x, torch.zeros_like(x)))
    assert report.failure is not None
    assert report.failure.contract == "C-CMP-02"
    assert report.failure.kind is Kind.TUNING_DEPENDENT
    assert "= 5, " in report.failure.message  # twice each of two, and once
    assert "on a first call, in which the autotuner tries" in report.failure.message


def test_what_only_the_autotuner_resets_is_wrong_in_the_second_call() -> None:
    made = tuned(reset_to_zero=["y"])
    report = judged(lambda x: launched(made, x, torch.empty_like(x)))
    assert report.failure is not None
    assert report.failure.contract == "C-CMP-02"
    assert report.failure.kind is Kind.TUNING_DEPENDENT
    assert "on a second call" in report.failure.message


@pytest.mark.parametrize(
    "options", [{"reset_to_zero": ["y"]}, {"restore_value": ["y"]}]
)
def test_what_is_reset_or_restored_is_right(options: dict[str, Any]) -> None:
    made = tuned(**options)
    report = judged(lambda x: launched(made, x, torch.zeros_like(x)))
    assert report.failure is None
    assert report.verdicts["C-CMP-02"] is Verdict.CONFORMS


def test_a_first_call_that_raises_is_not_charged() -> None:
    def broken(arguments: object, reset_only: bool = False) -> None:
        if not reset_only:
            raise RuntimeError("no room for a copy")

    made = tuned(pre_hook=broken)
    report = judged(lambda x: launched(made, x, torch.zeros_like(x)))
    assert report.failure is None
    assert report.verdicts["C-CMP-02"] is Verdict.CONFORMS
