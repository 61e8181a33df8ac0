"""Fixtures: an empty project, and one whose corpus holds a finding."""

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.project import HEADER, RIGHT, WRONG, Project


@pytest.fixture(autouse=True)
def _interruptible() -> Iterator[None]:
    """Have children end on Ctrl-C, also where the shell had this process ignore it.

    Scripts do so of what they begin in the background, and children inherit it.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    folder = tmp_path / "project"
    folder.mkdir()
    return Project(folder)


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with one wrong kernel, and its finding; not to be written to."""
    made = Project(tmp_path_factory.mktemp("searched"))
    made.write("kernels.py", HEADER + RIGHT + WRONG)
    run = made.run("kernels.py::wrong", "--max-findings", "1")
    assert run.code == 1, run.err
    return made.folder


@pytest.fixture
def found(searched: Path, tmp_path: Path) -> Project:
    """A copy of `searched`."""
    folder = tmp_path / "project"
    shutil.copytree(searched, folder)
    return Project(folder)
