"""A run under a time limit plans by what cases cost, and tells what it tries late."""

import threading
from pathlib import Path

import pytest

from kfuzz.core.budget import Budget
from kfuzz.core.event import KernelFinished, Notice
from kfuzz.engine.config import RunConfig
from kfuzz.engine.search.campaign import run

SLOW = """
import time

import torch

import kfuzz
from kfuzz.contracts import operators as ops


@kfuzz.kernel(ops.relu)
def slow_relu(x):
    if x.numel() > 1000:
        time.sleep(0.7)
    return torch.relu(x)
"""


COMPILES = """
import time

import torch

import kfuzz
from kfuzz.contracts import operators as ops
from kfuzz.execution.calls.compiling import at_work

seen = set()


@kfuzz.kernel(ops.relu)
def compiles_for_long(x):
    if x.shape not in seen:
        with at_work():
            time.sleep(60 if x.numel() > 8000 else 0.01)
        seen.add(x.shape)
    return torch.relu(x)
"""


def searched(tmp_path: Path, source: str, budget: Budget) -> tuple[str, KernelFinished]:
    """Return the notices of a run of a file with one kernel, and how that ended."""
    (tmp_path / "kernels.py").write_text(source, encoding="utf-8")
    config = RunConfig(
        targets=(str(tmp_path / "kernels.py"),),
        root=tmp_path,
        corpus=tmp_path / "corpus",
        seed=1,
        budget=budget,
        device="cpu",
        contracts=("K-LIV-*", "K-VAL-*"),
    )
    told, finished = "", []
    for event in run(config, stop=threading.Event()):
        if isinstance(event, Notice):
            told += event.message
        elif isinstance(event, KernelFinished):
            finished.append(event)
    [kernel] = finished
    assert not kernel.findings
    return told, kernel


@pytest.mark.slow
def test_a_compilation_that_takes_a_minute_does_not_hold_up_the_search(
    tmp_path: Path,
) -> None:
    told, kernel = searched(tmp_path, COMPILES, Budget(max_time=10.0))
    assert kernel.cases > 50
    assert "are tried late" in told


@pytest.mark.slow
def test_what_was_compiled_for_one_case_serves_a_batch(tmp_path: Path) -> None:
    source = COMPILES.replace("else 0.01", "else 0.4")
    _, kernel = searched(tmp_path, source, Budget(max_time=10.0))
    assert kernel.cases > 25 * kernel.tried.structures


@pytest.mark.slow
@pytest.mark.parametrize("limited", [True, False])
def test_what_takes_long_is_tried_late_where_time_is_limited(
    tmp_path: Path, limited: bool
) -> None:
    budget = Budget(max_time=7.0) if limited else Budget(None, max_cases=8)
    told, kernel = searched(tmp_path, SLOW, budget)
    assert ("are tried late: one takes about" in told) is limited
    assert kernel.cases > 10 if limited else kernel.cases == 8
