"""What users' files do as they are imported: told, and over when it is to be over."""

import signal
import time

import pytest

from tests.e2e.project import Project, error
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
