"""`kfuzz report issue=FILE ID`: what a maintainer is told, and that it can be run."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from kfuzz.app import main
from kfuzz.report.kinds import issue
from tests.helpers.events import saved
from tests.helpers.reported import HOSTILE, gathered, hostile

ROOT = Path(__file__).parents[2]
INCIDENT = "incident_silent_index-C-EXC-02-a26c02bd"


def tokens(text: str) -> list[Token]:
    reader = MarkdownIt("commonmark", {"html": True}).enable("table")
    blocks = reader.parse(text)
    return [t for block in blocks for t in (block, *(block.children or ()))]


def script_of(text: str) -> str:
    (made,) = [t.content for t in tokens(text) if t.info == "python"]
    return str(made)


def issue_of(made: object) -> str:
    return issue.document(gathered([saved(made, "done")]))  # type: ignore[arg-type]


@pytest.fixture
def incident(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The issue on an incident that the project's corpus holds."""
    monkeypatch.chdir(ROOT)
    file = tmp_path / "issue.md"
    assert main(["report", f"issue={file}", INCIDENT]) == 0
    return file.read_text()


def test_an_issue_says_what_where_why_and_with_which_versions(incident: str) -> None:
    line = 1 + ROOT.joinpath("contracts/witnesses/incidents.py").read_text().split(
        "def incident_silent_index"
    )[0].count("\n")
    for said in (
        "# incident\\_silent\\_index: out-of-bounds index accepted\n",
        "actual    returns although indices = 1 is not below V = 1\n",
        "expected  out-of-bounds indices are handled as declared\n",
        "          indices: int64[] contiguous = 1\n",
        f"`contracts/witnesses/incidents.py:{line}`",
        "## Probable cause\n\n- fails also as float16, as bfloat16\n",
        "| torch | 2.13.0+cpu |\n| triton | 3.9.0 |\n",
        "| device | in Triton's interpreter |",
        f"as `{INCIDENT}`. Status: confirmed in fresh processes.\n",
    ):
        assert said in incident
    assert re.search(r"\| kfuzz \(installed now\) \| \d", incident)


@pytest.mark.slow
def test_its_script_fails_as_it_says(incident: str, tmp_path: Path) -> None:
    file = tmp_path / "repro.py"
    file.write_text(script_of(incident))
    made = subprocess.run(
        [sys.executable, str(file)],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True,
    )  # fmt: skip
    assert made.returncode == 1, made.stderr
    assert made.stdout == "FAILS: it returns although an index is out of bounds\n"
    assert "Exit code 1: it still fails; 0: it passes." in incident


def test_no_text_of_a_finding_is_markup() -> None:
    made = replace(hostile(), fingerprint=replace(hostile().fingerprint, torch=HOSTILE))
    every = tokens(issue_of(made))
    markup = {t.content.strip() for t in every if t.type.startswith("html")}
    assert markup == {"<details><summary>trace</summary>", "</details>"}
    assert not any("\x1b" in t.content for t in every)
    assert not {"link_open", "image", "em_open"} & {t.type for t in every}
    compile(script_of(issue_of(made)), "repro.py", "exec")
