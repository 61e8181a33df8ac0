"""The command line stays light and outlives what a user's file does to the search."""

import os
import signal
import time

import pytest

from kfuzz.execution.processes import wire as table
from tests.e2e.project import HEADER, RIGHT, WRONG, Project

LIGHT = """
import sys
from kfuzz.app import main
code = main(["run", "kernels.py", "--max-cases", "20", "--seed", "1"])
print("torch" in sys.modules, code)
"""


@pytest.mark.slow
def test_the_command_line_imports_no_torch(project: Project) -> None:
    project.write("kernels.py", HEADER + RIGHT)
    done = project.python("-c", LIGHT)
    assert done.stdout.splitlines()[-1] == "False 0", done.stderr
    assert "kfuzz: importing kernels.py\n" in done.stderr


@pytest.mark.slow
def test_a_search_that_is_killed_keeps_what_it_found(project: Project) -> None:
    project.write("kernels.py", HEADER + WRONG)
    process = project.start(
        ["-m", "kfuzz", "run", "kernels.py", "--max-time", "120s", "--device", "cpu"]
    )
    while not project.findings():
        time.sleep(0.02)
    [command] = table.children_of(process.pid)
    [searching] = table.children_of(command)
    os.kill(searching, signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 3
    assert "the process that searches ended: SIGKILL" in err
    assert project.findings()
    assert project.wait_until_alone() == []
