"""Torch's operators touch no page beside their arguments; what does touch one dies."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.quality.guard_page_sweep import (
    ALIGNMENTS,
    DTYPES,
    IMAGES,
    LAYOUTS,
    MATRICES,
    OPERATORS,
    SIDES,
)

ROOT = Path(__file__).parents[2]
PLACEMENTS = len(DTYPES) * len(LAYOUTS) * len(SIDES) * len(ALIGNMENTS)
CALLS = PLACEMENTS * (len(MATRICES) * (len(OPERATORS) - 1) + len(IMAGES))


@pytest.mark.slow
def test_torch_operators_do_not_fault_and_an_over_read_does() -> None:
    words = [sys.executable, "-m", "tests.quality.guard_page_sweep", "control"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert len(OPERATORS) == 20
    assert done.stdout.split() == [str(CALLS)], done.stderr[-2000:]
    assert done.returncode == -signal.SIGSEGV
