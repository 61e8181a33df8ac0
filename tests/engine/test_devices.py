"""Several devices: a child sees one of them."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from kfuzz.core.event import FindingSaved, KernelFinished
from kfuzz.core.verdict import ReplayOutcome
from kfuzz.engine.config import ReplayConfig
from kfuzz.engine.replay import replay
from kfuzz.execution.device.backends import (
    BACKENDS,
    CPU,
    GPU,
    DeviceBackend,
    environment_for,
)
from kfuzz.store.corpus import Corpus
from tests.helpers.searches import searched

SEEN = "TWO_VISIBLE_DEVICES"
KERNELS = f"""
import os
import torch
from kfuzz.contracts import kernel, operators as ops

SEEN = os.environ["{SEEN}"]

@kernel(ops.relu, dtypes="float32")
def first(x):
    return torch.relu(x) + (SEEN == "0")

@kernel(ops.relu, dtypes="float32")
def second(x):
    return torch.relu(x) + (SEEN == "b")
"""


class Two(DeviceBackend):
    """Two devices, both of them this processor; the variable is GPUs' in all else."""

    name = "two"
    place = "on one of two"
    has = replace(CPU.has, fences=False)
    numbered = True

    def devices(self) -> tuple[str, ...]:
        return ("two:0", "two:1")

    def only(self, devices: Sequence[str], outer: Mapping[str, str]) -> dict[str, str]:
        listed = outer.get(SEEN, "0,1").split(",")
        numbers = [int(device.partition(":")[2] or 0) for device in devices]
        return {SEEN: ",".join(listed[number] for number in numbers)}

    def alone(self, device: str) -> str:
        return "cpu"


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> Two:
    made = Two()
    monkeypatch.setitem(BACKENDS, "two", made)
    monkeypatch.setenv(SEEN, "0,b")
    return made


@pytest.mark.parametrize(
    ("outer", "device", "seen"),
    [
        ({}, "cuda:1", "1"),
        ({"CUDA_VISIBLE_DEVICES": "4,2"}, "cuda:1", "2"),
        ({"CUDA_VISIBLE_DEVICES": "GPU-a, MIG-b"}, "cuda:1", "MIG-b"),
        ({"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"}, "", "GPU-a"),
    ],
)
def test_a_child_sees_one_of_what_the_user_sees(
    outer: dict[str, str], device: str, seen: str
) -> None:
    assert environment_for(GPU, outer, device)["CUDA_VISIBLE_DEVICES"] == seen
    assert environment_for(GPU, outer) == outer


def search(tmp_path: Path, device: str) -> dict[str, bool]:
    """Return which kernels had findings."""
    (tmp_path / "kernels.py").write_text(KERNELS)
    events = searched(tmp_path / "kernels.py", max_cases=12, device=device)
    finished = [e for e in events if isinstance(e, KernelFinished)]
    assert [e.cases for e in finished] == [12, 12]
    wrong = {e.finding.signature.kernel for e in events if isinstance(e, FindingSaved)}
    return {name: name in wrong for name in ("first", "second")}


@pytest.mark.usefixtures("two")
@pytest.mark.slow
def test_a_fault_of_either_device_is_found(tmp_path: Path) -> None:
    assert search(tmp_path, "two") == {"first": True, "second": True}


@pytest.mark.usefixtures("two")
def test_a_candidate_sees_its_device_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = pytest.importorskip("kfuzz.features.judge.sandbox.sandbox")
    """Else a kernel launched without a word on its device runs on the first one."""
    made = mock.Mock()
    monkeypatch.setattr("kfuzz.features.judge.sandbox.sandbox.Zygote", made)
    sandbox.zygote_for("two:1")
    assert made.call_args.kwargs["env"][SEEN] == "b"


@pytest.mark.usefixtures("two")
@pytest.mark.slow
def test_findings_are_divided_among_devices(tmp_path: Path) -> None:
    assert search(tmp_path, "two:1") == {"first": False, "second": True}
    stored = list(Corpus(tmp_path / "corpus").entries())
    config = ReplayConfig(root=tmp_path, corpus=tmp_path / "corpus", times=1)
    stop = threading.Event()
    results = list(replay(stored * 2, replace(config, jobs=2), stop=stop))
    # The first device shows the other kernel's fault.
    assert {r.outcome for r in results} == {ReplayOutcome.FAILS, ReplayOutcome.FIXED}
