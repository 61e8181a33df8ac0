"""The cases of a recording follow from the kernel and the seed alone."""

import pytest

from kfuzz.contracts.binding import REGISTRY, BoundKernel
from kfuzz.contracts.platform import torch_cpu
from kfuzz.record.making import drawn


def platform_kernel(name: str) -> BoundKernel:
    return next(b for b in REGISTRY[torch_cpu.__name__] if b.name == name)


# The second takes formats of its own; the third scales blocks of 128 by 128.
@pytest.mark.parametrize(
    "name", ["torch_relu", "torch_dequantize_fp8", "torch_scaled_matmul_blocks"]
)
def test_equal_seeds_give_as_many_equal_cases_as_asked_for(name: str) -> None:
    kernel = platform_kernel(name)
    made = drawn(kernel, 4, seed=1)
    assert len(made) == 4
    assert made == drawn(kernel, 4, seed=1)
    assert made != drawn(kernel, 4, seed=2)
