"""The example of the monitor: the batch in question found, reduced and shown again."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "transformer.py"
ROOT = EXAMPLE.parents[2]


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    known = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=known, text=True,
        capture_output=True, timeout=250,
    )  # fmt: skip


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project in which the example was run, with what it found."""
    folder = tmp_path_factory.mktemp("example")
    shutil.copy(EXAMPLE, folder / "transformer.py")
    (folder / "pyproject.toml").write_text("[tool.kfuzz]\n")
    done = run(folder, "transformer.py", "--steps", "322", "--every", "320")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "row_softmax breaks " in done.stderr, done.stdout + done.stderr
    assert "violations=1" in done.stdout
    return folder


def the_finding(folder: Path) -> str:
    [path] = folder.glob("corpus/*/*/finding.json")
    return f"{path.parents[1].name}-{path.parent.name}"


@pytest.mark.slow
def test_the_finding_is_reduced_to_one_score(project: Path) -> None:
    shrunk = run(project, "-m", "kfuzz", "shrink", the_finding(project))
    assert "to 1 element" in shrunk.stdout
    replayed = run(project, "-m", "kfuzz", "replay", the_finding(project))
    assert replayed.returncode == 1, replayed.stdout + replayed.stderr
    assert "C-PRC-02" in replayed.stdout
