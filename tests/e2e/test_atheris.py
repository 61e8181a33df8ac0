"""`--engine atheris`: narrow branches are reached, and what ends a child is charged."""

import importlib.util
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.e2e.project import HEADER, PATIENCE, RIGHT, Project, strict

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("atheris") is None, reason="atheris is not installed"
)

# 333 is no size that is drawn unless the wrapper names it.
NARROW = """
@kernel(ops.relu)
def narrow(x):
    y = torch.relu(x)
    if x.dim() and x.shape[-1] == 333 and x.dtype is torch.float16:
        return y + 1
    return y
"""
FATAL = """
import os, signal

@kernel(ops.relu)
def fatal(x):
    if x.numel() % 7 == 3:
        os.kill(os.getpid(), signal.SIGSEGV)
    return torch.relu(x)
"""


@pytest.mark.slow
def test_a_narrow_branch_is_reached_the_same_way_twice(
    project: Project, tmp_path: Path
) -> None:
    project.write("kernels.py", HEADER + NARROW)
    other = Project(Path(shutil.copytree(project.folder, tmp_path / "other")))
    words = ("kernels.py", "--engine", "atheris", "--max-findings", "1")
    runs = [made.run(*words, cases=1000) for made in (project, other)]
    for run in runs:
        assert run.code == 1, run.err
    one, two = (run.kernel("narrow") for run in runs)
    assert one["findings"] == two["findings"]
    assert one["cases"] == two["cases"]
    [found] = one["findings"]
    assert found["state"] == "confirmed"
    assert 333 <= found["input_elements"] < 1000
    # It is a finding like any other.
    assert project.kfuzz("replay", found["id"]).returncode == 1
    assert project.wait_until_alone() == []


@pytest.mark.slow
def test_a_case_that_ends_the_child_is_charged_and_the_search_goes_on(
    project: Project,
) -> None:
    project.write("kernels.py", HEADER + FATAL)
    run = project.run("kernels.py", "--engine", "atheris", cases=60)
    assert run.code == 1, run.err
    [found] = run.findings("fatal")
    assert found["contract"] == "K-LIV-01"
    assert found["input_elements"] == 3
    assert run.kernel("fatal")["cases"] == 60
    assert project.wait_until_alone() == []


@pytest.mark.slow
def test_an_interrupt_ends_it(project: Project) -> None:
    project.write("kernels.py", HEADER + RIGHT)
    words = "run kernels.py --engine atheris --device cpu --max-time 1h --format json"
    process = project.start(["-m", "kfuzz", *words.split()])
    assert process.stderr is not None
    for line in process.stderr:
        if " cases (" in line and " 0 cases" not in line:
            break
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    assert strict(out)["interrupted"]
    assert project.wait_until_alone() == []
