"""C-PRC-03: what declares how subnormal numbers count, and what breaks it."""

import pytest
import torch
from torch import Tensor

from kfuzz.contracts import operators as ops
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.oracle import accept
from kfuzz.contracts.suite import contracts_of
from kfuzz.contracts.witnesses.classes.formats import (
    flushed,
    log_by_exponent_bits,
)
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CaseReport, Kind, Verdict
from kfuzz.numerics.acceptance import Problem
from kfuzz.numerics.compare import compare
from kfuzz.numerics.formats import FORMATS
from tests.contracts.test_attribution import attributed
from tests.helpers.judged_cases import judged, row_case, spec, x_case

ID = "C-PRC-03"
TINY = 2.0**-130


def pair(family: str, other: str, dtype: str = "float32") -> Case:
    shape = (4, 16)
    return Case({"a": spec(family, shape, dtype), "b": spec(other, shape, dtype)})


def missed(
    operator: Operator, y: list[float], *values: list[float], **claims: object
) -> list[bool]:
    """Return which float32 results are refused for float32 arguments."""
    float32 = FORMATS["float32"]
    tensors = [torch.tensor([v], dtype=torch.float64) for v in values]
    problem = Problem(
        tensors=dict(zip(operator.tensors, tensors, strict=True)),
        scalars={},
        format=float32,
        output=float32,
        declaration=operator.defaults.declare("", **claims),
    )
    made = compare(torch.tensor([y]), accept(operator, problem)["y"])
    return [bool(m) for m in made.missed[0]]


def test_what_is_flushed_is_stored_as_zero_and_nothing_else_changes() -> None:
    x = [TINY, TINY, -TINY, 2.0**-126, 1.0]
    y = [TINY, 0.0, -0.0, 2.0**-126, 1.0]
    other = [0.0, 0.0, 0.0, 0.0, 0.0]
    assert missed(ops.add, y, x, other, subnormals="flush") == [True] + [False] * 4
    lost = [0.0, 0.0, 0.0, 0.0, 1.0]
    assert missed(ops.add, lost, x, other, subnormals="flush") == [
        False, False, False, True, False,
    ]  # fmt: skip
    assert missed(ops.add, y, x, other, subnormals="any") == [False] * 5


def test_elementwise_kernels_that_flush_read_zero_for_a_subnormal_argument() -> None:
    x, large = [TINY, TINY], [2.0**100, 2.0**100]
    y = [2.0**-30, 0.0]
    assert missed(ops.mul, y, x, large, subnormals="flush") == [True, False]
    assert missed(ops.mul, y, x, large, subnormals="any") == [False, False]
    assert missed(ops.mul, y, x, large, subnormals="preserve") == [False, True]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_flushing_breaks_preserve_and_is_named(dtype: str) -> None:
    def flushing(x: Tensor) -> Tensor:
        return torch.relu(flushed(x))

    report = judged(ops.relu, flushing, x_case("subnormal", (4, 16), dtype))
    assert attributed(report) == (ID, Kind.VALUE)
    assert "normal" in report.failure.message  # type: ignore[union-attr]
    for claim in ("any", "flush"):
        free = judged(
            ops.relu, flushing, x_case("subnormal", (4, 16), dtype),
            subnormals=claim,
        )  # fmt: skip
        assert free.failure is None
        assert free.verdicts[ID] is Verdict.CONFORMS


def test_flushed_results_of_normal_arguments_break_preserve() -> None:
    def flushing(a: Tensor, b: Tensor) -> Tensor:
        return flushed(a * b)

    report = judged(ops.mul, flushing, pair("minnormal", "uniform01"))
    assert report.failure is None
    report = judged(
        ops.mul, flushing, pair("minnormal", "uniform01"), subnormals="preserve"
    )
    assert attributed(report) == (ID, Kind.VALUE)
    assert "flushes" in report.failure.message  # type: ignore[union-attr]


def test_garbage_for_subnormal_arguments_is_found_under_any() -> None:
    function = log_by_exponent_bits.function
    case = x_case("subnormal", (4, 16))
    assert attributed(judged(ops.log, function, case)) == (ID, Kind.VALUE)
    assert judged(ops.log, function, x_case("uniform01", (4, 16))).failure is None


def test_keeping_what_is_declared_flushed_is_charged() -> None:
    case = pair("minnormal", "uniform01", "float16")

    def keeping(a: Tensor, b: Tensor) -> Tensor:
        return flushed(a) * flushed(b)

    def flushing(a: Tensor, b: Tensor) -> Tensor:
        return flushed(keeping(a, b))

    assert attributed(judged(ops.mul, keeping, case, subnormals="flush")) == (
        ID, Kind.VALUE,
    )  # fmt: skip
    assert judged(ops.mul, flushing, case, subnormals="flush").failure is None


def drops_last(x: Tensor) -> Tensor:
    y = torch.relu(x)
    y[..., -1:] = 0
    return y


def test_what_normal_numbers_show_too_is_no_matter_of_subnormals() -> None:
    """A dropped column is 0 as a flushed one is."""
    report = judged(ops.relu, drops_last, x_case("subnormal", (4, 16)))
    assert report.failure is not None
    assert report.failure.contract != ID


def test_it_is_decided_only_where_there_are_subnormal_numbers() -> None:
    def verdict(family: str) -> Verdict | None:
        report: CaseReport = judged(ops.sum, torch.sum, row_case(family, (4, 16)))
        return report.verdicts.get(ID)

    assert verdict("exact_int") is None
    assert verdict("subnormal") is Verdict.CONFORMS


def test_integers_have_no_subnormal_numbers() -> None:
    assert ID not in contracts_of(ops.argmax)
    assert ID in contracts_of(ops.topk)
