"""Batches where Triton's interpreter would run kernels: none, as calls are watched."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from kfuzz.execution.interpreter.watch import interpreting
from tests.helpers import address_kernels as kernels
from tests.helpers.burst_runs import PLAIN, marked, run, suspects, values_of

pytestmark = pytest.mark.skipif(
    not interpreting(), reason="Triton compiles kernels here"
)


def launched(x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    kernels.copy[(1,)](x, y, x.numel(), BLOCK=32)
    return y


def launched_seldom(x: Tensor) -> Tensor:
    return launched(x) if bool(x[1, 2] == 7) else x.clone()


@pytest.mark.parametrize("call", [launched, launched_seldom])
def test_what_the_interpreter_runs_is_no_batch(
    call: Callable[[Tensor], Tensor],
) -> None:
    made = run(call, marked(5))
    assert made.unsupported == "Triton's interpreter watches every call by itself"
    assert not made.outputs


def test_a_kernel_of_none_of_triton_is_one() -> None:
    x = values_of(PLAIN)
    assert suspects(run(torch.relu, x), x) == set()
