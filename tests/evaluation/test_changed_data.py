"""C-PRC-04 and C-ORD-01: conforming cases, scaled and in another order."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from kfuzz.contracts import operators as ops
from kfuzz.contracts.binding import Derived
from kfuzz.contracts.evidence import Evidence, Miss, Permuted, Scaled
from kfuzz.contracts.language import (
    ORDERS,
    Changed,
    Order,
    Scaling,
    read_order,
    read_scaling,
    read_shift,
)
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.suite import judge
from kfuzz.core.recipe import Case, Plant
from kfuzz.core.verdict import Kind, Verdict
from kfuzz.evaluation.probes.repeats import scaled, scalings
from kfuzz.execution.values.fills import logical_values
from tests.contracts.test_attribution import attributed
from tests.helpers.judged_cases import bench_of, judged, row_case, spec, x_case

CPU = torch.device("cpu")
SCALING, ORDER = "C-PRC-04", "C-ORD-01"


def product(family: str, dtype: str = "float32", *, inner: int = 16) -> Case:
    return Case(
        {
            "a": spec(family, (8, inner), dtype, axes=("M", "K")),
            "b": spec(family, (inner, 4), dtype, axes=("K", "N"), seed=4),
        }
    )


def rising() -> Case:
    """A row of zeros and 257, of 9 bits, at its end."""
    return row_case("zeros", (1, 8), plants=(Plant((0, 7), 0x43808000),))


def in_float64(a: Tensor, b: Tensor) -> Tensor:
    return (a.double() @ b.double()).float()


def in_float64_within_half_range(a: Tensor, b: Tensor) -> Tensor:
    greatest = max(float(x.abs().max()) if x.numel() else 0.0 for x in (a, b))
    return in_float64(a, b) if greatest <= torch.finfo(torch.half).max else a @ b


def short_if_falling(x: Tensor, dim: int) -> Tensor:
    top, ends = torch.amax(x, dim), x.reshape(-1)[[0, -1]]
    return top.bfloat16().to(x.dtype) if ends[0] > ends[1] else top


def test_bits_that_do_not_scale_are_charged_where_they_are_promised() -> None:
    wide, plain = in_float64_within_half_range, in_float64
    report = judged(ops.matmul, wide, product("randn"), determinism="bitwise")
    assert attributed(report) == (SCALING, Kind.SCALE_DEPENDENT)
    assert report.failure is not None
    assert report.failure.detail == "bitwise"
    assert read_scaling(report.failure.message)
    assert read_shift(report.failure.message)
    for function, claim in ((wide, "run_to_run"), (plain, "bitwise")):
        right = judged(ops.matmul, function, product("randn"), determinism=claim)
        assert right.failure is None
        assert right.verdicts[SCALING] is Verdict.CONFORMS


def saturated(x: Tensor) -> Tensor:
    return torch.relu(x).clamp(max=1e4)


def test_scaled_data_are_held_to_their_own_acceptance() -> None:
    report = judged(ops.relu, saturated, x_case("randn", (4, 16)))
    assert attributed(report) == (SCALING, Kind.SCALE_DEPENDENT)
    assert report.failure is not None
    assert report.failure.detail == ""
    assert read_scaling(report.failure.message)


def test_what_another_class_explains_is_left_to_it() -> None:
    """A tail that holds zeros may be dropped; scaled or moved it is a tail still."""

    def drops(x: Tensor, dim: int) -> Tensor:
        return x[..., : x.shape[-1] // 16 * 16].sum(dim)

    first = row_case("zeros", (1, 17), plants=(Plant((0, 0), 0x3F800000),))
    report = judged(ops.sum, drops, first)
    assert report.failure is None
    assert ORDER not in report.verdicts


def test_an_order_that_a_kernel_does_not_survive_is_named() -> None:
    report = judged(ops.amax, short_if_falling, rising())
    assert attributed(report) == (ORDER, Kind.ORDER_DEPENDENT)
    assert report.failure is not None
    order = read_order(report.failure.message)
    assert order is not None
    assert (order.axis, order.arguments) == ("d1", ("x",))
    free = judged(ops.amax, torch.amax, rising())
    assert free.failure is None
    assert free.verdicts[ORDER] is Verdict.CONFORMS


def view_of(
    operator: Operator, function: Callable[..., object], case: Case
) -> Evidence:
    evaluator = bench_of(
        operator, function, classes={"K-VAL-01"}, determinism="bitwise"
    )
    view, _ = evaluator.caller(case).evidence(Derived(case, evaluator.values(case)))
    return view


def given(case: Case) -> Derived:
    return Derived(case, {n: logical_values(case, n, CPU) for n in case.tensors})


def test_the_judge_charges_what_changed_data_miss_but_only_if_the_case_conforms() -> (
    None
):
    miss = Miss("y", Kind.VALUE, (0,), 2.0, 1.0, 1.0, 1.0, None, 1, 4)
    view = view_of(ops.sum, torch.sum, row_case("ones", (4, 4)))
    assert judge(view, {SCALING, ORDER}) == ({}, None)
    change = Scaling(("x",), 3, 1)
    verdicts, failure = judge(
        view.knowing(Scaled((Changed(change),))), {SCALING, ORDER}
    )
    assert (verdicts, failure) == ({SCALING: Verdict.CONFORMS}, None)
    wrong = view.knowing(Scaled((Changed(change), Changed(change, miss, 3))))
    _, failure = judge(wrong, {SCALING, ORDER})
    assert failure is not None
    assert (failure.contract, failure.detail) == (SCALING, "bitwise")
    assert read_scaling(failure.message) == (("x",), 3)
    order = Changed(Order("d1", ("x",), ORDERS[0]), miss)
    _, failure = judge(view.knowing(Permuted((order,))), {SCALING, ORDER})
    assert failure is not None
    assert (failure.contract, failure.kind) == (ORDER, Kind.ORDER_DEPENDENT)
    missing = view_of(ops.sum, lambda x, dim: x.sum(dim) + 1, row_case("ones", (4, 4)))
    assert judge(missing.knowing(Permuted((order,))), {ORDER})[1] is None


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("family", ["randn", "nearmax", "minnormal", "expspread"])
def test_a_scaled_case_stays_in_range(family: str, dtype: str) -> None:
    case = product(family, dtype)
    view = view_of(ops.matmul, torch.matmul, case)
    own = given(case)
    made = [scaling for scaling, _ in scalings(view, own)]
    if family == "randn":
        assert {s.arguments for s in made} == {("a",), ("b",)}
    least = torch.finfo(getattr(torch, dtype)).tiny
    for scaling in made:
        moved = scaled(own, scaling)
        assert moved is not None
        for name in scaling.arguments:
            x, y = own.values[name].double(), moved.values[name].double()
            assert torch.equal(y, x * 2.0**scaling.exponent)
            assert bool(((y == 0) | (y.abs() >= least)).all())
        total = moved.values["a"].double().abs() @ moved.values["b"].double().abs()
        assert float(total.max()) < torch.finfo(getattr(torch, dtype)).max


def test_subnormal_arguments_are_not_scaled() -> None:
    case = product("subnormal")
    view = view_of(ops.matmul, torch.matmul, case)
    assert list(scalings(view, given(case))) == []


@pytest.mark.parametrize(
    ("expected", "low", "high", "wanted"),
    [
        (65520.0, math.inf, math.inf, "expected inf"),  # as float16 holds it
        (-math.inf, 0.0, 0.0, "expected -inf"),
        (math.nan, 0.0, 0.0, "expected nan"),
    ],
)
def test_what_is_expected_is_what_the_format_holds(
    expected: float, low: float, high: float, wanted: str
) -> None:
    miss = Miss("y", Kind.INF_MISSING, (0,), 1.0, expected, low, high, None, 1, 4)
    assert miss.describe() == f"y[0] = 1, {wanted}"
