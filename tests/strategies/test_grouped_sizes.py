"""Sizes of which one is a multiple of another."""

import pytest

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from tests.helpers.in_process import drawn
from tests.helpers.judged_cases import COUNTER


@pytest.mark.slow
def test_grouped_queries_are_drawn_about_as_often_as_equal_heads() -> None:
    def attention(q, k, v, mask=None, causal=False, scale=None):
        return q

    bound = kernel(ops.attention, name=f"k{next(COUNTER)}")(attention)
    sizes = [case.dims for case in drawn(bound, 400)]
    assert all(dims["H"] % dims["G"] == 0 for dims in sizes)
    equal = sum(dims["H"] == dims["G"] > 1 for dims in sizes)
    grouped = sum(dims["H"] > dims["G"] > 1 for dims in sizes)
    assert grouped > 0.3 * equal > 0  # 0.4 to 1.4 times, by seed


def test_a_kernel_that_takes_equal_heads_only_gets_no_others() -> None:
    def attention(q, k, v, mask=None, causal=False, scale=None):
        return q

    name = f"k{next(COUNTER)}"
    bound = kernel(ops.attention, name=name, shape_class="H == G")(attention)
    assert all(case.dims["H"] == case.dims["G"] for case in drawn(bound, 100))
