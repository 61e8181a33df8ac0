"""The stored findings: listed, shown, checked; damaged; on a full disk."""

import resource
import signal

import pytest

from tests.e2e.project import HEADER, WRONG, Project, error

SECOND = """
@kernel(ops.relu)
def second(x):
    return torch.relu(x) + 1
"""
# Bytes a file may have: less than any finding.json, more than what runs need.
FULL = 1024


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
            environment={"PYTHONDONTWRITEBYTECODE": "1"},
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
