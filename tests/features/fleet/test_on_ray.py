"""`--on ray`: the whole command line, on a cluster of this machine's own."""

import os
import signal
import socket
import subprocess
import sys
import time
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


@pytest.mark.slow
def test_a_cluster_that_asks_for_a_token_is_reached_by_rays_client(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray.util.client")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0123456789" * 7)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    port, client = 6391, 20001  # Ray's own workers take ports from 10002 to 19999
    begin = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"]
    begin += [f"--port={port}", f"--ray-client-server-port={client}", "--num-cpus=2"]
    begin += ["--include-dashboard=false", "--object-store-memory=80000000"]
    shown = {**os.environ, "RAY_AUTH_MODE": "token", "PYTHONPATH": str(ROOT)}
    head = subprocess.Popen(begin, env=shown, stdout=subprocess.DEVNULL)
    until = time.monotonic() + 120
    while not _listens(client) and time.monotonic() < until:
        time.sleep(0.5)
    try:
        words = ["run", "kernels.py", "--device", "cpu", "--max-cases", "40"]
        words += ["--on", f"ray://127.0.0.1:{client}", "--corpus", "there"]
        with kfuzz(project, *words) as there:
            out, _ = there.communicate(timeout=300)
        assert there.returncode == 1, out
        found = buckets(project / "there")
        assert {b.split("-")[0] for b in found} == {"wrong", "wrong_too"}
        assert all(out.count(f"FAILED {b} ") == 1 for b in found), out
        monkeypatch.setenv("RAY_AUTH_TOKEN", "no such token" * 4)
        with kfuzz(project, *words) as refused:
            out, _ = refused.communicate(timeout=120)
        assert refused.returncode == ExitCode.USAGE
        assert "set RAY_AUTH_TOKEN to it" in out
    finally:
        head.terminate()
        head.wait(60)


def _listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.slow
def test_nothing_outlives_a_driver_that_is_killed(project: Path) -> None:
    pytest.importorskip("ray")
    words = ["run", "kernels.py", "--device", "cpu", "--max-time", "10m", "--on", "ray"]
    before = _workers()
    with kfuzz(project, *words, "--corpus", "there") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("FAIL "):
                break
        assert _workers() - before
        process.send_signal(signal.SIGKILL)
        process.wait()
        until = time.monotonic() + 30  # half of what Ray's agents take by themselves
        while (left := _workers() - before) and time.monotonic() < until:
            time.sleep(0.5)
    assert not left
    assert buckets(project / "there")


def _workers() -> set[str]:
    """Return the processes of Ray and of units that run, by number."""
    marks = (b"gcs_server", b"raylet", b"ray::", b"kfuzz.features.fleet.process")
    found = set()
    for entry in Path("/proc").iterdir():
        try:
            line = entry.joinpath("cmdline").read_bytes()
        except OSError:
            continue
        if entry.name.isdigit() and any(mark in line for mark in marks):
            found.add(entry.name)
    return found
