"""Small programs that use a GPU in many ways run to their end without one."""

import shutil
from pathlib import Path

import pytest

from tests.e2e.project import Project

pytest.importorskip("kfuzz.features")

PROGRAMS = Path(__file__).with_name("programs")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", sorted(p.stem for p in PROGRAMS.glob("*.py") if p.stem != "k")
)
def test_a_program_runs_to_its_end(project: Project, name: str) -> None:
    for file in ("k.py", f"{name}.py"):
        shutil.copy(PROGRAMS / file, project.folder / file)
    done = project.kfuzz("sanitize", f"{name}.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 faults in " in done.stdout
    assert "0 not interpreted" in done.stdout


@pytest.mark.slow
def test_what_a_gpu_alone_has_is_said(project: Project) -> None:
    project.write("graph.py", "import torch\ntorch.cuda.CUDAGraph()\n")
    done = project.kfuzz("sanitize", "graph.py")
    assert done.returncode == 1
    assert "a CUDA graph is captured and replayed on a GPU alone" in done.stderr
