"""What stands in the place of a file: said at once, in one paragraph."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from kfuzz.app import main
from kfuzz.store.corpus import Corpus
from kfuzz.store.entry import FINDING
from tests.helpers.findings import finding

DEEP = 100_000
COUNTS = {"format": 1, "process": "1", "when": "now", "functions": []}


def paragraph(capsys: pytest.CaptureFixture[str]) -> str:
    out, err = capsys.readouterr()
    assert out == ""
    [line] = err.splitlines()
    assert line.startswith("kfuzz: error: ")
    return line


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[tool.kfuzz]\nreport = [1]", "is not a table of reports"),
        ("[tool.kfuzz]\nreport = [[]]", "is not a table of reports"),
        ("[tool.kfuzz]\ntargets = [1]", "is not a list of targets"),
        ("[tool.kfuzz]\nprofile = [1]", "is not a name"),
        ("[tool.kfuzz]\nprofiles = [1]", "is not a table"),
        ("[tool.kfuzz.profiles]\nx = 1", "is not a table"),
        ("x = " + "[" * DEEP, "cannot be read"),
        ("#" * (1 << 21), "more than it can need"),
    ],
)
def test_a_project_s_file(
    text: str,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert main(["config"]) == 2
    assert says in paragraph(capsys)


@pytest.mark.parametrize("verb", ["monitor-report", "grade --statement"])
@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "deep", "large"])
def test_a_statement_and_a_monitor_s_state(
    verb: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "file"
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "device":
            path = Path("/dev/zero")
        case "deep":
            path.write_text("[" * DEEP + "\n")
        case _:
            with path.open("wb") as file:
                file.truncate(1 << 40)  # a hole, which takes no room
    assert main([*verb.split(), str(path)]) == 2
    assert str(path) in paragraph(capsys)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds no counts"),
        ("\n\n", "holds no counts"),
        (json.dumps(COUNTS), "is cut short"),
        (json.dumps(COUNTS)[:20], "is cut short"),
        ("counts\n", "not JSON"),
        ("[" * 50 + "]" * 50 + "\n", "nested deeper"),
    ],
)
def test_counts_that_are_none_are_no_success(
    text: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "state.jsonl"
    path.write_text(text)
    assert main(["monitor-report", str(path)]) == 2
    assert says in paragraph(capsys)


def _told(value: Any, *place: str | int) -> dict[str, Any]:
    return {"value": value, "place": place}


@pytest.mark.parametrize(
    "change",
    [
        _told("", "input_elements"),
        _told(None, "input_elements"),
        _told(-1, "input_elements"),
        _told(10_000, "input_elements"),
        _told(-1, "nonzero_elements"),
        _told("another", "id"),
        _told(-1, "failure", "elements"),
        _told("", "failure", "elements"),
        _told(-0.5, "failure", "ratio"),
        _told("-inf", "failure", "ratio"),
        _told({"evaluations": -3}, "reduction"),
    ],
)
def test_numbers_that_cannot_be(
    change: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Corpus(tmp_path).save(finding()) / FINDING
    document = json.loads(path.read_text())
    *owners, name = change["place"]
    place = document
    for owner in owners:
        place = place[owner]
    place[name] = change["value"]
    path.write_text(json.dumps(document))
    assert main(["corpus", "check", "--corpus", str(tmp_path)]) == 1
    assert name in capsys.readouterr().out
