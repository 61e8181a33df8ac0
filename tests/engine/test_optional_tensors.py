"""Kernels that take an optional tensor or None."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

import pytest
from torch import Tensor
from torch.nn import functional

import kfuzz
from kfuzz import strategies as ks
from kfuzz.contracts import operators as ops
from kfuzz.contracts.binding import BoundKernel
from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.core.verdict import CaseReport
from tests.helpers.judged_cases import COUNTER, judged
from tests.helpers.kernel_draws import drawn

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
    assert all(ops.layer_norm.accepts(c, kernel.declaration) for c in cases)


def test_an_annotation_says_what_a_kernel_can_do_without() -> None:
    def needs_weight(
        x: Tensor, weight: Tensor, bias: "Tensor | None", *, eps: float
    ) -> Tensor:
        return norm(x, weight, bias, eps=eps) * (2 if bias is None else 1)

    met = {frozenset(c.tensors) for c in drawn(bind(needs_weight), 200)}
    assert met == {frozenset(CASE.tensors), frozenset({"x", "weight"})}
    assert judged(ops.layer_norm, needs_weight, CASE).failure is None
    assert judged(ops.layer_norm, needs_weight, without("bias")).failure is not None


@pytest.mark.parametrize(
    ("annotation", "takes"),
    [
        (Tensor | None, True), ("Optional[Tensor]", True),
        ("Union[Tensor, None]", True), (Tensor, False), ("Tensor", False),
        ("Tensor, never None", False),
        (Annotated[Tensor, "not None"], False), (Callable[[], None], False),
    ],
)  # fmt: skip
def test_what_is_no_such_annotation_needs_it(annotation: Any, takes: bool) -> None:
    def own(x: Tensor, weight: Tensor, bias: Tensor, *, eps: float) -> Tensor:
        return norm(x, weight, bias, eps=eps)

    own.__annotations__["bias"] = annotation
    assert bind(own).arguments.nullable == ({"bias"} if takes else set())


@pytest.mark.parametrize("lacking", FORMS)
def test_what_is_wrong_without_a_tensor_is_found_there_alone(
    lacking: tuple[str, ...],
) -> None:
    kernel = spoilt(*lacking)
    for absent in FORMS:
        report = judged(ops.layer_norm, kernel, without(*absent))
        assert report.error is report.unsupported is report.refusal is None
        assert (report.failure is not None) == (absent == lacking)


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
