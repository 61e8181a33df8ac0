"""Stored findings run again: fixed, failing, flaky, or not judged."""

import shutil
from importlib.metadata import entry_points

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


@pytest.mark.slow
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


@pytest.mark.slow
def test_another_failure_is_not_the_stored_one(found: Project) -> None:
    found.write("kernels.py", HEADER + ANOTHER_WAY)
    code, [result] = _replay(found)
    assert (code, result["outcome"]) == (1, "FLAKY")
    assert "K-MET-01" in str(result["message"])


@pytest.mark.slow
def test_a_kernel_that_fails_now_and_then(found: Project) -> None:
    found.write("kernels.py", HEADER + FLAKY)
    code, [result] = _replay(found)
    assert (code, result["outcome"]) == (1, "FLAKY")
    assert (result["failures"], result["runs"]) == (1, 3)


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_moved_kernel_is_named(found: Project) -> None:
    (found.folder / "kernels.py").rename(found.folder / "moved.py")
    code, [result] = _replay(found, "--target", "moved.py::wrong")
    assert (code, result["outcome"]) == (1, "FAILS")


@pytest.mark.slow
def test_a_known_finding_is_told_and_fails_nothing(found: Project) -> None:
    mark = ("corpus", "mark", _id(found), "known", "--reason", "upstream bug")
    assert found.kfuzz(*mark).returncode == 0
    run = found.run("kernels.py::wrong")
    assert (run.code, [f["state"] for f in run.findings("wrong")]) == (0, ["known"])
    assert f"known {_id(found)} (upstream bug)" in run.err
    assert "confirming it" not in run.err
    done = found.kfuzz("replay")
    assert (done.returncode, "known, upstream bug" in done.stdout) == (0, True)
    assert "1 FAILS, 1 of them known" in done.stdout
    found.write("kernels.py", HEADER + MENDED)
    done = found.kfuzz("replay")
    assert done.returncode == 0
    assert f"seems fixed; if it is: kfuzz corpus mark {_id(found)} fixed" in done.stdout


@pytest.mark.slow
def test_what_was_fixed_and_fails_again_has_regressed(found: Project) -> None:
    assert found.kfuzz("corpus", "mark", _id(found), "fixed").returncode == 0
    code, [result] = _replay(found, "--target", "kernels.py::wrong")
    assert (code, result["state"]) == (1, "fixed")  # another kernel proves nothing
    code, [result] = _replay(found)
    assert (code, result["outcome"], result["state"]) == (1, "FAILS", "regressed")
    [document] = found.findings()
    assert document["state"] == document["history"][-1]["state"] == "regressed"


@pytest.mark.slow
def test_findings_side_by_side_come_out_in_order(found: Project) -> None:
    shutil.copytree(found.corpus, found.folder / "other")
    (found.folder / "third" / "wrong" / "broken").mkdir(parents=True)
    (found.folder / "third" / "wrong" / "broken" / "finding.json").write_text("{")
    code, results = _replay(found, "corpus", "third", "other", "--jobs", "2")
    assert code == 3
    assert [r["outcome"] for r in results] == ["FAILS", "ERROR", "FAILS"]
    assert found.wait_until_alone() == []


@pytest.mark.slow
def test_what_differs_where_a_finding_passes_is_printed(found: Project) -> None:
    [path] = found.corpus.glob("*/*/finding.json")
    path.write_text(path.read_text().replace('"torch": "', '"torch": "0.'))
    found.write("kernels.py", HEADER + MENDED)
    environment = {"ATEN_CPU_CAPABILITY": "default"}
    done = found.kfuzz("replay", environment=environment)
    assert "the environment differs" in done.stdout
    assert "torch: 0." in done.stdout
    assert "cpu_capability: " in done.stdout


@pytest.mark.slow
def test_pytest_replays_and_searches_in_workers_of_its_own(found: Project) -> None:
    searches = """
import kernels
import kfuzz

@kfuzz.mark.falsify(kernels.right, max_cases=20)
def test_right(): ...

@kfuzz.mark.falsify(kernels.wrong, max_cases=20)
def test_wrong(): ...
"""
    found.write("test_kernels.py", searches)
    loaded = any(e.name == "kfuzz" for e in entry_points(group="pytest11"))
    plugin = () if loaded else ("-p", "kfuzz.pytest_plugin")
    words = ("-m", "pytest", *plugin, "-n", "2", "-rA", "--kfuzz-corpus", "corpus")
    done = found.python(*words)
    lines = done.stdout.splitlines()
    assert "PASSED test_kernels.py::test_right" in lines, done.stdout
    for name in (f"finding.json::{_id(found)}", "test_kernels.py::test_wrong"):
        assert any(s.startswith("FAILED") and name in s for s in lines), done.stdout
    assert lines.count(f"replay: kfuzz replay {_id(found)} --corpus corpus") == 2
    assert "Traceback" not in done.stdout
    assert found.wait_until_alone() == []


def test_nothing_to_replay(project: Project) -> None:
    assert project.kfuzz("replay").returncode == 4


def test_a_finding_nobody_has(found: Project) -> None:
    done = found.kfuzz("replay", "wrong-C-CMP-03-00000000")
    assert done.returncode == 2
    assert _id(found) in error(done)


@pytest.mark.slow
def test_shrinking_again_keeps_the_minimum(found: Project) -> None:
    before = found.findings()
    done = found.kfuzz("shrink", _id(found))
    assert done.returncode == 0
    after = found.findings()
    assert [f["case"] for f in before] == [f["case"] for f in after]
    assert [f["id"] for f in before] == [f["id"] for f in after]


@pytest.mark.slow
def test_shrinking_what_passes_now_loses_nothing(found: Project) -> None:
    before = found.findings()
    found.write("kernels.py", HEADER + MENDED)
    done = found.kfuzz("shrink", _id(found))
    assert done.returncode == 0
    assert "does not fail any more" in done.stdout
    assert found.findings() == before


@pytest.mark.slow
def test_the_first_form_is_kept_beside_the_minimum(found: Project) -> None:
    [document] = found.findings()
    folder = next(found.corpus.glob("*/*"))
    assert document["input_elements"] == 3
    assert '"fill"' in (folder / "first.json").read_text()
    assert (folder / "inputs.safetensors").is_file()
    assert WRONG in (found.folder / "kernels.py").read_text()
