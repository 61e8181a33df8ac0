"""The monitor and other processes: forked ones, fresh ones, those that judge."""

import contextlib
import importlib
import os
import subprocess
import sys
import time
from typing import Any

import pytest
import torch

import kfuzz
from kfuzz.features.monitor import runtime as process
from kfuzz.features.monitor.runtime import runtime
from tests.helpers import monitors
from tests.helpers.monitors import SECONDS, settled

fresh, quiet = monitors.fresh, monitors.quiet


FORKING = """
import os, torch, kfuzz
def relu(x): return torch.relu(x)
relu = kfuzz.monitor("relu", rate=1.0)(relu)
relu(torch.ones(2, 3))
assert kfuzz.monitor.flush(30.0)
child = os.fork()
if child == 0:
    code = 2
    try:
        clean = relu.monitor.statistics().seen == 0
        relu(torch.ones(2, 3))
        checked = kfuzz.monitor.flush(30.0)
        code = not (clean and checked and relu.monitor.statistics().checked == 1)
    finally:
        os._exit(code)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.slow
def test_a_forked_child_starts_clean_and_works() -> None:
    # In a forked child torch itself hangs where its threads were in use before.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", FORKING], env=environment)
    assert done.returncode == 0


TRAINING = """
import time, torch, kfuzz
import torch.nn.functional as F

kfuzz.monitor.start({settings})

def reference(x):
    time.sleep({seconds})
    return torch.softmax(x, -1)

@kfuzz.monitor({reference}, rate={rate}, signatures={signatures}, seed=1)
def rows(x):
    return torch.softmax(x, -1) * 1.01

w = torch.randn(8, 8, requires_grad=True)
for _ in range(40):
    rows(torch.randn(4, 8) @ w).square().sum().backward()
"""


def trained(**given: Any) -> str:
    """Return what a training loop of 40 steps with a wrong kernel prints as errors."""
    defaults = {
        "settings": "", "seconds": 0, "reference": "reference", "rate": 0.2,
        "signatures": True,
    }  # fmt: skip
    program = TRAINING.format(**defaults | given)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.slow
def test_the_end_of_a_program_waits_for_the_check_under_way() -> None:
    told = trained(settings="exit_seconds=0.05", seconds=0.2)
    assert "rows breaks" in told
    assert "was judged" not in told


def test_a_function_of_which_nothing_was_judged_is_reported_at_the_end() -> None:
    told = trained(reference="lambda x: 1 / 0")
    assert "rows: none of its 40 calls" in told
    assert "met an error" in told
    assert "breaks" not in told


def test_importing_kfuzz_imports_no_torch() -> None:
    code = "import sys, kfuzz; kfuzz.monitor; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


@pytest.mark.slow
def test_a_process_judges_what_it_can_import(tmp_path: Any) -> None:
    import importlib.util

    path = tmp_path / "apart.py"
    path.write_text(
        "import torch, kfuzz\n"
        "@kfuzz.monitor('relu', rate=1.0)\n"
        "def right(x): return torch.relu(x)\n"
        "@kfuzz.monitor(lambda x, by=1.0: x * by, rate=1.0, name='times')\n"
        "def times(x, by=1.0): return x * by + (x > 2) * by\n"
    )
    kfuzz.monitor.start(process=True)
    spec = importlib.util.spec_from_file_location("apart", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for _ in range(3):
        module.right(torch.randn(4))
        module.times(torch.zeros(4), by=3.0)
    module.times(torch.full((4,), 5.0), 2.0)
    right, times = settled(module.right), settled(module.times)
    assert (right.checked, right.violations, right.errors) == (3, 0, 0)
    assert (times.checked, times.violations, times.errors) == (4, 1, 0)


# Stands where the judging child does: answers that calls conform, once `hangs` is gone.
CHILD = """
import os, pathlib, time
here = pathlib.Path({folder!r})
def serve(connection):
    while connection.recv():
        if (here / "hangs").exists():
            (here / "part").write_text(str(os.getpid()))
            (here / "part").rename(here / "pid")  # never there without its number
            time.sleep(3600)
        connection.send(("conforms", True))
"""


@pytest.fixture
def apart(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a module of one monitored function, judged by a child as above."""
    (tmp_path / "child_that_hangs.py").write_text(CHILD.format(folder=str(tmp_path)))
    kfuzz.monitor.start(process=True)
    monkeypatch.setattr(process, "CHILD", "child_that_hangs:serve")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", path)
    (tmp_path / "hanging.py").write_text(
        "import torch, kfuzz\n"
        "@kfuzz.monitor('relu', rate=1.0)\n"
        "def right(x): return torch.relu(x)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("hanging")
    sys.modules.pop("hanging")
    (tmp_path / "hangs").unlink(missing_ok=True)
    kfuzz.monitor.start(process=False)


def ended(folder: Any) -> bool:
    """Whether the child that hung is gone, and was waited for, soon."""
    for _ in range(200):
        with contextlib.suppress(FileNotFoundError, ValueError):
            try:
                os.kill(int((folder / "pid").read_text()), 0)
            except ProcessLookupError:
                return True
        time.sleep(SECONDS / 200)
    return False


def test_a_call_that_hangs_the_child_is_an_error_and_others_are_judged(
    apart: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    apart.right(torch.randn(4))
    assert settled(apart.right).checked == 1
    (tmp_path / "hangs").touch()
    monkeypatch.setattr(process, "ANSWER_SECONDS", 0.2)
    apart.right(torch.randn(4))
    counts = settled(apart.right)
    assert (counts.checked, counts.errors) == (1, 1)
    assert ended(tmp_path)
    (tmp_path / "hangs").unlink()
    monkeypatch.setattr(process, "ANSWER_SECONDS", SECONDS)
    apart.right(torch.randn(4))
    counts = settled(apart.right)
    assert (counts.checked, counts.errors) == (2, 1)


def test_stopping_ends_a_child_that_hangs(apart: Any, tmp_path: Any) -> None:
    (tmp_path / "hangs").touch()
    apart.right(torch.randn(4))
    while not (tmp_path / "pid").exists():
        time.sleep(0.01)
    assert not runtime.stop(0.0)
    assert ended(tmp_path)
    (tmp_path / "hangs").unlink()
    kfuzz.monitor.start()
    apart.right(torch.randn(4))
    counts = settled(apart.right)
    assert (counts.checked, counts.errors) == (1, 1)
