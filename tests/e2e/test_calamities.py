"""Killed at any moment, on a full disk, under a clock that jumps: nothing is lost."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kfuzz.store.corpus import Corpus
from tests.benchmarks.calamities import Figures, Search, Worker
from tests.helpers.findings import finding
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


@pytest.mark.slow
def test_what_is_lost_left_or_damaged_is_seen(tmp_path: Path) -> None:
    code = f"""
import os, subprocess, sys
sys.path.insert(0, {str(ROOT)!r})
from tests.e2e.test_calamities import spoilt
spoilt({str(tmp_path)!r})
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["absent", "1", "1", "1", "False"], done.stderr


def spoilt(folder: str) -> None:
    """Print the figures of a search that loses, leaves and damages something."""
    worker = Worker(Path(folder), 1)
    corpus = Corpus(Path(folder) / "corpus")
    path = corpus.save(finding(kernel="stored"))
    (corpus.save(finding(kernel="damaged")) / "finding.json").write_text("{")

    def begin(tells: int) -> int:
        os.write(tells, b"found stored\nfound absent\nraised by kfuzz\n")
        return subprocess.Popen(["sleep", "600"]).pid

    assert path.exists()
    worker._bury(Search(begin))
    figures: Figures = worker.figures
    counts = (len(figures.left), len(figures.damaged), len(figures.raised))
    told = (*figures.lost, *counts, figures.good)
    sys.stdout.write(" ".join(map(str, told)))
