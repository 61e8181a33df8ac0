"""Cases of which one dimension is large, and rows beyond those usually given."""

import math

import pytest

from kfuzz.contracts import operators as ops
from kfuzz.contracts.binding import BoundKernel
from kfuzz.core.budget import SizeBudget
from kfuzz.core.recipe import Case
from kfuzz.evaluation.drawing import search_round, strategy_of
from tests.contracts.test_operator_domains import kernel_of
from tests.helpers.budgets import SIZE_BUDGETS

INTERPRETED = SIZE_BUDGETS["interpret"]


def drawn(kernel: BoundKernel, budget: SizeBudget, count: int) -> list[Case]:
    found: list[Case] = []
    strategy = strategy_of(kernel, budget)
    assert strategy is not None
    search_round(strategy, found.append, cases=count, seed_value=5)
    return found


def rows(kernel: BoundKernel, case: Case) -> int:
    axis = kernel.operator.reduced_axis(case)
    if axis is None:  # it selects: a row for each index
        return next(spec.numel for spec in case.tensors.values() if spec.below)
    return math.prod(case.lead.shape) // max(case.lead.shape[axis], 1)


@pytest.mark.parametrize(
    "name", ["softmax", "layer_norm", "embedding", "cross_entropy"]
)
def test_some_cases_have_more_rows_than_a_gpu_has_processors(name: str) -> None:
    kernel = kernel_of(ops.OPERATORS[name])
    cases = drawn(kernel, INTERPRETED, 900)
    tall = [case for case in cases if rows(kernel, case) > 132]
    assert 1 <= len(tall) < 900 / 8
    for case in tall:
        assert kernel.operator.accepts(case, kernel.declaration)
        assert rows(kernel, case) < 5 * INTERPRETED.tall
        assert max(s.numel for s in case.tensors.values()) <= INTERPRETED.elements


@pytest.mark.parametrize(
    ("name", "axis", "large", "device"),
    [
        ("softmax", "d0", 65_535, "cuda"), ("matmul", "M", 512, "cuda"),
        ("matmul", "N", 1_024, "interpret"), ("matmul", "K", 4_096, "interpret"),
        ("attention", "S", 256, "cuda"), ("attention", "T", 1_024, "interpret"),
    ],
)  # fmt: skip
def test_each_dimension_is_large_alone_in_some_cases(
    name: str, axis: str, large: int, device: str
) -> None:
    """All others are tiny then: such a case takes little time."""
    kernel = kernel_of(ops.OPERATORS[name])
    cases = drawn(kernel, SIZE_BUDGETS[device], 600)
    beyond = [case for case in cases if case.dims.get(axis, 0) > large]
    alone = [
        case
        for case in beyond
        if all(n <= 2 for other, n in case.dims.items() if other != axis)
    ]
    assert alone
    assert all(kernel.operator.accepts(case, kernel.declaration) for case in alone)
