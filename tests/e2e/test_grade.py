"""`kfuzz grade` on a project's kernels, from the command line to the files."""

import json

import pytest

from tests.e2e.project import HEADER, RIGHT, WRONG, Project

pytest.importorskip("kfuzz.features")


@pytest.mark.slow
def test_a_grade_states_what_each_kernel_is_worth(project: Project) -> None:
    project.write("kernels.py", HEADER + RIGHT + WRONG)
    words = "grade kernels.py --device cpu --max-cases 40 --seed 7 --format json"
    words += " --jobs 2"
    run = project.kfuzz(*words.split())
    assert run.returncode == 1, run.stderr
    (project.folder / "made.json").write_text(run.stdout)
    document = json.loads(run.stdout)
    made = document["statement"]
    assert (made["seed"], made["max_cases"], made["device"]) == (7, 40, "cpu")
    assert "guard zones" in made["instruments"]
    right, wrong = made["kernels"]
    assert right["source"] == wrong["source"]
    assert right["source"].startswith("sha256:")
    assert right["contracts"]["K-VAL-01"]["verdict"] == "conforms"
    assert right["contracts"]["K-VAL-01"]["calibration"] == "sound"
    assert "C-EXC-02" not in right["contracts"]
    (fault,) = {f["contract"] for f in wrong["findings"]}
    assert wrong["contracts"][fault]["verdict"] == "violates"

    words = "grade --statement made.json --format markdown"
    again = project.kfuzz(*words.split())
    assert again.returncode == 1
    assert again.stdout.startswith("# Conformance statement: 2 kernels on cpu\n")
    assert "if every contract were calibrated" not in again.stdout

    # Calibrated afterwards: the same verdicts, resting on what was found sound.
    sound = {"identifier": "K-VAL-01/relu", "state": "sound"}
    calibration = {"seed": 0, "cases": 1, "conforming_cases": 1, "device": "cpu"}
    calibration |= {"fingerprint": made["fingerprint"], "outcomes": []}
    document = {"format": 1, "calibration": {**calibration, "contracts": [sound]}}
    (project.folder / "rests.json").write_text(json.dumps(document))
    words = "grade --statement made.json --calibration rests.json --format json"
    rests = json.loads(project.kfuzz(*words.split()).stdout)["statement"]
    graded = rests["kernels"][0]["contracts"]
    assert graded["K-VAL-01"] == {
        **made["kernels"][0]["contracts"]["K-VAL-01"], "calibration": "sound"
    }  # fmt: skip
    assert graded["K-MET-01"]["calibration"] == "uncalibrated"
    assert rests["calibration"]["sound"] == 1
