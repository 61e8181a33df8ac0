"""Kernels as people have them, from the command line: found, replayed, told apart."""

import re
from pathlib import Path

import pytest

from tests.e2e.project import ROOT, Project

LAUNCHED = """
import triton
import triton.language as tl

import kfuzz
from kfuzz.contracts import operators as ops


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + place, mask=place < n)
    tl.store(y_ptr + place, tl.where(x < 0, 0.0, x), mask=place < n - (n > 4))


kfuzz.kernel(ops.relu, out=("y",), layouts="contiguous", dtypes="float32")(
    kfuzz.launch(
        relu_kernel,
        grid=lambda x: (triton.cdiv(x.numel(), 16),),
        args=lambda x, y: (x, y, x.numel()),
        BLOCK=16,
    )
)
"""
SOFTMAX = Path(__file__).parents[1] / "gpu" / "targets"


@pytest.mark.slow
def test_a_bare_kernel_is_falsified_replayed_and_scripted(project: Project) -> None:
    project.write("kernels.py", LAUNCHED)
    run = project.run("kernels.py", "--max-findings", "1", "--device", "interpret")
    assert run.code == 1, run.err
    [found] = run.findings("relu_kernel")
    assert (found["contract"], found["state"]) == ("K-MEM-02", "confirmed")
    assert found["input_elements"] == 5
    replayed = project.kfuzz("replay", found["id"], "--script", "repro.py")
    assert replayed.returncode in (0, 1), replayed.stderr
    script = project.python("repro.py")
    assert script.returncode in (1, 2), script.stdout + script.stderr
    assert "Traceback" not in script.stderr


@pytest.mark.slow
def test_a_source_that_cannot_be_built_is_an_error_and_no_finding(
    project: Project,
) -> None:
    for path in SOFTMAX.glob("[rs]*"):
        project.write(path.name, path.read_text())
    run = project.run("softmax_cu.py::cuda_softmax", cases=5)
    assert run.code == 3, run.err
    kernel = run.kernel("cuda_softmax")
    assert kernel["findings"] == []
    assert kernel["contracts"]["K-VAL-01"]["verdict"] == "error"
    [notice] = run.document["notices"]
    assert "CUDA C++ does not run on cpu" in notice["message"]
    assert "Traceback" not in run.err


@pytest.mark.slow
def test_the_example_of_a_librarys_kernels_runs(project: Project) -> None:
    readme = (ROOT / "kfuzz" / "targets" / "README.md").read_text()
    [example] = re.findall(r"```python\n(.*?# numpy_kernels\.py.*?)```", readme, re.S)
    assert len(example.strip().splitlines()) <= 22
    project.write("numpy_kernels.py", example)
    run = project.run("numpy_kernels.py", cases=30)
    assert run.code == 0, run.document
    assert len(run.document["kernels"]) >= 4
    for kernel in run.document["kernels"]:
        assert kernel["contracts"]["K-VAL-01"]["decided"] > 0
