"""Stored findings run again: fixed, failing, flaky, or not judged."""

import pytest

from tests.e2e.project import HEADER, MENDED, WRONG, Project, error, strict

# The first process that calls it fails, the others do not.
FLAKY = """
import os
from pathlib import Path

@kernel(ops.relu)
def wrong(x):
    y = torch.relu(x).contiguous()
    try:
        Path("caller").open("x").write(str(os.getpid()))
    except FileExistsError:
        pass
    if Path("caller").read_text() == str(os.getpid()):
        y.view(-1)[-1] = 0
    return y
"""
ANOTHER_WAY = """
@kernel(ops.relu)
def wrong(x):
    return torch.relu(x).double()
"""


def _id(project: Project) -> str:
    [document] = project.findings()
    return str(document["id"])


def _replay(project: Project, *words: str) -> tuple[int, list[dict[str, object]]]:
    done = project.kfuzz("replay", *words, "--format", "json")
    results: list[dict[str, object]] = strict(done.stdout)["results"]
    return done.returncode, results


def test_it_fails_until_the_kernel_is_mended(found: Project) -> None:
    code, [result] = _replay(found)
    assert (code, result["outcome"]) == (1, "FAILS")
    assert (result["failures"], result["runs"]) == (3, 3)
    assert result["id"] == _id(found)
    found.write("kernels.py", HEADER + MENDED)
    code, [result] = _replay(found, _id(found)[:12], "--times", "2")
    assert (code, result["outcome"]) == (0, "FIXED")
    assert (result["failures"], result["runs"]) == (0, 2)
    assert found.wait_until_alone() == []


def test_another_failure_is_not_the_stored_one(found: Project) -> None:
    found.write("kernels.py", HEADER + ANOTHER_WAY)
    code, [result] = _replay(found)
    assert (code, result["outcome"]) == (1, "FLAKY")
    assert "K-MET-01" in str(result["message"])


def test_a_kernel_that_fails_now_and_then(found: Project) -> None:
    found.write("kernels.py", HEADER + FLAKY)
    code, [result] = _replay(found)
    assert (code, result["outcome"]) == (1, "FLAKY")
    assert (result["failures"], result["runs"]) == (1, 3)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (None, "no such file"),
        ("x = 1\n", "no kernel 'wrong'"),
        ("raise ValueError('unfinished')\n", "unfinished"),
    ],
)
def test_what_cannot_be_run_is_an_error(
    text: str | None, part: str, found: Project
) -> None:
    if text is None:
        (found.folder / "kernels.py").unlink()
    else:
        found.write("kernels.py", text)
    code, [result] = _replay(found)
    assert (code, result["outcome"]) == (3, "ERROR")
    assert part in str(result["message"])


def test_a_moved_kernel_is_named(found: Project) -> None:
    (found.folder / "kernels.py").rename(found.folder / "moved.py")
    code, [result] = _replay(found, "--target", "moved.py::wrong")
    assert (code, result["outcome"]) == (1, "FAILS")


def test_nothing_to_replay(project: Project) -> None:
    assert project.kfuzz("replay").returncode == 4


def test_a_finding_nobody_has(found: Project) -> None:
    done = found.kfuzz("replay", "wrong-C-CMP-03-00000000")
    assert done.returncode == 2
    assert _id(found) in error(done)


def test_shrinking_again_keeps_the_minimum(found: Project) -> None:
    before = found.findings()
    done = found.kfuzz("shrink", _id(found))
    assert done.returncode == 0
    after = found.findings()
    assert [f["case"] for f in before] == [f["case"] for f in after]
    assert [f["id"] for f in before] == [f["id"] for f in after]


def test_shrinking_what_passes_now_loses_nothing(found: Project) -> None:
    before = found.findings()
    found.write("kernels.py", HEADER + MENDED)
    done = found.kfuzz("shrink", _id(found))
    assert done.returncode == 0
    assert "does not fail any more" in done.stdout
    assert found.findings() == before


def test_the_first_form_is_kept_beside_the_minimum(found: Project) -> None:
    [document] = found.findings()
    folder = next(found.corpus.glob("*/*"))
    assert document["input_elements"] == 3
    assert '"fill"' in (folder / "first.json").read_text()
    assert (folder / "inputs.safetensors").is_file()
    assert WRONG in (found.folder / "kernels.py").read_text()
