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
from kfuzz.engine.config import RunConfig
from kfuzz.features.fleet.worker import (
    About,
    Report,
    Search,
    Survey,
    Surveyed,
    Work,
    Worker,
)
from tests.e2e.project import HEADER, RIGHT, WRONG

ROOT = Path(__file__).parents[3]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    tmp_path.joinpath("kernels.py").write_text(HEADER + RIGHT + WRONG)
    tmp_path.joinpath("broken.py").write_text(HEADER + "raise RuntimeError('no')\n")
    return tmp_path


def reported(worker: Worker, work: Work) -> list[Report]:
    """Return all that a unit reports; each message is taken, and taken again."""
    worker.start(7, work)
    heard, found = 0, list[Report]()
    while True:
        messages = worker.take(heard, 5.0)
        assert messages == worker.take(heard, 0.0)[: len(messages)]
        for number, message in messages:
            heard = number
            found.append(Report("", *pickle.loads(message)))
        if found and found[-1].about in (About.DONE, About.FAILED):
            return found


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
    made = reported(Worker(str(project), "cpu", gpu=False), Survey(config))
    item = made[0]
    assert isinstance(item.value, Surveyed)
    assert [p.target for p in item.value.places] == [
        "kernels.py::right",
        "kernels.py::wrong",
    ]
    assert item.value.backend == "cpu"


@pytest.mark.slow
def test_an_error_of_a_target_arrives_as_it_is(project: Path) -> None:
    work = search(project, device="cpu", target="broken.py")
    (failed,) = reported(Worker(str(project), "cpu", gpu=False), Survey(work.config))
    assert isinstance(failed.value, BindingError)
    assert "broken.py" in str(failed.value)


@pytest.mark.slow
def test_a_unit_searches_its_kernel_and_leaves_the_project_alone(
    project: Path,
) -> None:
    made = reported(
        Worker(str(project), "cpu", gpu=False), search(project, device="cpu")
    )
    _check(made)
    assert not project.joinpath("corpus").exists()


@pytest.mark.gpu
def test_a_sound_gpu_passes_its_canaries(
    project: Path,
) -> None:
    worker = Worker(str(project), "cuda", gpu=True)
    assert "GPU-" in worker.about()[1]
    _check(reported(worker, search(project, device="cuda")))


@pytest.mark.slow
def test_a_unit_ends_with_its_worker(project: Path) -> None:
    code = (
        "import pickle, sys\n"
        "from tests.features.fleet.test_worker import *\n"
        "worker = Worker(sys.argv[1], 'cpu', gpu=False)\n"
        "work = search(Path(sys.argv[1]), device='cpu')\n"
        "worker.start(1, work)\n"
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


def _check(made: list[Report]) -> None:
    values = [m.value for m in made if m.about is About.ITEM]
    assert all(m.unit == 7 for m in made)
    events = [event for event, _ in values]
    saved = [v for v in values if isinstance(v[0], FindingSaved)]
    assert [event.stage for event, _ in saved] == ["found", "done"]
    assert all(finding == event.finding for event, finding in saved)
    (finished,) = [e for e in events if isinstance(e, KernelFinished)]
    assert finished.cases == 30
    assert isinstance(events[-1], RunFinished)
    assert made[-1].about is About.DONE


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task").iterdir()
    found = [t.joinpath("children").read_text().split() for t in text]
    return [int(child) for children in found for child in children]
