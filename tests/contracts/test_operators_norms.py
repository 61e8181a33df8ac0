from typing import Any

import pytest
import torch
from torch import Tensor

import kfuzz
from kfuzz.contracts import operators as ops
from tests.helpers.impostors import (
    case_of,
    pose_case,
    posed,
)
from tests.helpers.subjects.norms import (
    SUBJECTS,
    torch_add,
    torch_rms,
)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_cast_before_the_weight_needs_its_declaration(dtype: str) -> None:
    def llama(x: Tensor, weight: Tensor, *, eps: float) -> Tensor:
        ones = torch.ones_like(weight)
        return weight * torch_rms(x, ones, eps=eps)

    subject, strict = SUBJECTS["rms_norm"], 0
    for case in posed(subject, dtype):
        results = case.run(llama)
        declared = pose_case(subject, case.case, algorithm="cast_before_weight")
        assert not declared.refuses(results), str(case)
        strict += case.refuses(results)
    assert strict > 10


def test_a_cast_product_that_a_power_of_two_makes_subnormal_is_rounded_again() -> None:
    """2.2913 is 1173 units of float16; 2^-16 makes them halves of its least number."""

    def llama(x: Tensor, weight: Tensor, *, eps: float) -> Tensor:
        held = x.float()
        return weight * (held * (held.square().mean() + eps).rsqrt()).half()

    kernel = kfuzz.kernel(ops.rms_norm, algorithm="cast_before_weight")(llama)
    x, weight = torch.zeros(2, 42, dtype=torch.float16)
    x[:8], weight[0] = 1, 2**-16
    y = llama(x, weight, eps=1e-12)
    assert y[0] == 586 * 2**-24  # the exact one is 586.57
    kfuzz.assert_conforms(y, kernel, x, weight, eps=1e-12)
    y[0] -= 2**-24
    with pytest.raises(AssertionError, match=r"y\[0\]"):
        kfuzz.assert_conforms(y, kernel, x, weight, eps=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_sum_that_is_not_stored_is_refused(dtype: str) -> None:
    def stale(x: Tensor, residual: Tensor, weight: Tensor, *, eps: float) -> Any:
        return torch_add(x, residual, weight, eps=eps)[0], residual

    subject = SUBJECTS["add_rms_norm"]
    case = pose_case(subject, case_of(subject, dtype, "randn", subject.ordinary))
    assert not case.refuses(case.run(torch_add))
    assert case.refuses(case.run(stale))
