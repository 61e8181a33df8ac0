"""Kernels that take an optional tensor or None."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from torch import Tensor
from torch.nn import functional

import kfuzz
from kfuzz import strategies as ks
from kfuzz.contracts import operators as ops
from kfuzz.contracts.binding import BoundKernel
from kfuzz.contracts.classes import CLASSES
from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.core.verdict import CaseReport
from kfuzz.engine.search.record import Record
from kfuzz.evaluation.probes import building as opchecking
from tests.helpers.judged_cases import COUNTER, judged
from tests.helpers.kernel_draws import drawn
from tests.targets.test_targets import NORM

CASE = Case(
    {
        "x": TensorSpec((4, 8), ("d0", "N"), "float32", fill=Fill("randn", 1)),
        "weight": TensorSpec((8,), ("N",), "float32", fill=Fill("randn", 2)),
        "bias": TensorSpec((8,), ("N",), "float32", fill=Fill("randn", 3)),
    },
    {"eps": 1e-5},
)
FORMS = [(), ("weight",), ("bias",), ("weight", "bias")]


def without(*names: str, case: Case = CASE) -> Case:
    kept = {n: s for n, s in case.tensors.items() if n not in names}
    return replace(case, tensors=kept)


def norm(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None,
    *, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    wide = [None if t is None else t.double() for t in (weight, bias)]
    return functional.layer_norm(x.double(), x.shape[-1:], *wide, eps).to(x.dtype)


def spoilt(*lacking: str) -> Callable[..., Tensor]:
    """Return `norm` with wrong results where just these are None."""

    def call(
        x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None,
        *, eps: float = 1e-5,
    ) -> Tensor:  # fmt: skip
        given = {"weight": weight, "bias": bias}
        y = norm(x, weight, bias, eps=eps)
        return (
            y * 1.01 if {n for n, t in given.items() if t is None} == {*lacking} else y
        )

    return call


def bind(function: Callable[..., Any], operator: Any = ops.layer_norm) -> BoundKernel:
    return kfuzz.kernel(operator, name=f"optional{next(COUNTER)}")(function)


def test_cases_lack_what_a_kernel_can_do_without_each_alone_and_together() -> None:
    kernel = bind(norm)
    cases = drawn(kernel, 400)
    met = Counter(frozenset(CASE.tensors) - frozenset(c.tensors) for c in cases)
    assert set(met) == set(map(frozenset, FORMS))
    # One in eight of what differs: Hypothesis repeats plain draws.
    assert 0.02 < 1 - met[frozenset()] / len(cases) < 0.25
    assert all(ops.layer_norm.admits(c, kernel.declaration) for c in cases)


def test_a_tensor_stays_on_which_other_sizes_depend() -> None:
    operator = kfuzz.Operator(
        "rows",
        inputs={
            "x": ks.tensors("M N"),
            "table": ks.tensors("V N", optional=True),
            "free": ks.tensors("R", optional=True),
            "index": ks.indices("M", below="V"),
        },
        oracle=lambda x, *others: x,
    )

    def call(
        x: Tensor, table: Any = None, free: Any = None, index: Any = None
    ) -> None: ...

    found = {tuple(c.tensors) for c in drawn(bind(call, operator), 100)}
    assert found == {("x", "table", "free", "index"), ("x", "table", "index")}


@pytest.mark.parametrize("lacking", FORMS)
def test_what_is_wrong_without_a_tensor_is_found_there_alone(
    lacking: tuple[str, ...],
) -> None:
    kernel = spoilt(*lacking)
    for absent in FORMS:
        report = judged(ops.layer_norm, kernel, without(*absent))
        assert report.error is report.unsupported is report.refusal is None
        assert (report.failure is not None) == (absent == lacking)


def test_destinations_are_given_beside_what_is_none() -> None:
    def into(x: Tensor, weight=None, y=None, bias=None, eps=1e-5):  # type: ignore[no-untyped-def]
        y.copy_(norm(x, weight, bias, eps=eps))

    for absent in FORMS:
        report = judged(ops.layer_norm, into, without(*absent), out=("y",))
        assert report.failure is report.error is report.refusal is None


def test_refusing_none_is_a_refusal_that_is_told() -> None:
    def picky(x: Tensor, weight: Tensor, bias: Tensor | None = None, eps: float = 0):  # type: ignore[no-untyped-def]
        if bias is None:
            raise ValueError("bias is needed")
        return norm(x, weight, bias, eps=eps)

    case = without("bias")
    report = judged(ops.layer_norm, picky, case)
    assert report.failure is None
    record = Record(frozenset(CLASSES), ("float32",))
    record.take(case, report)
    (refusal,) = record.refusals()
    assert (refusal.reason, refusal.example) == ("no bias", "bias is needed")
    assert refusal.remedy == "no default None for the parameter bias"


def test_an_operator_of_a_library_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opchecking, "is_child", lambda: True)  # opcheck too
    report = judged(ops.layer_norm, NORM, without("bias"))
    assert report.failure is report.error is report.refusal is None


def test_an_oracle_gets_none_for_what_is_missing_before_another_tensor() -> None:
    def scaled(x: Any, weight: Any = None, bias: Any = None) -> Any:
        x = x.clone() if weight is None else x * weight
        return x if bias is None else x + bias

    operator = kfuzz.Operator(
        "affine",
        inputs={
            "x": ks.tensors("* N"),
            "weight": ks.tensors("N", optional=True),
            "bias": ks.tensors("N", optional=True),
        },
        oracle=scaled,
    )

    def wrong(x: Tensor, weight: Any = None, bias: Any = None) -> Tensor:
        y: Tensor = scaled(x, weight, bias)
        return y + 1 if weight is None else y

    def check(function: Callable[..., Tensor], case: Case) -> CaseReport:
        report = judged(operator, function, replace(case, scalars={}))
        assert report.error is None
        return report

    for absent in FORMS:
        assert check(scaled, without(*absent)).failure is None
        failed = check(wrong, without(*absent)).failure is not None
        assert failed == ("weight" in absent)


KERNEL = """\
import torch


def mine(x, weight=None{}, bias=None, eps=1e-5):
    alone = weight is None and bias is not None
    return {}(torch.full_like(x, 7.0 if alone else 1.0))
"""
OUT = {(): ("", ""), ("y",): (", y=None", "y.copy_")}
