"""The map of errors of a finding: a GPU draws what the CPU does."""

import pytest
import torch

from kfuzz.core.error_map import WITHIN, ErrorMap
from kfuzz.numerics.comparator.compare import Comparison, Outcome
from kfuzz.numerics.comparator.error_map import error_map
from tests.helpers.acceptances import within_one

pytestmark = pytest.mark.gpu


def drawn(device: str, shape: tuple[int, ...]) -> ErrorMap:
    generator = torch.Generator().manual_seed(7)
    ratio = torch.randn(1, *shape, generator=generator, dtype=torch.float64).exp2()
    outcomes = torch.where(ratio > 1, int(Outcome.VALUE), int(Outcome.OK))
    outcomes[..., -1] = int(Outcome.NAN_MISSING)
    codes, errors = outcomes.to(device, torch.uint8), ratio.to(device)
    made = error_map("out", Comparison(codes, errors, within_one(errors[0])))
    assert made is not None
    return made


@pytest.mark.parametrize("shape", [(1,), (5,), (3, 50, 1001)])
def test_a_gpu_draws_what_the_cpu_does(shape: tuple[int, ...]) -> None:
    on_cpu, on_gpu = drawn("cpu", shape), drawn("cuda", shape)
    assert (on_gpu.rows, on_gpu.columns) == (on_cpu.rows, on_cpu.columns)
    pairs = list(zip(on_cpu.codes, on_gpu.codes, strict=True))
    # Logarithms may differ in their last bit, and so round to neighbouring codes.
    assert max(abs(a - b) for a, b in pairs) <= 1
    assert all((a > WITHIN) == (b > WITHIN) for a, b in pairs)
