from typing import Any

import pytest
import torch
from torch import Tensor

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


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_sum_that_is_not_stored_is_refused(dtype: str) -> None:
    def stale(x: Tensor, residual: Tensor, weight: Tensor, *, eps: float) -> Any:
        return torch_add(x, residual, weight, eps=eps)[0], residual

    subject = SUBJECTS["add_rms_norm"]
    case = pose_case(subject, case_of(subject, dtype, "randn", subject.ordinary))
    assert not case.refuses(case.run(torch_add))
    assert case.refuses(case.run(stale))
