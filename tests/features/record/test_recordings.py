"""The cases of a recording follow from the kernel and the seed; kept ones are read."""

from pathlib import Path

import pytest

from kfuzz.contracts.binding import REGISTRY, BoundKernel
from kfuzz.contracts.platform import torch_cpu
from kfuzz.features.lab.record.comparing import Told, compare
from kfuzz.features.lab.record.recording import drawn, read

KEPT = Path(__file__).parents[2] / "benchmarks" / "recordings"


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


def test_kept_recordings_are_of_the_same_cases() -> None:
    two = [read(KEPT / name) for name in ("torch-cpu", "torch-cpu-avx2")]
    made = compare(two)
    assert not made.unpaired
    assert not made.of(Told.UNLIKE)
    assert len(made.cases) > 1_000
    assert len({case.operator for case in made.cases}) >= 60
    # A defect of one instruction set is charged to it.
    (device,) = {
        c.why[:2] for c in made.of(Told.OUTSIDE) if c.operator == "linear_gelu"
    }
    assert device == "A:"
