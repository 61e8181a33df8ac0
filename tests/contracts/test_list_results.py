"""Results that are lists of tensors: their number and nesting are judged too."""

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
import torch
from torch import Tensor

import kfuzz
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator
from kfuzz.core.budget import Depth
from kfuzz.core.errors import BindingError
from kfuzz.core.recipe import Case, TensorSpec
from kfuzz.core.verdict import Failure, Kind, Verdict
from tests.helpers.in_process import InProcess, drawn


def _rows(x: Tensor, *, size: int) -> tuple[Tensor, ...]:
    """Rows in parts of a size."""
    return (2 * x).split(size)


NUMBERS = count()
ROWS = kfuzz.reference(
    _rows,
    {"x": ks.tensors("N D"), "size": ks.scalar(2, (1, 3))},
    outputs=("parts[]",),
    shape_class="N >= 1 and size >= 1",
)
SUMMED = kfuzz.reference(
    lambda x: (x.sum(), [(2 * x, 3 * x), (4 * x,)]),
    {"x": ks.tensors("*")},
    name="summed",
    outputs=("total", "kept[]"),
)


def _failure(operator: Operator, function: Callable[..., Any]) -> tuple[Failure, Case]:
    """Return what the first failing case shows."""
    kernel = kfuzz.kernel(operator, name=f"list_{next(NUMBERS)}")(function)
    evaluator = InProcess(kernel, budget="interpret").evaluator
    for case in drawn(kernel, 40, budget="interpret"):
        report = evaluator.judge(case, Depth.FULL)
        if report.failure is not None:
            return report.failure, case
    raise AssertionError("no case fails")


@pytest.mark.parametrize(
    ("operator", "function", "kind", "message"),
    [
        (ROWS, lambda x, size: 2 * x, Kind.WRONG_TYPE, "parts is Tensor, expected "),
        (
            ROWS,
            lambda x, size: (2 * x).split(size)[:1],
            Kind.WRONG_TYPE,
            "parts is a tuple of 1, expected ",
        ),
        (
            ROWS,
            lambda x, size: [(part,) for part in (2 * x).split(size)],
            Kind.WRONG_TYPE,
            "parts[0] is a tuple of 1, expected torch.Tensor",
        ),
        (
            SUMMED,
            lambda x: (x.sum(), [2 * x, 3 * x, 4 * x]),
            Kind.WRONG_TYPE,
            "kept is a list of 3, expected 2 tensors",
        ),
        (
            SUMMED,
            lambda x: (x.sum(), [(2 * x, 3 * x, 4 * x), ()]),
            Kind.WRONG_TYPE,
            "kept[0] is a tuple of 3, expected 2 tensors",
        ),
        (SUMMED, lambda x: x.sum(), Kind.WRONG_TYPE, "returns Tensor, expected 2 "),
        (
            SUMMED,
            lambda x: (x.sum(), [(2 * x, x[:, None]), (4 * x,)]),
            Kind.WRONG_SHAPE,
            "kept[0][1] has shape",
        ),
        (
            SUMMED,
            lambda x: (x.sum(), [(2 * x, 2.5 * x), (4 * x,)]),
            Kind.VALUE,
            "kept[0][1][",
        ),
    ],
)
def test_what_is_not_the_list_that_the_reference_gives_is_a_violation(
    operator: Operator, function: Callable[..., Any], kind: Kind, message: str
) -> None:
    failure, _ = _failure(operator, function)
    assert failure.kind is kind
    assert failure.message.startswith(message)
    # However many there are when it is reduced, it stays the same finding.
    assert "[" not in failure.signature("k").output


def test_a_list_without_a_tensor_is_outside_the_domain() -> None:
    operator = kfuzz.reference(
        lambda x: [*x], {"x": ks.tensors("N D")}, name="rows", outputs=("rows[]",)
    )
    kernel = kfuzz.kernel(operator, name="unbound")(lambda x: x.clone().unbind())
    judge = InProcess(kernel, budget="interpret").evaluator.judge
    for rows, decided in ((2, True), (0, False)):
        spec = TensorSpec((rows, 2), ("N", "D"), "float32", values=bytes(8 * rows))
        report = judge(Case({"x": spec}), Depth.FULL)
        assert report.failure is None
        assert (report.verdicts.get("K-VAL-01") is Verdict.CONFORMS) is decided


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: kfuzz.reference(_rows, outputs=("y[0]",)), r"'y\[0\]' is no name"),
        (
            lambda: kfuzz.kernel(ROWS, out=("parts[]",), name="m")(
                lambda x, parts, size: None
            ),
            r"returns the list parts\[\]",
        ),
        (
            lambda: kfuzz.kernel(ROWS, inplace=("x",), name="m")(lambda x, size: None),
            r"returns the list parts\[\]",
        ),
        (
            lambda: kfuzz.kernel(ROWS, gradients=True)(_rows),
            r"gradients= of the list parts\[\]",
        ),
    ],
)
def test_what_lists_cannot_be_is_refused_by_name(
    make: Callable[[], Any], match: str
) -> None:
    with pytest.raises(BindingError, match=match):
        make()


def test_a_reference_that_returns_several_says_how_to_name_them() -> None:
    kernel = kfuzz.kernel(
        kfuzz.reference(lambda x: [x, 2 * x], {"x": ks.tensors("N")}, name="two"),
        name="mine",
    )(lambda x: [x, 2 * x])
    case = drawn(kernel, 1, budget="interpret")[0]
    with pytest.raises(BindingError, match=r"2 results.*outputs=\('parts\[\]',\)"):
        InProcess(kernel, budget="interpret").evaluator.judge(case, Depth.SEARCH)


def test_lists_of_live_calls_are_judged() -> None:
    pytest.importorskip("kfuzz.features")
    x = torch.arange(15.0).view(5, 3)
    right = [2 * part for part in x.split(2)]
    kfuzz.assert_conforms(right, ROWS, x, size=2)
    kfuzz.assert_conforms((x.sum(), [(2 * x, 3 * x), (4 * x,)]), SUMMED, x)
    with pytest.raises(AssertionError, match="parts is a tuple of 2, expected 3 "):
        kfuzz.assert_conforms(right[:2], ROWS, x, size=2)
    with pytest.raises(AssertionError, match=r"kept\[1\]\[0\]\["):
        kfuzz.assert_conforms((x.sum(), [(2 * x, 3 * x), (5 * x,)]), SUMMED, x)
