"""A search from the outside: exit codes, the document, what is on disk."""

import json

import pytest

from kfuzz.core.event import Exited, KernelFinished, RunStarted
from kfuzz.report.text import read_events
from tests.e2e.project import HEADER, RIGHT, WRONG, Project
from tests.helpers.tiers import sampled

# Two branches that no case takes, and one in a function that is not called at all.
# A product in tiles of 64 x 64 x 32: without a mask on K, or without the last tile.
PRODUCT = """
import torch
import triton
import triton.language as tl
from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops


@triton.jit
def tiles(a, b, c, M, N, K, sm, sk, tk, tn, BM: tl.constexpr, BN: tl.constexpr,
          BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(0, {steps}):
        k = step * BK + tl.arange(0, BK)
        x = tl.load(a + rows[:, None] * sm + k[None, :] * sk,
                    mask=rows[:, None] < M, other=0.0)
        y = tl.load(b + k[:, None] * tk + columns[None, :] * tn,
                    mask=columns[None, :] < N, other=0.0)
        total = tl.dot(x, y, total, input_precision="ieee")
    tl.store(c + rows[:, None] * N + columns[None, :], total.to(c.dtype.element_ty),
             mask=(rows[:, None] < M) & (columns[None, :] < N))


@kernel(ops.matmul)
def product(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    if c.numel():
        tiles[(triton.cdiv(M, 64), triton.cdiv(N, 64))](
            a, b, c, M, N, K, *a.stride(), *b.stride(), BM=64, BN=64, BK=32)
    return c
"""
# What is guaranteed about a run's document.
RUN_FIELDS = {"format", "seed", "device", "elapsed_s", "kernels"}
KERNEL_FIELDS = {
    "kernel", "operator", "cases", "cases_per_s", "contracts", "refusals", "notes",
    "findings",
}  # fmt: skip
FINDING_FIELDS = {
    "id", "contract", "bucket", "state", "path", "message", "ratio",
    "input_elements", "nonzero_elements", "line",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("steps", sampled(["K // BK", "tl.cdiv(K, BK)"], one_in=2))
def test_a_fault_at_the_tail_of_a_tiled_product_is_confirmed_in_half_a_minute(
    project: Project, steps: str
) -> None:
    project.write("product.py", PRODUCT.format(steps=steps))
    done = project.kfuzz(
        "run", "product.py", "--device", "interpret", "--seed", "3",
        "--max-time", "30", "--max-findings", "1",
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "FAIL product: " in done.stdout
    assert "confirmed (3 of 3 fresh processes)" in done.stdout
    assert "UNCONFIRMED" not in done.stdout
    assert done.stdout.index("candidate product: ") < done.stdout.index("FAIL product")


def test_a_wrong_and_a_right_kernel(project: Project) -> None:
    project.write("kernels.py", HEADER + RIGHT + WRONG)
    run = project.run("kernels.py", "--report", "jsonl=kept.jsonl,html=page.html")
    assert run.code == 1
    assert run.document.keys() >= RUN_FIELDS
    assert (run.document["seed"], run.document["device"]) == (1, "cpu")
    assert not run.document["interrupted"]
    names = [kernel["kernel"] for kernel in run.document["kernels"]]
    assert names == ["kernels.py::right", "kernels.py::wrong"]
    for kernel in run.document["kernels"]:
        assert kernel.keys() >= KERNEL_FIELDS
        assert kernel["cases"] == 60
    right, wrong = run.kernel("right"), run.kernel("wrong")
    assert right["findings"] == right["refusals"] == []
    decided = right["contracts"]["K-VAL-01"]
    assert decided["verdict"] == "conforms"
    assert decided["decided"] > 0
    [finding] = wrong["findings"]
    assert finding.keys() >= FINDING_FIELDS
    assert wrong["contracts"]["C-CMP-03"]["verdict"] == "violates"
    assert (finding["contract"], finding["state"]) == ("C-CMP-03", "confirmed")
    # Three elements are the fewest that are no power of two.
    assert (finding["input_elements"], finding["nonzero_elements"]) == (3, 1)
    folder = project.folder / finding["path"]
    stored = json.loads((folder / "finding.json").read_text())
    assert (stored["id"], stored["state"]) == (finding["id"], "confirmed")
    assert (folder / "first.json").is_file()
    assert finding["id"] in (project.folder / "page.html").read_text()
    with open(project.folder / "kept.jsonl") as lines:
        events = list(read_events(lines))
    assert (type(events[0]), type(events[-1])) == (RunStarted, Exited)
    ended = [e for e in events if isinstance(e, KernelFinished)]
    [searched] = [e for e in ended if e.findings]
    [found] = searched.findings
    assert found.first_errors is not None
    assert max(found.first_errors.codes) > 128  # a miss
    assert found.failure.errors is not None
    assert max(found.failure.errors.codes) > 128
    assert project.wait_until_alone() == []


@pytest.mark.slow
def test_a_clean_kernel_ends_with_0_and_leaves_no_corpus(project: Project) -> None:
    project.write("kernels.py", HEADER + RIGHT)
    done = project.kfuzz("run", "kernels.py", "--max-cases", "30", "--device", "cpu")
    assert done.returncode == 0
    assert "no finding in 30 cases" in done.stdout.lower()
    assert project.findings() == []
    assert project.wait_until_alone() == []
