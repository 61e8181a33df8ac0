"""A failure is stored at once, and confirmed before it is explained."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kfuzz.core.budget import Depth
from kfuzz.core.event import Event, FindingSaved, KernelFinished
from kfuzz.core.recipe import Case, TensorSpec
from kfuzz.core.verdict import Kind, State, Verdict
from kfuzz.engine.config import RunConfig
from kfuzz.engine.search.campaign import run
from kfuzz.engine.workers import runner as runners
from kfuzz.engine.workers.jobs import Stopped
from kfuzz.engine.workers.runner import Runner, runner_of
from kfuzz.engine.workers.zygotes import Backend
from kfuzz.targets.load import load_all
from tests.helpers import searches

# Rows of 16 and more than a few columns are among the shapes that a diagnosis tries.
KERNELS = """
import os
import time

import torch

import kfuzz
from kfuzz.contracts import operators as ops


def wrong(x, dim):
    y = torch.softmax(x, dim)
    if x.shape[dim] % 16:
        y = y * 1.5
    return y


@kfuzz.kernel(ops.softmax, dtypes=("float32",), dims=(-1,))
def hangs_elsewhere(x, dim=-1):
    if x.shape == (16, 16):
        time.sleep(3600)
    return wrong(x, dim)


@kfuzz.kernel(ops.softmax, dtypes=("float32",), dims=(-1,))
def dies_elsewhere(x, dim=-1):
    if x.shape == (16, 16):
        os._exit(3)
    return wrong(x, dim)


@kfuzz.kernel(ops.softmax, dtypes=("float32",), dims=(-1,))
def sleeps(x, dim=-1):
    time.sleep(3600)


@kfuzz.kernel(ops.softmax, dtypes=("float32",), dims=(-1,))
def only_wrong(x, dim=-1):
    return wrong(x, dim)
"""


def config_of(folder: Path, name: str, **budget: float) -> RunConfig:
    (folder / "kernels.py").write_text(KERNELS, encoding="utf-8")
    contracts = ("K-LIV-*", "K-VAL-*", "C-*")
    return searches.config_of(
        f"{folder / 'kernels.py'}::{name}", contracts=contracts, **budget
    )


def row(n: int) -> Case:
    values = b"\x00\x00\x80\x3f" * n
    spec = TensorSpec((1, n), ("d0", "d1"), "float32", values=values)
    return Case({"x": spec}, {"dim": -1})


@pytest.fixture
def runner(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Runner]:
    config = config_of(tmp_path, request.param)
    [loaded] = load_all(config.targets, root=tmp_path)
    backend = Backend("cpu")
    made = runner_of(loaded, backend, root=tmp_path, expired=lambda: False)
    yield made
    made.close()
    backend.close()


@pytest.mark.slow
@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("runner", ["hangs_elsewhere", "dies_elsewhere"], indirect=True)
def test_what_a_kernel_does_on_other_shapes_is_not_charged_to_the_case(
    runner: Runner, fresh: bool
) -> None:
    assert runner.diagnose(row(5), 3.0, fresh=fresh) is None
    report = runner.judge(row(5), Depth.SEARCH)  # in another child
    assert report.failure is not None
    assert report.failure.kind is Kind.VALUE


@pytest.mark.slow
def test_a_diagnosis_that_hangs_leaves_a_confirmed_wrong_value(tmp_path: Path) -> None:
    """It never reads as a hang of the case, which returns at once."""
    config = config_of(tmp_path, "hangs_elsewhere", max_time=8.0, max_findings=1)
    done, finished = [], []
    for event in run(config, stop=threading.Event()):
        if isinstance(event, FindingSaved) and event.stage == "done":
            done.append(event.finding)
        elif isinstance(event, KernelFinished):
            finished.append(event)
    assert {f.signature.kind for f in done} == {Kind.VALUE}
    assert done[-1].state is State.CONFIRMED
    assert done[-1].explanation is not None
    assert not done[-1].explanation.complete
    [kernel] = finished
    assert {f.id for f in kernel.findings} == {done[-1].id}
    # It is one of these, and nobody knows which.
    for name in ("C-CMP-03", "C-PRC-01", "C-EXC-01"):
        assert kernel.contracts[name].verdict is not Verdict.CONFORMS


def test_a_miss_is_stored_before_anything_is_asked_about_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(*given: object, **named: object) -> None:
        raise AssertionError("it is not stored yet")

    for name in ("judge_fresh", "diagnose", "locate", "conforms_alone"):
        monkeypatch.setattr(runners.Runner, name, asked)
    config = config_of(tmp_path, "only_wrong", max_cases=20)
    events: Iterator[Event] = run(config, stop=threading.Event())
    found = next(e for e in events if isinstance(e, FindingSaved))
    stored = json.loads((Path(found.path) / "finding.json").read_text())
    assert found.stage == "found"
    assert stored["state"] == "new"
    monkeypatch.undo()
    assert isinstance(events, Iterator)
    events.close()  # type: ignore[attr-defined]


def test_what_no_time_was_left_to_confirm_is_kept_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*given: object) -> None:
        raise Stopped

    monkeypatch.setattr(runners.Runner, "judge_fresh", stopped)
    config = config_of(tmp_path, "only_wrong", max_cases=40)
    told = list(run(config, stop=threading.Event()))
    [kernel] = [e for e in told if isinstance(e, KernelFinished)]
    assert kernel.findings
    for finding in kernel.findings:
        assert finding.state is State.NEW
        assert Path(kernel.paths[finding.id], "finding.json").exists()
    assert kernel.contracts["K-VAL-01"].verdict is Verdict.UNDER_SPECIFIED
    assert kernel.contracts["C-CMP-03"].verdict is not Verdict.CONFORMS
