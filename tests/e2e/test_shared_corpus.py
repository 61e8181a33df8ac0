"""Two searches that keep their findings in one folder at the same time."""

import json
from pathlib import Path

import pytest

from tests.e2e.project import HEADER, PATIENCE, Project, strict

SIZES = (2, 3, 5)
MANY = "".join(
    f"""
@kernel(ops.relu)
def wrong_at_{n}(x):
    return torch.relu(x) + (x.numel() % {n} == 1)
"""
    for n in SIZES
)


def _told(path: Path) -> set[str]:
    """Return the ids of the findings that a run told as they are in the end."""
    lines = map(json.loads, path.read_text().splitlines())
    return {
        e["id"] for e in lines if e["event"] == "finding_saved" and e["stage"] == "done"
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "seeds", [(1, 1), pytest.param((1, 2), marks=pytest.mark.slow)]
)
def test_two_runs_at_once_lose_nothing_of_one_another(
    seeds: tuple[int, int], project: Project
) -> None:
    project.write("kernels.py", HEADER + MANY)
    words = "-m kfuzz run kernels.py --device cpu --max-cases 40 --jobs 2 --format json"
    runs = [
        project.start(
            [*words.split(), "--seed", str(seed), "--report", f"jsonl={number}.jsonl"]
        )
        for number, seed in enumerate(seeds)
    ]
    for run in runs:
        out, err = run.communicate(timeout=PATIENCE)
        assert run.returncode == 1, err
        assert all(k["findings"] for k in strict(out)["kernels"])
    told = [_told(project.folder / f"{number}.jsonl") for number in range(2)]
    listed = strict(project.kfuzz("corpus", "list", "--format", "json").stdout)
    assert listed["problems"] == []
    stored = {finding["id"] for finding in listed["findings"]}
    assert told[0] | told[1] == stored
    checked = project.kfuzz("corpus", "check")
    assert checked.returncode == 0, checked.stdout
