"""The recipes for Slurm and Kubernetes, as far as they can be tried here."""

import shlex
import subprocess
from pathlib import Path
from typing import Any

import yaml

from kfuzz.cli.settings import PROFILES, SETTINGS

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
