"""Candidates in Triton's interpreter, written as for a GPU."""

from pathlib import Path

import pytest

from kfuzz.core.verdict import Verdict
from kfuzz.features.judge.sandbox.sandbox import zygote_for
from tests.features.judge.judging import judged, problem

REFERENCE = problem("return torch.tanh(x) * 2", "torch.randn(4, 33)")

CANDIDATE = """
import torch
import triton
import triton.language as tl
from torch import nn
from triton.language.extra import libdevice

DEVICE = triton.runtime.driver.active.get_active_torch_device()
PROCESSORS = torch.cuda.get_device_properties(DEVICE).multi_processor_count


@triton.jit
def body(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    made = libdevice.tanh(tl.load(x + at, mask=at < n).to(tl.float32)) * {}
    tl.store(y + at, made, mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        assert x.is_cuda and PROCESSORS
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        if n:
            body[(triton.cdiv(n, 64),)](x, y, n, BLOCK=64)
        return y
"""


@pytest.mark.slow
def test_they_find_a_gpu_as_kernels_of_a_run_do(tmp_path: Path) -> None:
    reference = tmp_path / "reference.py"
    reference.write_text(REFERENCE)
    states = {}
    with zygote_for("interpret", output=lambda piece: None) as zygote:
        for factor in ("2", "2.5"):
            candidate = tmp_path / f"times_{factor.replace('.', '_')}.py"
            candidate.write_text(CANDIDATE.format(factor))
            # Fewer cases than a search opens with are no error.
            states[factor] = judged(
                reference, candidate, zygote, tmp_path / "corpus", max_cases=6,
                device="interpret",
            ).verdict  # fmt: skip
    assert states == {"2": Verdict.CONFORMS, "2.5": Verdict.VIOLATES}
