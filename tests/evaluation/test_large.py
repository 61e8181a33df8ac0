"""Large cases: values made in parts, and slices judged as the whole would be."""

import ctypes
import functools
import itertools
from collections.abc import Callable, Collection
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from kfuzz.contracts import operators as ops
from kfuzz.contracts.binding import BoundKernel, kernel
from kfuzz.contracts.classes import CLASSES
from kfuzz.contracts.operator import Operator
from kfuzz.core import recipe
from kfuzz.core.budget import Depth
from kfuzz.core.recipe import Case, Fill, Plant, TensorSpec
from kfuzz.core.value_families import STRETCHED
from kfuzz.core.verdict import CaseReport, Verdict
from kfuzz.evaluation.evaluator import Evaluator, setting_of
from kfuzz.execution.calls import batches as large
from kfuzz.execution.device.backends import DeviceBackend
from kfuzz.execution.values.fills import logical_values, stretch
from kfuzz.strategies import tensors
from tests.helpers.budgets import SIZE_BUDGETS

CPU = torch.device("cpu")
SMALL_SLICE = 48
NUMBERS = itertools.count()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take cases of more than 100 elements for large, and judge 48 at a time."""
    monkeypatch.setattr(recipe, "LARGE_ELEMENTS", 100)
    monkeypatch.setattr(large, "SLICE_ELEMENTS", SMALL_SLICE)
    monkeypatch.setattr(large, "WORKING_BYTES", 1 << 20)
    monkeypatch.setattr(large, "MARGIN_BYTES", 1 << 20)


def tensor(
    shape: tuple[int, ...], axes: str, *, seed: int = 5, dtype: str = "float32"
) -> TensorSpec:
    return TensorSpec(shape, tuple(axes.split()), dtype, fill=Fill("randn", seed))


def bound_to(
    operator: Operator, function: Callable[..., object], **claims: object
) -> BoundKernel:
    """Bind a function under a name that no other test has."""
    return kernel(operator, name=f"large_{next(NUMBERS)}", **claims)(function)


def evaluator(bound: BoundKernel, classes: Collection[str] = CLASSES) -> Evaluator:
    return Evaluator(bound, setting_of("cpu", SIZE_BUDGETS["cpu"], classes))


def judged(bound: BoundKernel, case: Case) -> CaseReport:
    assert case.large
    return evaluator(bound).judge(case, Depth.SEARCH)


@pytest.mark.parametrize("family", STRETCHED)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
def test_a_stretch_holds_the_bits_of_the_whole(family: str, dtype: str) -> None:
    plants = (Plant((0, 0), 1), Plant((4, 6), 2), Plant((2, 3), 3))
    fill = Fill(family, seed=77)
    spec = TensorSpec((5, 7), ("d0", "d1"), dtype, fill=fill, plants=plants)
    whole = logical_values(Case({"x": spec}), "x", CPU).view(torch.uint8).view(35, -1)
    for start, stop in ((0, 35), (0, 1), (17, 18), (16, 35), (34, 35)):
        part = stretch(spec, start, stop, CPU).view(torch.uint8)
        assert torch.equal(part.view(stop - start, -1), whole[start:stop])


CASES = {
    "relu": (ops.relu, Case({"x": tensor((3, 5, 11), "d0 d1 d2")})),
    "add": (
        ops.add,
        Case(
            {
                "a": tensor((2, 131), "d0 d1", dtype="bfloat16"),
                "b": tensor((2, 131), "d0 d1", seed=6, dtype="bfloat16"),
            }
        ),
    ),
    "softmax": (ops.softmax, Case({"x": tensor((23, 9), "d0 d1")}, {"dim": -1})),
    "layer_norm": (
        ops.layer_norm,
        Case(
            {
                "x": tensor((17, 12), "d0 N"),
                "weight": tensor((12,), "N", seed=8),
                "bias": tensor((12,), "N", seed=9),
            }
        ),
    ),
    "sum": (ops.sum, Case({"x": tensor((61, 3, 2), "d0 d1 d2")}, {"dim": 1})),
    "matmul": (
        ops.matmul,
        Case({"a": tensor((29, 4), "M K"), "b": tensor((4, 7), "K N", seed=3)}),
    ),
}


CALLED: dict[str, Callable[..., Tensor]] = {
    "relu": lambda x: torch.relu(x),
    "add": lambda a, b: torch.add(a, b),
    "softmax": lambda x, dim=-1: torch.softmax(x, dim),
    "layer_norm": lambda x, weight, bias: torch.layer_norm(
        x, weight.shape, weight, bias
    ),
    "sum": lambda x, dim=-1: torch.sum(x, dim),
    "matmul": lambda a, b: torch.matmul(a, b),
}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", CASES)
def test_slices_of_a_right_result_conform(name: str) -> None:
    operator, case = CASES[name]
    bound = bound_to(operator, CALLED[name])
    report = judged(bound, case)
    assert report.failure is None
    assert report.unsupported is None, report.unsupported
    assert report.verdicts["K-VAL-01"] is Verdict.CONFORMS
    assert report.verdicts["K-MEM-01"] is Verdict.CONFORMS
    assert report.verdicts["K-MEM-03"] is Verdict.CONFORMS


def unsliced(
    bound: BoundKernel, case: Case, monkeypatch: pytest.MonkeyPatch
) -> CaseReport:
    with monkeypatch.context() as patch:
        patch.setattr(recipe, "LARGE_ELEMENTS", 1 << 26)
        whole = replace(case, poison="nan", edge=None)
        return evaluator(bound).judge(whole, Depth.BASE)


def spoiled(name: str, at: int) -> Callable[..., Tensor]:
    """Return the function with one element of its result made wrong."""

    @functools.wraps(CALLED[name])
    def wrong(*arguments: Tensor, **scalars: int) -> Tensor:
        y = CALLED[name](*arguments, **scalars).contiguous()
        if y.numel() > 100:  # right where it is small
            y.view(-1)[at % y.numel()] += 3.0
        return y

    return wrong


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("at", [0, 44, 45, 47, 48, 95, 96, -1])
@pytest.mark.parametrize("name", CASES)
def test_a_miss_is_found_where_it_is(
    name: str, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator, case = CASES[name]
    bound = bound_to(operator, spoiled(name, at))
    whole = unsliced(bound, case, monkeypatch).failure
    failure = judged(bound, case).failure
    assert whole is not None
    assert failure is not None
    assert failure.index == whole.index
    assert failure.got == whole.got
    assert failure.low == whole.low
    assert failure.high == whole.high
    # The rows around it are right by themselves: it is a matter of size.
    assert failure.contract == "C-CMP-03"
    assert f"[{', '.join(map(str, whole.index or ()))}]" in failure.message
    assert "in the slice of" in failure.message


@pytest.mark.usefixtures("small")
def test_what_is_wrong_in_small_too_is_no_matter_of_size() -> None:
    def off(x: Tensor) -> Tensor:
        return torch.relu(x) + 1.0

    failure = judged(bound_to(ops.relu, off), CASES["relu"][1]).failure
    assert failure is not None
    assert failure.contract == "K-VAL-01"


@pytest.mark.usefixtures("small")
def test_changed_arguments_are_seen() -> None:
    def scribbles(x: Tensor) -> Tensor:
        y = torch.relu(x)
        x.view(-1)[100] += 1.0
        return y

    case = CASES["relu"][1]
    failure = judged(bound_to(ops.relu, scribbles), case).failure
    assert failure is not None
    assert failure.contract == "K-MEM-03"
    assert "[1, 4, 1]" in failure.message


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(("by", "where"), [(0, "past the end"), (-265, "before")])
def test_writes_around_arguments_are_seen(by: int, where: str) -> None:
    def oversteps(x: Tensor) -> Tensor:
        address = x.data_ptr() + 4 * (x.numel() + by)
        ctypes.c_float.from_address(address).value = 1.0
        return torch.relu(x)

    case = Case({"x": tensor((2, 132), "d0 d1")})
    failure = judged(bound_to(ops.relu, oversteps), case).failure
    assert failure is not None
    assert failure.contract == "K-MEM-01"
    assert where in failure.message


@pytest.mark.usefixtures("small")
def test_a_wrong_shape_and_what_is_raised_are_judged_as_ever() -> None:
    def shorter(x: Tensor) -> Tensor:
        return torch.relu(x)[1:]

    def raises(x: Tensor) -> Tensor:
        raise ValueError("too many rows")

    case = Case({"x": tensor((40, 3), "d0 d1")})
    failure = judged(bound_to(ops.relu, shorter), case).failure
    assert failure is not None
    assert failure.contract == "K-MET-01"
    failure = judged(bound_to(ops.relu, raises), case).failure
    assert failure is not None
    assert failure.contract == "K-LIV-01"
    half = Case({"x": tensor((40, 3), "d0 d1", dtype="float16")})
    report = judged(bound_to(ops.relu, raises), half)
    assert report.failure is None
    assert report.refusal == "dtype float16"


@pytest.mark.usefixtures("small")
def test_destinations_and_arguments_overwritten() -> None:
    def into(x: Tensor, y: Tensor) -> None:
        y.copy_(torch.relu(x))

    def lazy(x: Tensor, y: Tensor) -> None:
        y.view(-1)[:-1].copy_(torch.relu(x).view(-1)[:-1])

    def over(x: Tensor) -> None:
        x.relu_()

    case = CASES["relu"][1]
    assert judged(bound_to(ops.relu, into, out=("y",)), case).failure is None
    failure = judged(bound_to(ops.relu, lazy, out=("y",)), case).failure
    assert failure is not None
    assert failure.index == (2, 4, 10)
    report = judged(bound_to(ops.relu, over, inplace=("x",)), case)
    assert report.failure is None
    assert report.verdicts["K-VAL-01"] is Verdict.CONFORMS


def _centred(x: Tensor) -> Tensor:
    return x - x.mean()


@pytest.mark.usefixtures("small")
def test_rows_that_depend_on_one_another_are_not_judged() -> None:
    operator = Operator("centre", inputs={"x": tensors("*")}, oracle=_centred)
    report = judged(bound_to(operator, _centred), CASES["relu"][1])
    assert report.verdicts == {}
    assert report.failure is None
    assert "depend on one another" in str(report.unsupported)


@pytest.mark.usefixtures("small")
def test_what_has_no_rows_is_not_judged() -> None:
    case = Case({"x": tensor((300,), "d0")}, {"dim": -1})
    report = judged(bound_to(ops.softmax, CALLED["softmax"]), case)
    assert report.verdicts == {}
    assert "no independent rows" in str(report.unsupported)


@pytest.mark.usefixtures("small")
def test_without_memory_a_case_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DeviceBackend, "free_bytes", lambda *_: 1 << 20)
    report = judged(bound_to(ops.relu, CALLED["relu"]), CASES["relu"][1])
    assert report.verdicts == {}
    assert "GiB are free" in str(report.unsupported)
