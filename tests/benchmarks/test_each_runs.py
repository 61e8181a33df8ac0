"""Each benchmark runs: a table of little comes out of it. They measure if asked to."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUNS = {
    "aten": "--cases 20 --jobs 1 --only exp add.Tensor",
    "asserting": "--elements 8",
    "correct_operators": "kl_div conv1d --cases 20",
    "faults_in_a_row": "--device cpu --faults 6 --hangs 0",
    "languages": "--only Numba --seconds 20",
    "late_faults": "--only scan_columns_256 scan_correct --seconds 5",
    "launch_peers": "",
    "lines": "--keep . --seconds 60 --only *gelu_digits --search-seconds 8",
    "launches": "--cases 2 --only triton_softmax",
    "mutants.run": "--list",
    "narrow_branches": "--cases 4 --seeds 1 --kernel relu_odd_shape",
    "oracle_table": "--seeds 1 --largest 3 --operators sum",
    "planted_runs": "softmax.backward --cases 20",
    "planted_races": "--only shift_left rows_reversed_correct --seconds 20",
    "shadow_against_formulas": "--largest 2",
    "public_kinds": "--only rms_trunc --seconds 5",
    "throughput": "--device cpu --operators softmax --seconds 1",
    "to_first_falsification": "--seconds 5 --cases 20 --seeds 1 --tools kfuzz "
    "--faults relu_native_over_read",
    "workers": "1 2 --seconds 4",
}

# What some of them need besides.
NEEDS = {"languages": "numba"}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_it_runs(name: str, tmp_path: Path) -> None:
    if name in NEEDS and importlib.util.find_spec(NEEDS[name]) is None:
        pytest.skip(f"needs {NEEDS[name]}")
    command = [sys.executable, "-m", f"tests.benchmarks.{name}", *RUNS[name].split()]
    done = subprocess.run(
        command, cwd=tmp_path, env=_environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(done.stdout.splitlines()) > 2
    assert any(c.isdigit() for c in done.stdout)


def _environment() -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
