"""Kernels as people have them, from the command line: found, replayed, told apart."""

import pytest

from tests.e2e.project import Project

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
