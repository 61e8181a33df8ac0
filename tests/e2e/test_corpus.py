"""The stored findings: listed, shown, checked; damaged; on a full disk."""

import json
import resource
import signal

import pytest

from tests.e2e.project import HEADER, WRONG, Project, error, strict

SECOND = """
@kernel(ops.relu)
def second(x):
    return torch.relu(x) + 1
"""
# Bytes a file may have: less than any finding.json, more than what runs need.
FULL = 1024


@pytest.mark.slow
def test_listing_and_showing(found: Project) -> None:
    listed = strict(found.kfuzz("corpus", "list", "--format", "json").stdout)
    [entry] = listed["findings"]
    assert entry["kernel"] == "kernels.py::wrong"
    assert listed["problems"] == []
    text = found.kfuzz("show", entry["id"]).stdout
    assert entry["id"] in text
    assert f"kfuzz replay {entry['id']}" in text
    shown = strict(found.kfuzz("show", entry["id"], "--format", "json").stdout)
    assert shown["finding"]["signature"]["contract"] == "C-CMP-03"


@pytest.mark.slow
def test_a_truncated_entry_is_named_and_kept(found: Project) -> None:
    [path] = found.corpus.glob("*/*/finding.json")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    done = found.kfuzz("corpus", "check")
    assert done.returncode == 1
    assert "finding.json" in done.stdout
    listed = found.kfuzz("corpus", "list", "--format", "json")
    assert listed.returncode == 0
    [problem] = strict(listed.stdout)["problems"]
    assert problem["kind"] == "damaged"
    assert "finding.json" in error(found.kfuzz("show", path.parent.as_posix()))
    done = found.kfuzz("replay", "--format", "json")
    assert done.returncode == 3
    assert [r["outcome"] for r in strict(done.stdout)["results"]] == ["ERROR"]
    assert path.read_bytes() == whole[: len(whole) // 2]


@pytest.mark.slow
def test_another_run_heals_a_damaged_entry(found: Project) -> None:
    [path] = found.corpus.glob("*/*/finding.json")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert found.run("kernels.py::wrong", "--max-findings", "1").code == 1
    assert json.loads(path.read_bytes())["id"] == json.loads(whole)["id"]
    assert found.kfuzz("corpus", "check").returncode == 0


@pytest.mark.slow
def test_finding_it_again_is_not_new(found: Project) -> None:
    run = found.run("kernels.py::wrong", "--max-findings", "1")
    assert run.code == 1
    [document] = found.findings()
    assert run.findings("wrong")[0]["id"] == document["id"]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="no limits of this kind")
def test_a_full_disk_loses_nothing_stored_before(found: Project) -> None:
    found.write("kernels.py", HEADER + WRONG + SECOND)
    before = found.findings()
    files = {p: p.read_bytes() for p in found.corpus.rglob("*") if p.is_file()}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (FULL, hard))  # children inherit it
    try:
        done = found.kfuzz(
            "run", "kernels.py::second", "--max-cases", "30", "--device", "cpu",
            # Python takes bytecode that a full disk cut short for whole.
            environment={"PYTHONPYCACHEPREFIX": str(found.folder / "bytecode")},
        )  # fmt: skip
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert done.returncode == 3
    assert "cannot be written" in error(done)
    assert "saved" not in done.stdout
    assert found.findings() == before
    assert {p: p.read_bytes() for p in files} == files
    assert found.kfuzz("corpus", "check").returncode == 0
    assert found.run("kernels.py::second", "--max-findings", "1").code == 1
    assert len(found.findings()) == 2
