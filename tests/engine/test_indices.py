"""Index arguments: how they are drawn, filled, admitted, reduced and stored."""

from collections import Counter
from dataclasses import replace

import pytest
import torch

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.binding import (
    BoundKernel,
)
from kfuzz.contracts.operator import Operator
from kfuzz.core.declaration import Declaration
from kfuzz.core.dtypes import unpack_numbers
from kfuzz.core.recipe import Case, TensorSpec
from kfuzz.core.value_families import INDEX_FAMILIES
from kfuzz.engine.reduce import kept, reduce_case
from kfuzz.execution.values.fills import logical_values
from tests.helpers import kernel_draws
from tests.helpers.budgets import SIZE_BUDGETS

CPU = torch.device("cpu")
CASES = 400
COUNTER = iter(range(10_000))
VALID = [name for name, f in INDEX_FAMILIES.items() if f.group == "index"]
HOSTILE = [name for name, f in INDEX_FAMILIES.items() if f.group == "hostile"]


def bound_kernel(operator: Operator, *taken: str, **claims: object) -> BoundKernel:
    """Bind a function that takes all tensors, and the scalars named."""
    arguments = [*operator.tensors, *[f"{n}=0" for n in taken]]
    function = eval(f"lambda {', '.join(arguments)}: None")
    return kernel(operator, name=f"drawn{next(COUNTER)}", **claims)(function)


def drawn(operator: Operator, *taken: str) -> list[Case]:
    """Return cases as a campaign draws them."""
    bound = bound_kernel(operator, *taken)
    found = kernel_draws.drawn(bound, CASES, "interpret")
    assert all(bound.operator.accepts(case, bound.declaration) for case in found)
    return found


def index_of(case: Case) -> tuple[str, TensorSpec]:
    return next((n, s) for n, s in case.tensors.items() if s.below)


def values_of(case: Case) -> torch.Tensor:
    return logical_values(case, index_of(case)[0], CPU)


def indices(values: list[int], dtype: str = "int64") -> TensorSpec:
    """Return pinned indices below V."""
    data = torch.tensor(values, dtype=getattr(torch, dtype)).numpy().tobytes()
    return TensorSpec((len(values),), ("d0",), dtype, values=data, below="V")


def table(rows: int, columns: int = 1, dtype: str = "float32") -> TensorSpec:
    """Return a pinned table that holds 1, 2, 3, …."""
    x = torch.arange(1, rows * columns + 1).to(getattr(torch, dtype))
    data = x.view(torch.uint8).numpy().tobytes()
    return TensorSpec((rows, columns), ("V", "D"), dtype, values=data)


def lookup(values: list[int], rows: int, columns: int = 1) -> Case:
    return Case({"weight": table(rows, columns), "indices": indices(values)})


# --- drawing ----------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["embedding", "gather", "cross_entropy"])
def test_drawn_cases_are_possible_and_a_few_are_hostile(name: str) -> None:
    budget, hostile, dtypes = SIZE_BUDGETS["interpret"], 0, Counter()
    for case in drawn(ops.OPERATORS[name], "ignore_index"):
        _, spec = index_of(case)
        n = case.dims[spec.below]
        assert spec.dtype == "int64"
        assert n or not spec.numel
        dtypes[case.data.dtype] += 1
        rows = case.dims["D"] if name == "embedding" else 1
        assert spec.numel * rows <= budget.elements
        for other in case.tensors.values():
            assert other.numel <= budget.elements
        assert spec.fill is not None
        hostile += spec.fill.family in HOSTILE
        if spec.fill.family in VALID and spec.numel:
            index = values_of(case)
            ignored = case.scalars.get("ignore_index", 0)
            assert bool(((index >= 0) & (index < n) | (index == ignored)).all())
    assert CASES / 20 < hostile < CASES / 4
    assert set(dtypes) == {"float32", "float16", "bfloat16"}


@pytest.mark.slow
def test_some_targets_are_ignored_also_all_of_them() -> None:
    shares = Counter()
    for case in drawn(ops.cross_entropy):  # the scalar is not taken: its default
        target = values_of(case)
        if target.numel():
            ignored = target == -100
            shares[bool(ignored.all()), bool(ignored.any())] += 1
    assert shares[False, False] > CASES / 4
    assert shares[True, True] > 5
    assert shares[False, True] > 20


# --- domain and binding -----------------------------------------------------


def test_what_an_operator_admits() -> None:
    case = lookup([0, 2], 3)
    claims = Declaration()
    assert ops.embedding.accepts(case, claims)
    assert ops.embedding.accepts(lookup([5, -1], 3), claims)  # judged by its policy
    narrow = case.with_tensor("indices", indices([0, 2], "int32"))
    assert not ops.embedding.accepts(narrow, claims)
    both = Declaration().declare("t", index_dtypes=("int32", "int64"))
    assert ops.embedding.accepts(narrow, both)
    assert not ops.embedding.accepts(lookup([0], 0), claims)
    assert ops.embedding.accepts(lookup([], 0), claims)
    unbounded = replace(case.tensors["indices"], below="")
    assert not ops.embedding.accepts(case.with_tensor("indices", unbounded), claims)


# --- reducing ---------------------------------------------------------------


def numbers_in(case: Case) -> list[int]:
    spec = case.tensors["indices"]
    assert spec.values is not None
    return [int(v) for v in unpack_numbers(spec.values, spec.dtype)]


def test_indices_follow_the_rows_that_are_kept() -> None:
    case = lookup([0, 3, 5, 4, -1, 6, 7, 2**31 - 1], 6)
    smaller = kept(case, "V", [3, 5])
    # 3 and 5 are rows 0 and 1 now, others are taken modulo 2; 6 was the bound.
    assert numbers_in(smaller) == [0, 0, 1, 0, -1, 2, 3, 2**31 - 1]
    assert smaller.tensors["weight"].shape == (2, 1)
    assert numbers_in(kept(case, "d0", [1, 4])) == [3, -1]


@pytest.mark.parametrize("hostile", [-1, 6, 7, 2**62])
def test_the_minimum_of_a_bad_index_is_one_element(hostile: int) -> None:
    def fails(case: Case) -> bool:
        rows = case.dims["V"]
        return any(not 0 <= i < rows for i in numbers_in(case))

    def accepts(case: Case) -> bool:
        return len(case.tensors["indices"].shape) == 1 and ops.embedding.accepts(
            case, Declaration()
        )

    case = lookup([0, 3, hostile, 5], 6, 4)
    minimum, reduction = reduce_case(case, fails, accepts, deadline=float("inf"))
    assert reduction.stopped == "minimal"
    assert minimum.tensors["weight"].shape == (1, 1)
    assert minimum.tensors["indices"].shape == (1,)
    assert numbers_in(minimum)[0] in (1, -1)
