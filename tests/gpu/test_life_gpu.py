"""A finding's life on a GPU: its environment, replays side by side, a regression."""

import threading
from pathlib import Path

import pytest
import torch

from kfuzz.core.budget import Budget
from kfuzz.core.event import FindingSaved
from kfuzz.core.verdict import State
from kfuzz.engine.config import ReplayConfig, ReplayOutcome, RunConfig
from kfuzz.engine.replay.replayer import replay
from kfuzz.engine.search.campaign import run
from kfuzz.store.corpus import Corpus, Stored
from kfuzz.store.life import marked
from tests.e2e.project import HEADER, WRONG

pytestmark = [pytest.mark.gpu]

KERNEL = HEADER + WRONG
MENDED = KERNEL.replace("n & (n - 1)", "False")


def require(
    outcome: ReplayOutcome, project: Path, count: int = 1, **how: object
) -> None:
    corpus = project / "corpus"
    entries = [e for e in Corpus(corpus).entries() if isinstance(e, Stored)]
    config = ReplayConfig(root=project, corpus=corpus, **how)
    results = list(replay(entries * count, config, stop=threading.Event()))
    assert [result.outcome for result in results] == [outcome] * count, results


def test_from_found_to_fixed_to_regressed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").touch()
    file = tmp_path / "kernels.py"
    file.write_text(KERNEL)
    config = RunConfig(
        targets=("kernels.py",),
        root=tmp_path,
        corpus=tmp_path / "corpus",
        seed=1,
        budget=Budget(max_cases=60, max_findings=1),
        device="cuda",
    )
    events = list(run(config, stop=threading.Event()))
    [one] = [
        event.finding
        for event in events
        if isinstance(event, FindingSaved) and event.stage == "done"
    ]
    assert one.state is State.CONFIRMED, one.history
    assert one.fingerprint.device == torch.cuda.get_device_name(), one.fingerprint
    runtime = torch.version.hip or torch.version.cuda
    assert runtime
    assert runtime in one.fingerprint.driver
    names = {flag.partition("=")[0] for flag in one.fingerprint.flags}
    assert {"float32_matmul_precision", "matmul.allow_tf32"} <= names

    require(ReplayOutcome.FAILS, tmp_path, 4, jobs=2)
    corpus = Corpus(tmp_path / "corpus")
    corpus.change(one, lambda now: now and marked(now, State.FIXED))
    require(ReplayOutcome.FAILS, tmp_path)
    [entry] = corpus.entries()
    assert isinstance(entry, Stored)
    assert entry.finding.state is State.REGRESSED
    (tmp_path / "mended.py").write_text(MENDED)
    require(ReplayOutcome.FIXED, tmp_path, target="mended.py::wrong")
