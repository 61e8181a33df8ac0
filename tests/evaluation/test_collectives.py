"""Collectives: what two processes say, that none outlives its call, and the verdict."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kfuzz.contracts import operators as ops
from kfuzz.contracts.binding import kernel
from kfuzz.contracts.evidence import Collected, Torn
from kfuzz.core.budget import Depth
from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.core.verdict import Kind, Verdict
from kfuzz.evaluation.evaluator import Evaluator, setting_of
from kfuzz.execution.device.collectives import run_ranks
from tests.helpers.budgets import SIZE_BUDGETS

CASE = Case({"x": TensorSpec((4, 33), ("d0", "d1"), "float32", fill=Fill("randn", 2))})
TORN = Torn("y", (1, 2), 3, 0.5, 0.25, of=132)


def ran(folder: Path, text: str, **options: Any) -> list[Any]:
    """Return what ranks reply that serve as a text says."""
    (folder / "ranks_of_a_test.py").write_text(text)
    path = {"PYTHONPATH": str(folder)}
    return run_ranks("ranks_of_a_test:serve", "asked", beside=path, **options)


def test_both_ranks_are_heard(tmp_path: Path) -> None:
    beats: list[None] = []
    text = (
        "def serve(connection):\n"
        "    request, rank, folder = connection.recv()\n"
        "    connection.send(f'{request}: rank {rank}')\n"
    )
    made = ran(tmp_path, text, step=lambda: beats.append(None))
    assert made == ["asked: rank 0", "asked: rank 1"]
    assert beats


@pytest.mark.parametrize("failing", ["sys.exit(3)", "time.sleep(600)"])
def test_no_rank_outlives_the_call(failing: str, tmp_path: Path) -> None:
    text = (
        "import os, subprocess, sys, time\n"
        "def serve(connection):\n"
        "    request, rank, folder = connection.recv()\n"
        "    helper = subprocess.Popen(['sleep', '600'])\n"
        f"    log = open(f'{tmp_path}/{{rank}}.pids', 'w')\n"
        "    log.write(f'{os.getpid()} {helper.pid}')\n"
        "    log.close()\n"
        f"    if rank == 0: {failing}\n"
        "    time.sleep(600)\n"
    )  # fmt: skip
    assert ran(tmp_path, text, step=lambda: None, limit=3.0) == []
    pids = [int(p) for f in tmp_path.glob("*.pids") for p in f.read_text().split()]
    assert pids
    deadline = time.monotonic() + 10
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, pids))


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def evaluator(name: str, said: Collected) -> Evaluator:
    setting = setting_of("cpu", SIZE_BUDGETS["cpu"], {"C-ORD-03", "K-VAL-01"})
    made = Evaluator(kernel(ops.relu, name=name)(torch.relu), setting)
    made.beside_collective = lambda case, step: said
    return made


def test_what_a_collective_saw_is_c_ord_03(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kfuzz.evaluation.probes.calls.interpreting", lambda: False)
    asked = replace(CASE, collective=True)
    made = evaluator("collective_torn", Collected(torn=TORN))
    report = made.judge(asked, Depth.SEARCH)
    assert report.failure is not None
    assert report.failure.contract == "C-ORD-03"
    assert report.failure.kind is Kind.OVERLAP_DEPENDENT
    assert report.failure.detail == "collective"
    assert "y[1, 2] is 0.5" in report.failure.message
    # The same case without the question shows nothing.
    assert made.judge(CASE, Depth.FULL).failure is None
    fine = evaluator("collective_fine", Collected()).judge(asked, Depth.SEARCH)
    assert fine.failure is None
    assert fine.verdicts["C-ORD-03"] is Verdict.CONFORMS
    left = evaluator("collective_left", Collected("no NCCL")).judge(asked, Depth.SEARCH)
    assert left.failure is None
    assert left.notes == ("not judged beside a collective: no NCCL",)
