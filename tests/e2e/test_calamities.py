"""Killed at any moment, on a full disk, under a clock that jumps: nothing is lost."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.tiers import usual

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kills", "disks", "clocks"),
    [
        usual(6, 2, 1, is_usual=True),
        usual(1000, 40, 10, is_usual=False),
    ],
)
def test_nothing_announced_is_lost_and_nothing_is_left(
    kills: int, disks: int, clocks: int
) -> None:
    words = ["--kills", str(kills), "--disks", str(disks), "--clocks", str(clocks)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.calamities", *words],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[0]) >= kills
    for words_ in ("0 lost of", "0 left over after 2 s", "0 damaged", "0 raised"):
        assert words_ in done.stdout
