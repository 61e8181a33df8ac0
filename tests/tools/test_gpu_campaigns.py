"""The long runs for a GPU: their plans, their tables and the script that parts them."""

import itertools
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from kfuzz.core.verdict import CaseReport, Failure, Kind, Verdict
from tests.benchmarks import faults_in_a_row as rows
from tests.benchmarks import soak, turned_kernel

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tests" / "gpu" / "run"


def failed(kind: Kind, detail: str = "", contract: str = "K-LIV-01") -> CaseReport:
    failure = Failure(contract, kind, "what happened", detail=detail)
    return CaseReport({contract: Verdict.VIOLATES}, failure=failure)


def test_faults_come_in_the_number_asked_for_between_good_cases() -> None:
    asked = rows.plan(200, 4, 0)
    counts = Counter(asked)
    assert counts["hang"] == 4
    assert sum(n for kind, n in counts.items() if kind != "well") == 200
    assert min(counts[k] for k in ("assert", "fault", "raise")) >= 65
    assert (asked[0], asked[-1]) == ("well", "well")
    # Some come one after the other, some after good cases.
    pairs = Counter(itertools.pairwise(asked))
    assert pairs["fault", "assert"] or pairs["fault", "raise"]
    assert pairs["well", "well"]
    assert rows.plan(200, 4, 0) == asked != rows.plan(200, 4, 1)


def test_cases_ask_the_kernel_for_their_turn() -> None:
    made = [rows.case(i, asked) for i, asked in enumerate(rows.TURNS)]
    assert len({case.tensors["x"].values for case in made}) == len(made)
    assert turned_kernel.FIRST == rows.FIRST
    kernel = vars(turned_kernel)
    turns = {"hang": "STALL", "assert": "ASSERT", "fault": "FAR", "raise": "RAISE"}
    assert {k: kernel[n] for k, n in turns.items()} == {
        k: n for k, n in rows.TURNS.items() if k != "well"
    }


@pytest.mark.parametrize(
    ("asked", "report", "on_cuda", "right"),
    [
        ("well", CaseReport({"K-VAL-01": Verdict.CONFORMS}), True, True),
        ("well", CaseReport({}, error="suspected hang"), True, False),
        ("well", failed(Kind.DEVICE_FAULT), True, False),
        ("raise", failed(Kind.RAISES, "RuntimeError"), True, True),
        ("raise", failed(Kind.RAISES, "AcceleratorError"), True, False),
        ("raise", CaseReport({"K-VAL-01": Verdict.CONFORMS}), True, False),
        ("hang", failed(Kind.HANG), True, True),
        ("fault", failed(Kind.DEVICE_FAULT), True, True),
        ("fault", failed(Kind.CRASH, "SIGSEGV"), False, True),
        ("fault", failed(Kind.CRASH, "SIGABRT"), False, False),
        ("assert", failed(Kind.CRASH, "SIGABRT"), False, True),
        ("assert", failed(Kind.DEVICE_FAULT, contract="K-MEM-01"), True, False),
    ],
)
def test_only_what_the_case_did_is_right(
    asked: str, report: CaseReport, on_cuda: bool, right: bool
) -> None:
    assert rows.expected(asked, report, on_cuda=on_cuda) is right


def test_time_to_the_next_report_counts_from_the_fault() -> None:
    turns = ("well", "fault", "well", "raise", "hang", "well")
    steps = [rows.Step(t, "", True, i, i + 0.5) for i, t in enumerate(turns)]
    # Not before a hang, which takes its time limit.
    assert rows.gaps(steps) == {"fault": [1.0], "hang": [1.0]}


def test_a_soak_goes_on_where_it_ended(tmp_path: Path) -> None:
    state = tmp_path / "soak.json"
    first = soak.Soak(state, ["a", "b"], 10, seed=7)
    name, seed, lacking = first.take() or pytest.fail("nothing to do")
    assert (name, seed, lacking) == ("a", 7, 10)
    assert first.take() == ("b", 7, 10)
    assert first.take() is None  # both are being searched
    first.give("a", {"cases": 4, "findings": []}, 2.0)
    first.give("b", {"cases": 10, "findings": ["f C-PRC-01"]}, 1.0)
    again = soak.Soak(state, ["a", "b"], 10, seed=99)
    assert again.take() == ("a", 7 + soak.SEED_STEP, 6)
    assert not again.is_complete()
    assert "| a | 4 | 0 | 2.0 | 0 |" in again.table()
    again.give("a", {"cases": 6, "screened": 5, "findings": []}, 1.0)
    assert again.is_complete()
    assert again.take() is None
    assert "| **all** | 20 | 5 |  | 1 |" in again.table()


def test_a_kernel_that_cannot_be_searched_is_not_tried_for_ever(
    tmp_path: Path,
) -> None:
    made = soak.Soak(tmp_path / "soak.json", ["a"], 10, seed=0)
    made.take()
    notices = ["given up: the child that should run it did not get ready"]
    made.give("a", {"cases": 3, "findings": [], "notices": notices}, 1.0)
    assert made.take() is None
    assert made.kernels["a"]["errors"] == notices


def script(*arguments: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHON": "echo"}
    return subprocess.run(
        [str(SCRIPT), *arguments], env=env, capture_output=True, text=True, check=False
    )


@pytest.mark.skipif(sys.platform != "linux", reason="timeout is GNU's")
def test_the_script_names_its_parts_and_every_test_is_in_one() -> None:
    listed = script()
    assert listed.returncode == 0
    first = [(*line.split(), "")[0] for line in listed.stdout.splitlines()]
    parts = [word for word in first if word.isdigit()]
    assert parts == [str(i) for i in range(1, 11)]
    commands = [script(part, "-x").stdout for part in parts]
    assert all(c.rstrip().endswith("-x") for c in commands)
    everything, named = commands[0], "".join(commands[1:])
    for path in (ROOT / "tests" / "gpu").glob("test_*.py"):
        ignored = f"--ignore=tests/gpu/{path.name}" in everything
        assert ignored == (f"tests/gpu/{path.name}" in named), path.name
    assert script("11").returncode == 2
