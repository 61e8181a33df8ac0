"""What users' files do as they are imported: told, and over when it is to be over."""

import signal
import time

import pytest

from tests.e2e.project import HEADER, WRONG, Project, error, strict
from tests.helpers.tiers import usual

# Each mentions kfuzz, and ends or hangs before it imports torch.
FILES = {
    "segfaults": "import ctypes, kfuzz\nctypes.string_at(0)\n",
    "aborts": "import os, kfuzz\nos.abort()\n",
    "exits": "import ctypes, kfuzz\nctypes.CDLL(None).exit(0)\n",
    # Deaf to exceptions, as compiled code is.
    "hangs": """
import kfuzz, pathlib, time
pathlib.Path(__file__).with_name("begun").touch()
while True:
    try:
        time.sleep(60)
    except BaseException:
        pass
""",
}
SAYS = {
    "segfaults": "importing it ends its process: SIGSEGV",
    "aborts": "importing it ends its process: SIGABRT",
    "exits": "importing it ends its process: exit code 0",
    "hangs": "importing it does not end within 1 s",
}
VERBS = ("run", "check", "grade", "probe", "contracts show", "judge")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("verb", "name"),
    [
        usual(
            verb,
            name,
            is_usual=(verb == "contracts show" or (verb, name) == ("run", "segfaults")),
        )
        for verb in VERBS
        for name in FILES
        if verb == "run" or name != "exits"  # nothing of Python is left to tell
    ],
)
def test_an_import_that_ends_or_hangs_is_told(
    verb: str, name: str, project: Project
) -> None:
    project.write("kernels.py", FILES[name])
    seconds = {"KFUZZ_IMPORT_SECONDS": "1"}
    files = ["kernels.py", *(["candidate.py"] if verb == "judge" else [])]
    project.write("candidate.py", "")
    done = project.kfuzz(*verb.split(), *files, environment=seconds)
    if verb != "run" and name != "hangs":  # Python itself names the line
        assert done.returncode < 0
        assert "kernels.py" in done.stderr
    else:
        assert done.returncode == 2
        assert f"kernels.py: {SAYS[name]}" in error(done)
    assert project.wait_until_alone() == []


@pytest.mark.parametrize(
    ("verb", "number"),
    [
        ("contracts show", signal.SIGINT),
        ("run", signal.SIGTERM),
        usual("check", signal.SIGINT, is_usual=False),
        usual("run", signal.SIGINT, is_usual=False),
    ],
)
@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 2])
def test_a_signal_ends_an_import_that_hangs(
    verb: str, number: int, times: int, project: Project
) -> None:
    project.write("kernels.py", FILES["hangs"])
    process = project.start(["-m", "kfuzz", *verb.split(), "kernels.py"])
    while not (project.folder / "begun").exists():
        time.sleep(0.02)
        assert process.poll() is None
    for _ in range(times):
        process.send_signal(number)
        time.sleep(0.1)  # two at once are one
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert project.wait_until_alone() == []


@pytest.mark.slow
def test_replays_go_on_past_a_file_whose_import_ends_the_process(
    found: Project,
) -> None:
    """One finding cannot be judged any more; the others are."""
    found.write("other.py", HEADER + WRONG.replace("wrong", "other"))
    assert found.run("other.py", "--max-findings", "1").code == 1
    found.write("other.py", FILES["segfaults"])
    done = found.kfuzz("replay", "--times", "1", "--format", "json")
    assert done.returncode == 3
    results = strict(done.stdout)["results"]
    told = {r["id"].partition("-")[0]: r for r in results}
    assert told["wrong"]["outcome"] == "FAILS"
    assert told["other"]["outcome"] == "ERROR"
    assert f"other.py: {SAYS['segfaults']}" in told["other"]["message"]
    assert found.wait_until_alone() == []


# What a run takes at least: seconds that a test does not have.
IN_A_SECOND = """
import sys
from kfuzz.targets import load

load.LEAST_SECONDS = 1.0
from kfuzz.__main__ import main

sys.exit(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "verb",
    [
        usual(verb, is_usual=verb in ("run", "judge"))
        for verb in ("run", "prove", "probe", "grade", "judge")
    ],
)
def test_an_import_that_hangs_ends_with_the_time_of_the_run(
    verb: str, project: Project
) -> None:
    project.write("kernels.py", FILES["hangs"])
    project.write("candidate.py", "")
    files = ["kernels.py", *(["candidate.py"] if verb == "judge" else [])]
    words = ["-c", IN_A_SECOND, verb, *files, "--max-time", "1s"]
    done = project.python(*words)
    assert done.returncode == 2
    assert f"kernels.py: {SAYS['hangs']}" in error(done)
    assert "give more with --max-time" in done.stderr
    assert project.wait_until_alone() == []


REFERENCE = """
import time
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {build}

    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    {inputs}
    return [torch.rand(4, 8)]


def get_init_inputs():
    return []
"""
ENDLESS = "while True: torch.zeros(1000).normal_()"


@pytest.mark.slow
@pytest.mark.parametrize(("build", "inputs"), [(ENDLESS, ""), ("pass", ENDLESS)])
def test_a_reference_that_takes_too_long_to_open_decides_nothing(
    build: str, inputs: str, project: Project
) -> None:
    project.write("reference.py", REFERENCE.format(build=build, inputs=inputs))
    project.write("candidate.py", "")
    files = ["reference.py", "candidate.py"]
    done = project.python("-c", IN_A_SECOND, "judge", *files, "--max-time", "1s")
    assert done.returncode == 2
    assert done.stdout.startswith(
        "under_specified: candidate.py: opening the reference was given up after 1 s: "
        "give more with --max-time\n  against reference.py"
    )
    assert project.wait_until_alone() == []
