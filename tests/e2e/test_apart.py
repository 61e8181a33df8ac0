"""The command line stays light and outlives what a user's file does to the search."""

import os
import signal
import time

from kfuzz.execution.processes import table
from tests.e2e.project import HEADER, RIGHT, WRONG, Project, error

ENDING = """
import os, signal
os.kill(os.getpid(), signal.SIGSEGV)
"""
HANGING = """
import pathlib, time
pathlib.Path(__file__).with_name("begun").touch()
time.sleep(3600)
"""
LIGHT = """
import sys
from kfuzz.app import main
code = main(["run", "kernels.py", "--max-cases", "20", "--seed", "1"])
print("torch" in sys.modules, code)
"""


def test_the_command_line_imports_no_torch(project: Project) -> None:
    project.write("kernels.py", HEADER + RIGHT)
    done = project.python("-c", LIGHT)
    assert done.stdout.splitlines()[-1] == "False 0", done.stderr
    assert "kfuzz: importing kernels.py\n" in done.stderr


def test_an_import_that_ends_the_process_is_told(project: Project) -> None:
    project.write("kernels.py", HEADER + ENDING)
    run = project.run("kernels.py")
    assert run.code == 2
    assert "kernels.py: importing it ends the process: SIGSEGV" in error(run)
    assert project.wait_until_alone() == []


def test_ctrl_c_ends_an_import_that_hangs(project: Project) -> None:
    project.write("kernels.py", HEADER + HANGING)
    process = project.start(["-m", "kfuzz", "run", "kernels.py", "--max-time", "5s"])
    while not (project.folder / "begun").exists():
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert project.wait_until_alone() == []


def test_a_search_that_is_killed_keeps_what_it_found(project: Project) -> None:
    project.write("kernels.py", HEADER + WRONG)
    process = project.start(
        ["-m", "kfuzz", "run", "kernels.py", "--max-time", "120s", "--device", "cpu"]
    )
    while not project.findings():
        time.sleep(0.02)
    [searching] = table.children_of(process.pid)
    os.kill(searching, signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 3
    assert "the process that searches ended: SIGKILL" in err
    assert project.findings()
    assert project.wait_until_alone() == []
