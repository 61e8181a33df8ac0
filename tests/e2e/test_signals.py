"""Ended from outside: what was announced is stored, nothing is left running."""

import signal
import subprocess
import time

import pytest

from tests.e2e.project import (
    HEADER,
    PATIENCE,
    RIGHT,
    WRONG,
    Project,
    strict,
)


def _search(project: Project, *words: str) -> subprocess.Popen[str]:
    return project.start(
        ["-m", "kfuzz", "run", "kernels.py", "--device", "cpu", *words]
    )


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_a_signal_ends_a_search_cleanly(
    number: signal.Signals, project: Project
) -> None:
    project.write("kernels.py", HEADER + RIGHT + WRONG)
    process = _search(project, "--max-time", "1h", "--format", "json")
    while not project.findings():
        time.sleep(0.05)
        assert process.poll() is None
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    document = strict(out)
    assert document["interrupted"]
    [told] = [f for k in document["kernels"] for f in k["findings"]]
    [stored] = project.findings()
    assert told["id"] == stored["id"]
    assert "Traceback" not in err
    assert project.wait_until_alone() == []
    assert project.kfuzz("corpus", "check").returncode == 0


@pytest.mark.slow
def test_a_signal_while_a_kernel_hangs(project: Project) -> None:
    project.write(
        "kernels.py",
        HEADER
        + """
from pathlib import Path

@kernel(ops.relu)
def hangs(x):
    Path("hanging").touch()
    while True:
        pass
""",
    )
    process = _search(project, "--max-time", "1h")
    while not (project.folder / "hanging").exists():
        time.sleep(0.05)
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert project.wait_until_alone() == []
