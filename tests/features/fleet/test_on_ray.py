"""`--on ray`: the whole command line, on a cluster of this machine's own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kfuzz.app import main
from kfuzz.cli.streams import ExitCode
from kfuzz.store.corpus import Corpus, Stored
from tests.e2e.project import HEADER, RIGHT, WRONG

ROOT = Path(__file__).parents[3]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tmp_path.joinpath("pyproject.toml").touch()
    second = WRONG.replace("def wrong", "def wrong_too")
    tmp_path.joinpath("kernels.py").write_text(HEADER + RIGHT + WRONG + second)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("on", ["ray", "ray://head:10001"])
def test_without_the_extra_one_line_names_it(
    on: str,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(["run", "kernels.py", "--on", on, "-q"]) == ExitCode.USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert "needs Ray" in line
    assert "pip install 'kfuzz[ray]'" in line


@pytest.mark.parametrize("on", ["slurm", "ray://", "ray://head", "rays://head:1"])
def test_what_is_no_cluster_is_said(
    on: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "kernels.py", "--on", on]) == ExitCode.USAGE
    assert "write ray or ray://host:port" in capsys.readouterr().err


def test_units_need_processes(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", "kernels.py", "--on", "ray", "--isolate", "none", "-q"]
    assert main(words) == ExitCode.USAGE
    assert "--on ray --isolate none" in capsys.readouterr().err


def kfuzz(project: Path, *words: str) -> "subprocess.Popen[str]":
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    environment.pop("RAY_ADDRESS", None)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "kfuzz", *words],
        cwd=project,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def buckets(corpus: Path) -> dict[str, str]:
    entries = Corpus(corpus).entries()
    return {e.finding.id: e.finding.bucket for e in entries if isinstance(e, Stored)}


@pytest.mark.slow
def test_a_run_gives_the_buckets_of_one_without_ray(project: Path) -> None:
    pytest.importorskip("ray")
    words = ["run", "kernels.py", "--device", "cpu", "--max-cases", "40", "--seed", "7"]
    with kfuzz(project, *words, "--corpus", "here") as here:
        alone, _ = here.communicate()
    with kfuzz(project, *words, "--corpus", "there", "--on", "ray") as there:
        out, _ = there.communicate()
    assert (here.returncode, there.returncode) == (1, 1), out
    found = buckets(project / "there")
    assert found == buckets(project / "here") != {}
    tallies = [line for line in out.splitlines() if "decided cases failed" in line]
    assert tallies
    assert all(line in alone for line in tallies)
