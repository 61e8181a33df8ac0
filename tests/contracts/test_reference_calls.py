"""How references are called, and what follows where they raise."""

import pytest
from torch import Tensor

import kfuzz
from kfuzz import strategies as ks
from kfuzz.core.budget import Depth
from tests.helpers.in_process import InProcess, drawn


@pytest.mark.slow
def test_a_reference_is_given_none_for_what_a_case_leaves_out() -> None:
    def shifted(x: Tensor, bias: Tensor | None) -> Tensor:
        return x if bias is None else x + bias

    operator = kfuzz.reference(
        shifted, {"x": ks.tensors("N"), "bias": ks.tensors("N", optional=True)}
    )

    def kernel(x: Tensor, bias: Tensor | None = None) -> Tensor:
        return x.clone() if bias is None else x + bias

    bound = kfuzz.kernel(operator, name="shifted")(kernel)
    judge = InProcess(bound, budget="interpret").evaluator.judge
    cases = drawn(bound, 60, budget="interpret")
    reports = [judge(case, Depth.SEARCH) for case in cases]
    assert len({len(case.tensors) for case in cases}) == 2
    assert all(r.failure is None and not r.oracle_raised for r in reports)


def test_where_the_reference_raises_nothing_is_said_of_what_comes_back() -> None:
    def even(x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        if len(x) % 2 == 0:
            raise ValueError("odd numbers of elements only")
        return x + state, state + 1

    operator = kfuzz.reference(
        even, {"x": ks.tensors("N"), "state": ks.tensors("N")}, outputs=("y", "state")
    )

    def kernel(x: Tensor, state: Tensor) -> Tensor:
        y = x + state
        state += 1
        return y

    bound = kfuzz.kernel(operator, name="even", inplace="state")(kernel)
    judge = InProcess(bound, budget="interpret").evaluator.judge
    reports = [judge(c, Depth.SEARCH) for c in drawn(bound, 30, budget="interpret")]
    assert all(r.failure is None for r in reports)
    assert len({bool(r.oracle_raised) for r in reports}) == 2
