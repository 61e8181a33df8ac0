"""What stands in the place of a file: said at once, in one paragraph."""

import os
from pathlib import Path

import pytest

from kfuzz.app import main

DEEP = 100_000


def paragraph(capsys: pytest.CaptureFixture[str]) -> str:
    out, err = capsys.readouterr()
    assert out == ""
    [line] = err.splitlines()
    assert line.startswith("kfuzz: error: ")
    return line


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[tool.kfuzz]\nprofiles = [1]", "is not a table"),
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


@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "deep", "large"])
def test_a_statement(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("kfuzz.features")
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
    assert main(["grade", "--statement", str(path)]) == 2
    assert str(path) in paragraph(capsys)
