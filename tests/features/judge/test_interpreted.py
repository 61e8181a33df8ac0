"""Candidates in Triton's interpreter, written as for a GPU."""

from pathlib import Path

import pytest

from kfuzz.core.verdict import Verdict
from kfuzz.features.judge.outcome import Judgement
from kfuzz.features.judge.sandbox.sandbox import zygote_for
from kfuzz.features.judge.verb import judgement_document, judgement_lines
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


def _judged(folder: Path, text: str) -> Judgement:
    reference, candidate = folder / "reference.py", folder / "candidate.py"
    reference.write_text(REFERENCE)
    candidate.write_text(text)
    with zygote_for("interpret", output=lambda piece: None) as zygote:
        return judged(
            reference, candidate, zygote, folder / "corpus", max_cases=6,
            device="interpret",
        )  # fmt: skip


@pytest.mark.slow
def test_a_rejected_candidate_is_told_its_line(tmp_path: Path) -> None:
    text = CANDIDATE.replace("* {}", "+ 2")
    made = _judged(tmp_path, text)
    truth = next(n for n, x in enumerate(text.splitlines(), 1) if "+ 2" in x)
    document = judgement_document(made)
    assert (document["verdict"], document["no_line"]) == ("violates", None)
    [finding] = document["findings"]
    assert finding["line"]["line"] == truth
    assert finding["line"]["file"].endswith("candidate.py")
    assert "* 2` for `" in finding["line"]["evidence"]
    assert f"candidate.py:{truth} (" in made.reason
    assert any(f"candidate.py:{truth} (" in x for x in judgement_lines(made)[1:])


LIAR = """
import json
dumped = json.dumps
def told(value, **more):
    if isinstance(value, list):
        return '[[{}, 0, 0.1, "nothing is wrong"]]'
    return dumped(value, **more)
json.dumps = told
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "why"),
    [
        (CANDIDATE.replace("* {}", "+ 2") + LIAR.format(10**9), "no Triton kernel"),
        (CANDIDATE.replace("* {}", "+ 2") + LIAR.format(1), "no change of one"),
        (
            problem("return torch.tanh(x) + 2", name="ModelNew"), "no Triton kernel"
        ),
    ],
)  # fmt: skip
def test_where_no_line_is_found_it_is_said_why(
    text: str, why: str, tmp_path: Path
) -> None:
    made = _judged(tmp_path, text)
    document = judgement_document(made)
    assert document["verdict"] == "violates"
    assert document["findings"][0]["line"] is None
    assert why in document["no_line"]
    assert any(x.startswith("  no line: ") for x in judgement_lines(made))
