"""A worker of a fleet: what its units tell, and that they end with it."""

import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kfuzz.core.budget import Budget
from kfuzz.core.errors import BindingError
from kfuzz.core.event import FindingSaved, KernelFinished, RunFinished
from kfuzz.engine.config import Chosen, RunConfig
from kfuzz.fleet.work import (
    Done,
    Failed,
    Happened,
    Item,
    Search,
    Survey,
    Surveyed,
    Told,
    Tried,
    Unit,
    Work,
)
from kfuzz.fleet.worker import Worker
from tests.e2e.project import HEADER, RIGHT, WRONG

ROOT = Path(__file__).parents[2]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    tmp_path.joinpath("kernels.py").write_text(HEADER + RIGHT + WRONG)
    tmp_path.joinpath("broken.py").write_text(HEADER + "raise RuntimeError('no')\n")
    return tmp_path


def told(worker: Worker, work: Work) -> list[Told]:
    """Return all that a unit tells; each message is taken, and taken again."""
    worker.start(Unit(7, work))
    heard, found = 0, []
    while True:
        messages = worker.take(heard, 5.0)
        assert messages == worker.take(heard, 0.0)[: len(messages)]
        for number, message in messages:
            heard = number
            found.append(pickle.loads(message))
        if found and isinstance(found[-1], Done | Failed):
            return found


def search(project: Path, *, device: str, target: str = "kernels.py") -> Search:
    budget = Budget(None, max_cases=30)
    config = RunConfig(
        (target,), project, project / "corpus", seed=7, device=device,
        budget=budget, chosen=Chosen("wrong"),
    )  # fmt: skip
    return Search(config)


@pytest.mark.slow
def test_the_kernels_of_targets_are_listed(project: Path) -> None:
    config = search(project, device="cpu").config
    made = told(Worker(str(project), "cpu", gpu=False), Survey(config))
    item = made[0]
    assert isinstance(item, Item)
    assert isinstance(item.value, Surveyed)
    assert [p.target for p in item.value.places] == [
        "kernels.py::right",
        "kernels.py::wrong",
    ]
    assert item.value.backend == "cpu"


@pytest.mark.slow
def test_an_error_of_a_target_arrives_as_it_is(project: Path) -> None:
    work = search(project, device="cpu", target="broken.py")
    (failed,) = told(Worker(str(project), "cpu", gpu=False), Survey(work.config))
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, BindingError)
    assert "broken.py" in str(failed.error)


@pytest.mark.slow
def test_a_unit_searches_its_kernel_and_leaves_the_project_alone(
    project: Path,
) -> None:
    made = told(Worker(str(project), "cpu", gpu=False), search(project, device="cpu"))
    _check(made)
    assert not project.joinpath("corpus").exists()
    assert not any(isinstance(m, Tried) for m in made)


@pytest.mark.gpu
def test_canaries_are_tried_on_a_gpu_before_a_unit_and_after_a_finding(
    project: Path,
) -> None:
    worker = Worker(str(project), "cuda", gpu=True)
    assert "GPU-" in worker.about().device or worker.about().device
    made = told(worker, search(project, device="cuda"))
    _check(made)
    tried = [m for m in made if isinstance(m, Tried)]
    assert len(tried) >= 3
    assert not any(t.ailment for t in tried)


@pytest.mark.slow
def test_a_unit_ends_with_its_worker(project: Path) -> None:
    code = (
        "import pickle, sys\n"
        "from tests.fleet.test_worker import *\n"
        "worker = Worker(sys.argv[1], 'cpu', gpu=False)\n"
        "work = search(Path(sys.argv[1]), device='cpu')\n"
        "worker.start(Unit(1, work))\n"
        "worker.take(0, 100.0)\n"
        "print('begun', flush=True)\n"
        "time.sleep(1000)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(project)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        (unit,) = _children(process.pid)
        process.send_signal(signal.SIGKILL)
        process.wait()
    until = time.monotonic() + 60
    while Path(f"/proc/{unit}").exists() and time.monotonic() < until:
        time.sleep(0.1)
    assert not Path(f"/proc/{unit}").exists()


def _check(made: list[Told]) -> None:
    values = [m.value for m in made if isinstance(m, Item)]
    assert all(m.number == 7 for m in made if isinstance(m, Item))
    events = [v.event for v in values if isinstance(v, Happened)]
    saved = [v for v in values if isinstance(v.event, FindingSaved)]
    assert [v.event.stage for v in saved] == ["found", "done"]
    assert all(v.finding == v.event.finding for v in saved)
    (finished,) = [e for e in events if isinstance(e, KernelFinished)]
    assert finished.cases == 30
    assert isinstance(events[-1], RunFinished)
    assert isinstance(made[-1], Done)


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task").iterdir()
    found = [t.joinpath("children").read_text().split() for t in text]
    return [int(child) for children in found for child in children]
