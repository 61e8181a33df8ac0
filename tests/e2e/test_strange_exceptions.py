"""Exceptions whose classes are strangers': what is seen is stored and can be read."""

import json
import xml.etree.ElementTree as ET

import pytest

from kfuzz.app import main
from tests.e2e.project import HEADER, Project

KERNELS = """
class Mute(RuntimeError):
    def __str__(self):
        raise ValueError("no text")


class Endless(RuntimeError):
    def __str__(self):
        return str(self)


def unlucky(x):
    return x.numel() > 0


@kernel(ops.relu)
def half_a_pair(x):
    if unlucky(x):
        raise RuntimeError("no file \\udc80 <img src=x>\\x1b[31m")
    return torch.relu(x)


@kernel(ops.relu)
def mute(x):
    if unlucky(x):
        raise Mute
    return torch.relu(x)


@kernel(ops.relu)
def endless(x):
    if unlucky(x):
        raise Endless
    return torch.relu(x)


@kernel(ops.relu)
def ring(x):
    if unlucky(x):
        error = RuntimeError("in a ring")
        error.__cause__ = error
        raise error
    return torch.relu(x)


@kernel(ops.relu)
def renamed(x):
    if unlucky(x):
        raise type("two\\nlines", (RuntimeError,), {})("with a name")
    return torch.relu(x)
"""


@pytest.mark.slow
def test_each_is_a_finding_that_every_report_shows(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    project.write("kernels.py", HEADER + KERNELS)
    kinds = ("junit", "sarif", "markdown", "html", "jsonl")
    reports = [w for kind in kinds for w in ("--report", f"{kind}=out.{kind}")]
    run = project.run("kernels.py", *reports, "--max-findings", "5", cases=10)
    assert run.code == 1, run.err
    assert "Traceback" not in run.err
    told = {
        "half_a_pair": r"no file \udc80 <img",
        "mute": "__str__ raised ValueError",
        "endless": "__str__ raised RecursionError",
        "ring": "in a ring",
        "renamed": r"two\nlines",
    }
    for name, says in told.items():
        [finding] = run.findings(name)
        assert (finding["contract"], finding["state"]) == ("K-LIV-01", "confirmed")
        assert says in finding["message"]
    assert len(project.findings()) == len(told)
    monkeypatch.chdir(project.folder)
    assert main(["corpus", "check"]) == 0
    assert main(["show", run.findings("half_a_pair")[0]["id"]]) == 0
    assert "\x1b" not in capsys.readouterr().out
    texts = {kind: (project.folder / f"out.{kind}").read_text() for kind in kinds}
    ET.fromstring(texts["junit"])
    json.loads(texts["sarif"])
    for kind, text in texts.items():
        assert "no file" in text, kind
        assert "\x1b" not in text
    assert "<img" not in texts["html"]
