"""Processes that end with the one that started them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kfuzz.execution.processes.child import OwnProcess

ROOT = Path(__file__).parents[2]
STARTS = """
import os, time
from kfuzz.execution.processes.child import OwnProcess
process = OwnProcess("{module}:serve", os.environ)
print(process.pid, flush=True)
time.sleep(3600)
"""
ZYGOTES = """
import time
from kfuzz.execution.processes.child import Zygote
zygotes = [Zygote("tests.helpers.processes_serving:serve", env={}) for _ in range(2)]
for zygote in zygotes:
    zygote.start_here()
children = [zygote.fork() for zygote in zygotes]  # both are ready
print(*(zygote.pid for zygote in zygotes), flush=True)
time.sleep(3600)
"""


def test_a_function_serves_its_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "says.py").write_text(
        "def serve(connection):\n    connection.send(connection.recv() + 1)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with OwnProcess("says:serve", os.environ) as process:
        assert process.ask(2, 30.0) == 3
        assert process.ended(30.0) == "exit code 0"


def test_nothing_runs_once_the_parent_has_ended(tmp_path: Path) -> None:
    words = ["-m", "kfuzz.execution.parent", str(os.getppid()), "this:serve", "0"]
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True)
    assert (done.stdout, done.returncode) == (b"", 1)


def test_each_fork_that_forks_sees_the_end_by_itself() -> None:
    """One that is busy or stopped does not keep another from seeing it."""
    starts = subprocess.Popen(
        [sys.executable, "-c", ZYGOTES], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert starts.stdout is not None
    first, second = map(int, starts.stdout.readline().split())
    os.kill(second, signal.SIGSTOP)
    try:
        starts.kill()
        starts.wait()
        starts.stdout.close()
        _await_end(first)
    finally:
        os.kill(second, signal.SIGKILL)


@pytest.mark.parametrize("seconds", [0.0, 0.5])
def test_it_ends_however_early_its_parent_is_killed(
    seconds: float, tmp_path: Path
) -> None:
    (tmp_path / "sleeps.py").write_text("import time\ntime.sleep(3600)\n")
    starts = subprocess.Popen(
        [sys.executable, "-c", STARTS.format(module="sleeps")], cwd=tmp_path, text=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}"}, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert starts.stdout is not None
    pid = int(starts.stdout.readline())
    time.sleep(seconds)
    starts.send_signal(signal.SIGKILL)
    starts.communicate()
    _await_end(pid)


def _await_end(pid: int) -> None:
    end = time.monotonic() + 20
    while _runs(pid):
        assert time.monotonic() < end
        time.sleep(0.01)


def _runs(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
