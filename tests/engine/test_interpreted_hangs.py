"""In Triton's interpreter what gets on does not hang, and what does not does."""

from pathlib import Path

import pytest

from kfuzz.core.event import FindingSaved, KernelFinished
from kfuzz.core.finding import Finding
from kfuzz.core.verdict import Kind
from kfuzz.engine.workers import runner as running
from kfuzz.execution.interpreter.watch import interpreting
from tests.helpers.searches import searched

pytestmark = pytest.mark.skipif(
    not interpreting(), reason="Triton compiles kernels here"
)
KERNEL = """
import time

import torch
import triton
import triton.language as tl

import kfuzz
from kfuzz.contracts import operators as ops


@triton.jit
def rows(x, y, n, N: tl.constexpr):
    row = tl.program_id(0)
    {body}
    at = tl.arange(0, N)
    value = tl.load(x + row * n + at, mask=at < n, other=0.0)
    tl.store(y + row * n + at, tl.maximum(value, 0.0), mask=at < n)


@kfuzz.kernel(
    ops.relu, shape_class="M >= 24 and M <= 28 and N <= 8", layouts="contiguous"
)
def relu(x):
    y = torch.empty_like(x)
    n = x.shape[-1]
    rows[(x.numel() // n,)](x, y, n, triton.next_power_of_2(n))
    return y
"""


def run(
    body: str, folder: Path, limit: float | None = None
) -> tuple[int, list[Finding]]:
    """Return how many cases a run of one judged, and what it found."""
    file = folder / "slow.py"
    file.write_text(KERNEL.format(body=body))
    told = searched(
        file, max_cases=1, max_time=limit, device="interpret",
        contracts=("K-VAL-01", "K-LIV-01"),
    )  # fmt: skip
    finished = next(e for e in told if isinstance(e, KernelFinished))
    return finished.cases, [e.finding for e in told if isinstance(e, FindingSaved)]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SUSPECT_SECONDS", "HANG_SECONDS", "FIRST_SECONDS"):
        monkeypatch.setattr(running, name, 1.0)


@pytest.mark.slow
def test_a_grid_that_takes_longer_than_a_hang_is_none(tmp_path: Path) -> None:
    assert run("time.sleep(0.1)", tmp_path) == (1, [])


@pytest.mark.slow
def test_a_program_without_end_is_a_hang(tmp_path: Path) -> None:
    body = "while row == 20:\n        time.sleep(0.01)"
    _, findings = run(body, tmp_path, limit=30.0)
    assert {(f.signature.contract, f.signature.kind) for f in findings} == {
        ("K-LIV-01", Kind.HANG)
    }
