"""The recipes for Slurm and Kubernetes, as far as they can be tried here."""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from kfuzz.cli.settings import PROFILES, SETTINGS
from kfuzz.store.corpus import Corpus, Stored
from tests.e2e.project import HEADER, RIGHT, WRONG

ROOT = Path(__file__).parents[3]
RECIPES = ROOT / "kfuzz" / "features" / "fleet" / "recipes"
SLURM = RECIPES / "slurm.sh"


def documents() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(RECIPES.joinpath("kuberay.yaml").read_text()))


def job() -> dict[str, Any]:
    (found,) = [d for d in documents() if d["kind"] == "RayJob"]
    return found


def test_the_volume_of_the_corpus_is_one_that_the_recipe_makes() -> None:
    head = job()["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    claimed = {v["persistentVolumeClaim"]["claimName"] for v in head["volumes"]}
    claims = [d for d in documents() if d["kind"] == "PersistentVolumeClaim"]
    assert claimed == {claim["metadata"]["name"] for claim in claims}
    (mount,) = head["containers"][0]["volumeMounts"]
    assert f"--corpus {mount['mountPath']} " in job()["spec"]["entrypoint"]


def test_all_machines_of_the_job_have_one_image_and_the_pinned_ray() -> None:
    cluster = job()["spec"]["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    images = {c["image"] for g in groups for c in g["template"]["spec"]["containers"]}
    assert len(images) == 1
    pins = ROOT.joinpath("constraints.txt").read_text().splitlines()
    assert f"ray=={cluster['rayVersion']}" in pins


def test_the_job_runs_options_that_there_are() -> None:
    words = shlex.split(shlex.split(job()["spec"]["entrypoint"])[2])
    words = words[words.index("kfuzz") + 2 :]
    options = [w.removeprefix("--") for w in words if w.startswith("--")]
    assert options
    assert set(options) <= set(SETTINGS)
    assert words[words.index("--profile") + 1] in PROFILES


def test_the_script_for_slurm_is_one_of_bash() -> None:
    done = subprocess.run(["bash", "-n", SLURM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [1, 2])
def test_the_script_for_slurm_runs_where_slurm_is_made_up(
    nodes: int, tmp_path: Path
) -> None:
    pytest.importorskip("ray")
    tools = tmp_path / "bin"
    tools.mkdir()
    _tool(tools / "scontrol", "echo 127.0.0.1")
    # Runs here what would run on each node.
    _tool(tools / "srun", 'while [[ $1 == --* ]]; do shift; done; exec "$@"')
    _tool(tools / "kfuzz", f'exec {sys.executable} -P -m kfuzz "$@"')
    _tool(tools / "ray", f'exec {sys.executable} -m ray.scripts.scripts "$@"')
    project = tmp_path / "project"
    project.mkdir()
    project.joinpath("kernels.py").write_text(HEADER + RIGHT + WRONG)
    project.joinpath("pyproject.toml").touch()
    environment = {
        **os.environ,
        "PATH": f"{tools}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "SLURM_SUBMIT_DIR": str(project),
        "SLURM_JOB_NODELIST": "n[1-2]",
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_JOB_NUM_NODES": str(nodes),
        "SLURM_CPUS_PER_TASK": "1",
    }
    asked = ["kernels.py", "--device", "cpu", "--max-cases", "30", "--seed", "7"]
    with subprocess.Popen(
        ["bash", SLURM, *asked], env=environment, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            out, err = process.communicate(timeout=400)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    logs = "\n".join(p.read_text() for p in sorted(project.glob("ray-*.log")))
    assert process.returncode == 1, err + logs
    assert "FAIL wrong" in out
    entries = Corpus(project / "corpus").entries()
    assert [e.finding.signature.kernel for e in entries if isinstance(e, Stored)]


def _tool(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)
