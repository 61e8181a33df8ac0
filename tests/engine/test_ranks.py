"""One search covers every rank of an operator; a fault shrinks to the least it has."""

import functools
from collections.abc import Callable, Collection
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.operator import Operator
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import State
from tests.helpers.in_process import (
    InProcess,
    drawn,
    first_failing,
    taken_to_minimum,
)
from tests.helpers.judged_cases import COUNTER

GROUPS = ops.group_norm.unfolded(L="*")
CLASSES = ops.cross_entropy.unfolded(N="* C *")


def group_norm(x: Tensor, weight: Any, bias: Any, num_groups: int, eps: float) -> Any:
    # The function of nn.functional rejects a group of one element.
    return torch.group_norm(x, num_groups, weight, bias, eps)


def layer_norm(x: Tensor, weight: Any, bias: Any, eps: float) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:], weight, bias, eps)


def softmax(x: Tensor, dim: int) -> Tensor:
    return torch.softmax(x, dim)


def cross_entropy(
    logits: Tensor,
    target: Tensor,
    ignore_index: int,
    label_smoothing: float,
    reduction: str,
) -> Tensor:
    return functional.cross_entropy(
        logits, target, ignore_index=ignore_index,
        label_smoothing=label_smoothing, reduction=reduction,
    )  # fmt: skip


def linear(x: Tensor, weight: Tensor, bias: Any) -> Tensor:
    return functional.linear(x, weight, bias)


KERNELS: tuple[tuple[Operator, Callable[..., Any]], ...] = (
    (GROUPS, group_norm),
    (ops.layer_norm, layer_norm),
    (ops.softmax, softmax),
    (CLASSES, cross_entropy),
    (ops.linear, linear),
)


def bound(operator: Operator, function: Any, **claims: Any) -> InProcess:
    made = kernel(operator, name=f"k{next(COUNTER)}", **claims)(function)
    return InProcess(made)  # type: ignore[arg-type]


def planted(
    operator: Operator, function: Callable[..., Any], ranks: Collection[int]
) -> InProcess:
    """Return a kernel whose results are twice too large at some ranks."""

    @functools.wraps(function)
    def wrong(first: Tensor, *others: Any, **scalars: Any) -> Any:
        y = function(first, *others, **scalars)
        return y * 2 if first.dim() in ranks else y

    return bound(operator, wrong, dtypes="float32", layouts="contiguous")


def small(runner: InProcess, ranks: Collection[int]) -> list[Case]:
    """Return small cases of some ranks, as a search draws them."""
    cases = drawn(runner.loaded.kernel, 400, budget="interpret")
    return [c for c in cases if rank(c) in ranks and c.elements < 2000]


def rank(case: Case) -> int:
    return len(case.lead.shape)


@pytest.mark.parametrize(
    ("number", "faulty"), [(0, 5), (1, 1), (2, 4), (3, 1), (3, 3), (4, 3)]
)
def test_a_fault_of_one_rank_is_found_and_shrinks_within_it(
    number: int, faulty: int
) -> None:
    operator, function = KERNELS[number]
    runner = planted(operator, function, {faulty})
    found = first_failing(runner, small(runner, {faulty}))
    assert found is not None
    finding = taken_to_minimum(runner, *found)
    assert finding.state is State.CONFIRMED
    assert rank(finding.case) == faulty
    assert finding.case.lead.numel <= 2


@pytest.mark.parametrize(("number", "start"), [(0, 5), (3, 3)])
def test_a_fault_of_every_rank_shrinks_to_the_least(number: int, start: int) -> None:
    operator, function = KERNELS[number]
    runner = planted(operator, function, set(operator.ranks))
    found = first_failing(runner, small(runner, {start}))
    assert found is not None
    assert rank(taken_to_minimum(runner, *found).case) == operator.ranks[0]
