"""The monitor and other processes: forked ones, and fresh ones."""

import os
import subprocess
import sys
from typing import Any

import pytest

from tests.helpers import monitors

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
