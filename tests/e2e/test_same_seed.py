"""The same seed and a number of cases: the same findings, whatever else differs."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.project import HEADER, RIGHT, WRONG, Project

WRONG_TWICE = """
@kernel(ops.sum)
def wrong_twice(x, dim):
    if x.isnan().any():
        x = torch.nan_to_num(x)
    y = torch.sum(x, dim, dtype=torch.float64)
    return (y if x.shape[dim] % 16 != 1 else y + 1).to(x.dtype)
"""


def _files(project: Project) -> dict[str, Any]:
    """Return every entry: recipes byte by byte, the rest without the clock."""
    kept: dict[str, Any] = {}
    for path in sorted(project.corpus.rglob("*")):
        if path.is_dir():
            continue
        name = path.relative_to(project.corpus).as_posix()
        if path.name != "finding.json":
            kept[name] = path.read_bytes()
            continue
        document = json.loads(path.read_text())
        for change in document["history"]:
            del change["when"]
        del document["fingerprint"]
        kept[name] = document
    return kept


@pytest.mark.slow
def test_two_runs_store_the_same(project: Project, tmp_path: Path) -> None:
    project.write("kernels.py", HEADER + RIGHT + WRONG + WRONG_TWICE)
    other = Project(Path(shutil.copytree(project.folder, tmp_path / "other")))
    runs = [
        made.run("kernels.py", cases=80, environment={"PYTHONHASHSEED": hash_seed})
        for made, hash_seed in ((project, "1"), (other, "2"))
    ]
    one, two = ([k["findings"] for k in run.document["kernels"]] for run in runs)
    assert one == two
    assert [len(findings) >= 1 for findings in one] == [False, True, True]
    assert len(one[2]) == 2
    assert _files(project) == _files(other)
