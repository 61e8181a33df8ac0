"""A user's file is imported once for its children, as long as it can be forked."""

from pathlib import Path

import pytest

from tests.e2e.project import HEADER, Project
from tests.helpers.tiers import usual

# Says in which processes it was imported.
COUNTED = f"""{HEADER}
import os
with open(os.path.join(os.path.dirname(__file__), "imported"), "a") as file:
    print(os.getpid(), file=file)
"""
TWO_WRONG = """
@kernel(ops.relu)
def wrong(x):
    y = torch.relu(x).contiguous()
    last = y.view(-1)[-1:]
    last[last.isfinite()] = 0
    return y

@kernel(ops.softmax)
def also_wrong(x, dim):
    return torch.softmax(x, dim) + (x.shape[-1] > 3)
"""
# What keeps a process from being forked safely.
THREADED = """
import threading, time
threading.Thread(target=time.sleep, args=(600,), name="poller", daemon=True).start()
"""
# As the pools of OpenBLAS, of which scipy brings one: it ends as a fork begins.
# Torch's own pool of threads must not come to be in the template.
# Right, and each only in the process that imported it, or in no fork that is watched.
BY_NUMBER = """
PROCESS = os.getpid()

@kernel(ops.relu)
def right(x):
    assert os.getpid() == PROCESS
    return torch.relu(x)
"""
BY_HELPER = """
import subprocess
HELPER = subprocess.Popen(["sleep", "600"])

@kernel(ops.relu)
def right(x):
    assert HELPER.poll() is None
    return torch.relu(x)
"""
BY_SIGNAL = """
import signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)

@kernel(ops.relu)
def right(x):
    return torch.relu(x)
"""
BY_SHARED_MEMORY = """
import mmap
SHARED = mmap.mmap(-1, 64)

@kernel(ops.relu)
def right(x):
    return torch.relu(x)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        usual(BY_NUMBER, is_usual=True),
        usual(BY_HELPER, is_usual=False),
        usual(BY_SIGNAL, is_usual=False),
        usual(BY_SHARED_MEMORY, is_usual=False),
    ],
)
def test_what_a_fork_would_break_is_no_fault(project: Project, text: str) -> None:
    project.write("kernels.py", COUNTED + text)
    run = project.run("kernels.py", cases=40)
    assert run.code == 0, run.err
    states = [finding["state"] for finding in run.kernel("right")["findings"]]
    assert states in ([], ["unreproduced"])
    assert run.kernel("right")["contracts"]["K-VAL-01"]["verdict"] == "conforms"
    assert project.wait_until_alone() == []


def imports(project: Project) -> int:
    return len(Path(project.folder / "imported").read_text().split())


# As torch._inductor does, which libraries import.
SETTING = """
os.environ["SET_BY_AN_IMPORT"] = "1"
"""


@pytest.mark.slow
def test_children_of_two_faulty_kernels_import_it_once(project: Project) -> None:
    project.write("kernels.py", COUNTED + SETTING + TWO_WRONG)
    run = project.run("kernels.py")
    assert run.code == 1
    assert run.kernel("wrong")["findings"]
    assert run.kernel("also_wrong")["findings"]
    # In all, and in a child of each kernel that confirms what it found.
    assert imports(project) <= 3


@pytest.mark.slow
def test_what_cannot_be_forked_is_imported_by_each_child_and_that_is_said(
    project: Project,
) -> None:
    project.write("kernels.py", COUNTED + THREADED + TWO_WRONG)
    run = project.run("kernels.py")
    assert run.code == 1
    assert run.kernel("wrong")["findings"]
    assert imports(project) > 3
    assert "each child imports its file by itself" in run.err
    assert "poller" in run.err
