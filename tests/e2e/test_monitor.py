"""A fault that a program meets while it works: found, stored, reduced."""

import json

import pytest

from tests.e2e.project import Project

PROGRAM = """
import torch
import kfuzz


@kfuzz.monitor("softmax", rate=1.0, corpus="corpus")
def rows(x, dim=-1):
    y = torch.softmax(x, dim)
    if x.shape[-1] > 9:
        y[..., 9:] *= 1.01
    return y


if __name__ == "__main__":
    kfuzz.monitor.start(state="state.jsonl")
    for n in (8, 9, 24):
        rows(torch.randn(6, n))
"""


@pytest.mark.slow
def test_what_a_monitor_stores_is_shrunk_in_fresh_processes(project: Project) -> None:
    project.write("program.py", PROGRAM)
    done = project.python("program.py")
    assert done.returncode == 0, done.stderr
    # Its end waits for the checks, and writes the counts.
    report = project.kfuzz("monitor-report", "state.jsonl", "--format", "json")
    counts = json.loads(report.stdout)["functions"][0]
    assert (counts["seen"], counts["checked"], counts["violations"]) == (3, 3, 1)
    assert report.returncode == 1
    [entry] = (project.corpus / "rows").iterdir()
    stored = json.loads((entry / "finding.json").read_text())
    assert stored["target"]["file"] == "program.py"
    assert stored["input_elements"] == 6 * 24
    shrunk = project.kfuzz("shrink", stored["id"])
    assert shrunk.returncode in (0, 1), shrunk.stderr
    [entry] = (project.corpus / "rows").iterdir()
    minimal = json.loads((entry / "finding.json").read_text())
    assert minimal["input_elements"] == 10
    assert minimal["state"] == "confirmed"
