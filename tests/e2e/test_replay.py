"""Stored findings run again: fixed, failing, flaky, or not judged."""

from importlib.metadata import entry_points

import pytest

from tests.e2e.project import HEADER, MENDED, Project, strict


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


@pytest.mark.slow
def test_shrinking_again_keeps_the_minimum(found: Project) -> None:
    before = found.findings()
    done = found.kfuzz("shrink", _id(found))
    assert done.returncode == 0
    after = found.findings()
    assert [f["case"] for f in before] == [f["case"] for f in after]
    assert [f["id"] for f in before] == [f["id"] for f in after]
