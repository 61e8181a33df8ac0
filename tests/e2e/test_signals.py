"""Ended from outside: what was announced is stored, nothing is left running."""

import random
import re
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

ANNOUNCED = re.compile(r"^violates \S+ (kernels\.py::\w+): .*\(saved;", re.MULTILINE)
# Many bugs, each at its own size: there is something to announce all the time.
SIZES = range(2, 14)
MANY = "".join(
    f"""
@kernel(ops.relu)
def wrong_at_{n}(x):
    return torch.relu(x) + (x.numel() % {n} == 1)
"""
    for n in SIZES
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


@pytest.mark.slow
@pytest.mark.parametrize("attempt", range(3))
def test_killed_at_any_moment_no_announced_finding_is_lost(
    attempt: int, project: Project
) -> None:
    project.write("kernels.py", HEADER + MANY)
    words = ("--max-time", "1h", "--seed", str(attempt), "--jobs", str(attempt + 1))
    process = _search(project, *words)
    while not project.corpus.exists():
        time.sleep(0.01)
        assert process.poll() is None
    time.sleep(random.Random(attempt).uniform(0, 4))
    process.kill()
    out, _ = process.communicate(timeout=PATIENCE)
    announced = ANNOUNCED.findall(out)
    listed = project.kfuzz("corpus", "list", "--format", "json")
    document = strict(listed.stdout)
    assert document["problems"] == []
    stored = {finding["kernel"] for finding in document["findings"]}
    assert set(announced) <= stored
    assert project.wait_until_alone() == []
