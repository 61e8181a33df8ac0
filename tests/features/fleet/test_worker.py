"""A worker of a fleet: what its units tell, and that they end with it."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kfuzz.core.budget import Budget
from kfuzz.core.errors import BindingError
from kfuzz.core.event import FindingSaved, KernelFinished, RunFinished
from kfuzz.engine.config import RunConfig
from kfuzz.features.fleet.worker import (
    Alive,
    Begun,
    Rejected,
    Search,
    Survey,
    Surveyed,
    Work,
    Worker,
    versions,
)
from tests.e2e.project import HEADER, RIGHT, WRONG

ROOT = Path(__file__).parents[3]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    tmp_path.joinpath("kernels.py").write_text(HEADER + RIGHT + WRONG)
    tmp_path.joinpath("broken.py").write_text(HEADER + "raise RuntimeError('no')\n")
    return tmp_path


def reported(worker: Worker, work: Work) -> tuple[list[Any], Exception | None]:
    """Return what a unit reports, and what is wrong with what was asked."""
    found: list[Any] = []

    def put(items: list[Any]) -> bool:
        found.extend(item for item in items if not isinstance(item, Alive))
        return False

    error = worker.do(work, put)
    assert found.pop(0) == Begun()
    return found, error


def search(project: Path, *, device: str, target: str = "kernels.py") -> Search:
    budget = Budget(None, max_cases=30)
    config = RunConfig(
        (target,), project, project / "corpus", seed=7, device=device,
        budget=budget, chosen=("wrong", ""),
    )  # fmt: skip
    return Search(config)


@pytest.mark.slow
def test_the_kernels_of_targets_are_listed(project: Path) -> None:
    config = search(project, device="cpu").config
    (item,), _ = reported(Worker(str(project)), Survey(config))
    assert isinstance(item, Surveyed)
    assert [p.target for p in item.places] == [
        "kernels.py::right",
        "kernels.py::wrong",
    ]
    assert item.backend == "cpu"


@pytest.mark.slow
def test_an_error_of_a_target_arrives_as_it_is(project: Path) -> None:
    work = search(project, device="cpu", target="broken.py")
    worker = Worker(str(project))
    _, error = reported(worker, Survey(work.config))
    assert isinstance(error, BindingError)
    assert "broken.py" in str(error)


@pytest.mark.slow
def test_a_unit_searches_its_kernel_and_leaves_the_project_alone(
    project: Path,
) -> None:
    worker = Worker(str(project))
    _check(reported(worker, search(project, device="cpu"))[0])
    assert not project.joinpath("corpus").exists()


def test_a_worker_with_other_versions_says_which(project: Path) -> None:
    worker = Worker(str(project), {**versions(), "torch": "2.11.0"})
    asked = iter((False, False, True))  # it keeps its place until the run ends
    found: list[Any] = []

    def put(items: list[Any]) -> bool:
        found.extend(items)
        return next(asked)

    worker.do(search(project, device="cpu"), put)
    _, rejected = found
    assert isinstance(rejected, Rejected)
    assert f"torch {versions()['torch']} (here 2.11.0)" in rejected.why


@pytest.mark.slow
def test_a_unit_ends_with_its_worker(project: Path) -> None:
    code = (
        "import sys\n"
        "from tests.features.fleet.test_worker import *\n"
        "worker = Worker(sys.argv[1])\n"
        "work = search(Path(sys.argv[1]), device='cpu')\n"
        "def put(items):\n"
        "    if items and not isinstance(items[0], (Begun, Alive)):\n"
        "        print('begun', flush=True)\n"
        "        time.sleep(1000)\n"
        "worker.do(work, put)\n"
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


def _check(made: list[Any]) -> None:
    events = [event for event, _ in made]
    saved = [v for v in made if isinstance(v[0], FindingSaved)]
    assert [event.stage for event, _ in saved] == ["found", "done"]
    assert all(finding == event.finding for event, finding in saved)
    (finished,) = [e for e in events if isinstance(e, KernelFinished)]
    assert finished.cases == 30
    assert isinstance(events[-1], RunFinished)


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task").iterdir()
    found = [t.joinpath("children").read_text().split() for t in text]
    return [int(child) for children in found for child in children]
