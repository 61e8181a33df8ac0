"""Kernels that crash, hang, flood or take all memory: the run goes on and says so."""

import json

import pytest

from tests.e2e.project import HEADER, RIGHT, WRONG, Project

# Each misbehaves at some sizes, never at a power of two.
KERNELS = """
import ctypes, os

def unlucky(x):
    return x.numel() % 7 == 3

@kernel(ops.relu)
def segfaults(x):
    if unlucky(x):
        ctypes.string_at(0)
    return torch.relu(x)

@kernel(ops.relu)
def aborts(x):
    if unlucky(x):
        os.abort()
    return torch.relu(x)

@kernel(ops.relu)
def exits(x):
    if unlucky(x):
        os._exit(3)
    return torch.relu(x)

@kernel(ops.relu)
def floods(x):
    if unlucky(x):
        for _ in range(1024):
            os.write(1, b"0123456789abcde\\n" * (1 << 16))
    return torch.relu(x)

@kernel(ops.relu)
def over_reads(x):
    if x.is_contiguous() and x.numel():
        ctypes.string_at(x.data_ptr(), (x.numel() + 1) * x.element_size())
    return torch.relu(x)
"""
HANGS = """
@kernel(ops.relu)
def hangs(x):
    while x.numel() % 7 == 3:
        pass
    return torch.relu(x)
"""
HUNGRY = """
kept = []

@kernel(ops.relu)
def hungry(x):
    while x.numel() % 7 == 3:
        kept.append(torch.zeros(1 << 22))
    return torch.relu(x)

@kernel(ops.relu)
def hungry_in_python(x):
    while x.numel() % 7 == 3:
        kept.append(bytearray(1 << 24))
    return torch.relu(x)
"""


HOSTILE = """
import os, signal, time

def drastic(x):
    return x.numel() > 4

@kernel(ops.relu)
def closes(x):
    if drastic(x):
        os.closerange(3, 1000)
    return torch.relu(x)

@kernel(ops.relu)
def closes_and_waits(x):
    if drastic(x):
        os.closerange(3, 1000)
        time.sleep(3600)
    return torch.relu(x)

@kernel(ops.relu)
def kills_its_parent(x):
    if drastic(x):
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(3600)
    return torch.relu(x)
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    made = Project(tmp_path_factory.mktemp("misbehaving"))
    made.write("kernels.py", HEADER + KERNELS + RIGHT)
    made.write("hangs.py", HEADER + RIGHT + HANGS)
    made.write("hungry.py", HEADER + HUNGRY + RIGHT)
    return made


ENDING = {
    "segfaults": "ends its process: SIGSEGV",
    "aborts": "ends its process: SIGABRT",
    "exits": "ends its process: exit code 3",
}


@pytest.mark.slow
def test_a_search_of_those_that_end_at_once(project: Project) -> None:
    """One search, whose parts stand together: it takes long."""
    run = project.run("kernels.py", "--max-time", "120s", cases=30)
    assert run.code == 1
    for name, says in ENDING.items():
        [finding] = run.findings(name)
        assert (finding["contract"], finding["state"]) == ("K-LIV-01", "confirmed")
        assert says in finding["message"]
    # One that prints a gigabyte.
    assert run.findings("floods") == []
    assert run.kernel("floods")["contracts"]["K-VAL-01"]["verdict"] == "conforms"
    assert "is dropped" in run.err
    assert len(run.err) < 4 << 20
    # The others are judged, and nothing is left.
    assert run.findings("right") == []
    assert run.kernel("right")["cases"] == 30
    assert run.kernel("right")["contracts"]["K-LIV-01"]["verdict"] == "conforms"
    assert project.wait_until_alone() == []
    # A load past the end of an argument.
    [finding] = run.findings("over_reads")
    assert (finding["contract"], finding["state"]) == ("K-MEM-01", "confirmed")
    assert "out-of-bounds read of x: 1 to " in finding["message"]
    assert "past the end (guard page" in finding["message"]
    again = project.kfuzz("replay", finding["id"])
    assert again.returncode == 1
    assert "FAILS" in again.stdout


@pytest.mark.slow
def test_a_kernel_that_does_not_return(project: Project) -> None:
    # Too short to reduce: whether it hangs takes 20 seconds, twice that a minimum.
    run = project.run("hangs.py", "--max-time", "150s", "--max-findings", "1")
    assert run.code == 1
    [finding] = run.findings("hangs")
    assert (finding["contract"], finding["state"]) == ("K-LIV-01", "confirmed")
    assert "does not return within 20 s" in finding["message"]
    # Where it was, told by a signal that no one sees.
    [entry] = project.folder.glob("corpus/hangs/*/finding.json")
    trace = json.loads(entry.read_text())["failure"]["trace"]
    assert "in hangs" in trace
    assert "most recent call first" not in run.err
    assert run.findings("right") == []
    assert run.kernel("right")["cases"] > 0
    assert project.wait_until_alone() == []


@pytest.mark.slow
def test_the_time_of_a_run_is_kept_whatever_its_kernels_do(project: Project) -> None:
    # Establishing that one of them hangs would take 20 seconds, or 120 where it does
    # not return at all; the first finding of the wrong one is being confirmed.
    project.write(
        "late.py",
        HEADER
        + "import time\n"
        + "".join(
            f"\n@kernel(ops.relu)\ndef hangs{i}(x):\n    while True:\n        pass\n"
            for i in range(6)
        )
        + "\n@kernel(ops.relu)\ndef slow(x):\n    time.sleep(0.5)\n    return x + 1\n",
    )
    words = ["--device", "cpu", "--format", "json", "--max-time", "5s", "-q"]
    done = project.kfuzz("run", "late.py", *words)
    document = json.loads(done.stdout)
    assert document["elapsed_s"] < 60
    assert not document["interrupted"]
    assert len(document["kernels"]) == 7
    assert project.wait_until_alone() == []


@pytest.mark.slow
def test_kernels_that_turn_against_kfuzz_cost_no_other_its_search(
    project: Project,
) -> None:
    project.write("hostile.py", HEADER + HOSTILE + RIGHT + WRONG)
    run = project.run("hostile.py", cases=20)
    assert run.code == 1
    for name in ("closes", "closes_and_waits"):
        [finding] = run.findings(name)
        assert (finding["contract"], finding["state"]) == ("K-LIV-01", "confirmed")
        assert "closes file descriptors that are not its own" in finding["message"]
    assert run.findings("kills_its_parent") == []
    assert run.kernel("kills_its_parent")["contracts"]["K-VAL-01"]["verdict"] == "error"
    assert "its calls end the process that its children are forked from" in run.err
    assert run.findings("wrong")
    assert run.findings("right") == []
    assert run.kernel("right")["cases"] == 20
    assert run.kernel("right")["contracts"]["K-VAL-01"]["verdict"] == "conforms"
    assert project.wait_until_alone() == []
