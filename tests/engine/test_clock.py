"""Start-up is told apart from the run, whose time limit does not count it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kfuzz.core.event import KernelFinished, Notice, RunFinished
from kfuzz.engine.search import schedule as clock
from kfuzz.engine.search.schedule import RunClock
from tests.helpers.searches import searched

Pass = Callable[[float], None]


@pytest.fixture
def wait(monkeypatch: pytest.MonkeyPatch) -> Pass:
    """Return what lets time pass."""
    now = 100.0

    def passed(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(clock.time, "monotonic", lambda: now)
    return passed


def test_the_limit_counts_from_the_first_case_that_can_be_judged(wait: Pass) -> None:
    made = RunClock(60.0, jobs=1, started=100.0)
    wait(7.0)
    assert made.startup_s == 7.0
    assert made.deadline == 100.0 + 7.0 + 60.0
    with made.opening():
        pass
    wait(5.0)
    with made.opening():
        pass
    assert (made.startup_s, made.elapsed_s) == (7.0, 12.0)
    assert made.deadline == 100.0 + 7.0 + 60.0


def test_what_a_later_kernel_takes_to_open_is_no_part_of_the_run(wait: Pass) -> None:
    made = RunClock(60.0, jobs=1, started=100.0)
    with made.opening():
        wait(3.0)
    wait(10.0)
    with made.opening():
        wait(4.0)
    assert (made.startup_s, made.elapsed_s) == (7.0, 17.0)
    assert made.deadline == 100.0 + 7.0 + 60.0


IMPORTS = """\
import time
from pathlib import Path

import torch
from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops

mark = Path(__file__).with_suffix(".imported")
if mark.exists():
    time.sleep({seconds})
mark.touch()


@kernel(ops.relu)
def right(x):
    return torch.relu(x)
"""


def ended(
    folder: Path, seconds: float, limit: float
) -> tuple[list[str], KernelFinished, RunFinished]:
    """Return notices and ends of a run whose children take a while to import."""
    path = folder / "kernels.py"
    path.write_text(IMPORTS.format(seconds=seconds))
    told = searched(path, max_time=limit)
    notices = [e.message for e in told if isinstance(e, Notice)]
    kernel = next(e for e in told if isinstance(e, KernelFinished))
    return notices, kernel, next(e for e in told if isinstance(e, RunFinished))


def test_an_import_that_does_not_end_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "OPEN_SECONDS", 1.0)
    notices, kernel, _ = ended(tmp_path, 1e6, 1.0)
    assert kernel.cases == 0
    assert any("it was not ready when the run ended" in text for text in notices)
