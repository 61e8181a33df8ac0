"""`kfuzz run --also-compile`, from the command line."""

import pytest

from tests.e2e.project import Project, strict
from tests.evaluation.test_building import TILED


@pytest.mark.slow
def test_a_run_finds_it_and_a_replay_shows_it_again(project: Project) -> None:
    project.write("kernels.py", TILED)
    done = project.kfuzz(
        "run", "kernels.py::large_tiles", "--also-compile", "sm_90,gfx942",
        "--contracts", "K-BLD-01", "--max-cases", "6", "--seed", "1",
        "--device", "interpret", "--format", "json",
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    [kernel] = strict(done.stdout)["kernels"]
    [finding] = kernel["findings"]
    assert finding["contract"] == "K-BLD-01"
    assert "gfx942" in finding["bucket"]
    assert finding["state"] == "confirmed"
    again = project.kfuzz("replay", finding["id"])
    assert again.returncode == 1
    assert "does not build for gfx942" in again.stdout
