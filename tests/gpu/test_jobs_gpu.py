"""Kernels searched side by side on one GPU, and on several."""

import json
from collections import defaultdict
from pathlib import Path

import pytest
import torch

from kfuzz.core.codec import encode
from kfuzz.core.event import Event, KernelFinished, RunStarted
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CaseReport, State
from kfuzz.engine.search.round import Round
from tests.helpers import searches
from tests.quality.hunting import ROOT, targets_of

pytestmark = pytest.mark.gpu
NAMES = ("softmax_tail_zero", "triton_softmax", "matmul_drop_tail", "triton_matmul")
several = pytest.mark.skipif(
    torch.cuda.device_count() < 2, reason="one CUDA device at most"
)


def searched(
    corpus: Path, jobs: int | None, *, device: str = "cuda", cases: int = 30
) -> list[Event]:
    return searches.searched(
        corpus, targets=targets_of(NAMES), root=ROOT, corpus=corpus, seed=5,
        max_cases=cases, device=device, jobs=jobs,
    )  # fmt: skip


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[tuple[str, str]]]:
    """Return the device and each case with its verdicts from now on, by kernel."""
    made: dict[str, list[tuple[str, str]]] = defaultdict(list)
    learn = Round.learn

    def told(self: Round, case: Case, report: CaseReport) -> None:
        line = json.dumps([encode(case), encode(report.verdicts)])
        made[self._kernel.name].append((self._kernel.device, line))
        learn(self, case, report)

    monkeypatch.setattr(Round, "learn", told)
    return made


def findings(events: list[Event]) -> dict[str, list[tuple[str, State]]]:
    return {
        e.kernel: sorted((f.signature.contract, f.state) for f in e.findings)
        for e in events
        if isinstance(e, KernelFinished)
    }


def test_two_jobs_on_one_gpu_judge_the_same_cases(
    judged: dict[str, list[tuple[str, str]]], tmp_path: Path
) -> None:
    runs = []
    for jobs in (1, 2):
        judged.clear()
        events = searched(tmp_path / str(jobs), jobs, device="cuda:0")
        assert isinstance(events[0], RunStarted)
        assert events[0].jobs == jobs
        runs.append((dict(judged), findings(events)))
    for name in NAMES:
        assert runs[0][0][name] == runs[1][0][name], name
        assert len(runs[0][0][name]) >= 30, name
    assert runs[0][1] == runs[1][1]
    found = {kernel.rpartition("::")[2]: f for kernel, f in runs[0][1].items()}
    assert found["triton_softmax"] == found["triton_matmul"] == []
    for name in ("softmax_tail_zero", "matmul_drop_tail"):
        assert State.CONFIRMED in [state for _, state in found[name]], found


@several
def test_kernels_are_divided_among_gpus(
    judged: dict[str, list[tuple[str, str]]], tmp_path: Path
) -> None:
    one = findings(searched(tmp_path / "one", 1))
    assert {device for told in judged.values() for device, _ in told} == {"cuda:0"}
    judged.clear()
    two = findings(searched(tmp_path / "two", 2))
    devices = {name: {device for device, _ in told} for name, told in judged.items()}
    assert all(len(used) == 1 for used in devices.values()), devices
    assert set.union(*devices.values()) == {"cuda:0", "cuda:1"}
    assert one == two
