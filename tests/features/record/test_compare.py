"""Planted differences between devices are told as what they are."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kfuzz.app import main

HEAD = """
import torch, kfuzz
from kfuzz.contracts import operators as ops

def _serial(x, dim, turned=False):
    x = x.movedim(dim, -1).float()
    total = torch.zeros(x.shape[:-1])
    for j in range(x.shape[-1]):
        total = total + x[..., -1 - j if turned else j]
    return total

@kfuzz.kernel(
    ops.sum, dtypes="float32", subnormals="any", dims={-1},
    shape_class="N >= 1 and N <= 32", name="rows",
)
def rows(x, dim=-1):
"""
BODIES = {
    "plain": "    return _serial(x, dim)\n",
    "turned": "    return _serial(x, dim, turned=True)\n",
    "flushed": (
        "    y = _serial(x, dim)\n"
        "    small = y.abs() < torch.finfo(y.dtype).smallest_normal\n"
        "    return torch.where(small, torch.zeros_like(y), y)\n"
    ),
    "wrong": (
        "    y = _serial(x, dim)\n"
        "    if y.numel() > 3:\n"
        "        y.view(-1)[3] = y.view(-1)[3] * 2 + 1e30\n"
        "    return y\n"
    ),
}
# Wrong in its first call alone, of whatever process.
ONCE = """
    from pathlib import Path
    seen = Path({seen!r})
    if seen.exists():
        return _serial(x, dim)
    seen.touch()
    return _serial(x, dim) + 1
"""


def record(folder: Path, *words: str) -> int:
    """Record into a folder on the CPU."""
    return main(["record", *words, "--out", str(folder), "--device", "cpu", "--quiet"])


Recorded = Callable[[str], Path]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Return the folder of a kernel's recording, made when first asked for."""
    folder = tmp_path_factory.mktemp("devices")

    @cache
    def recorded(name: str) -> Path:
        file = folder / f"{name}.py"
        file.write_text(HEAD + BODIES[name])
        more = ["--max-cases", "40"]
        if name != "plain":
            more = ["--like", str(recorded("plain"))]
        more += ["--probe"] * (name in ("plain", "turned"))
        assert record(folder / name, str(file), *more) == 0
        return folder / name

    return recorded


def compared(
    recorded: Recorded, other: str, capsys: pytest.CaptureFixture[str], code: int
) -> dict[str, Any]:
    capsys.readouterr()
    pair = [str(recorded("plain")), str(recorded(other))]
    assert main(["compare", *pair, "--format", "json"]) == code
    made: dict[str, Any] = json.loads(capsys.readouterr().out)
    return made


@pytest.mark.slow
def test_a_recording_equals_itself(
    recorded: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    made = compared(recorded, "plain", capsys, 0)
    assert set(made["counts"]) <= {"equal bits", "not judged"}


def test_flushed_subnormals_are_told(
    recorded: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    made = compared(recorded, "flushed", capsys, 0)
    assert list(made["causes"]) == ["flushed subnormals"]


@pytest.mark.slow
def test_a_wrong_element_is_charged_to_its_device(
    recorded: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    made = compared(recorded, "wrong", capsys, 1)
    outside = [c for c in made["cases"] if c["class"] == "outside"]
    assert outside
    assert all(c["why"].startswith("B:") and c["contract"] for c in outside)


@pytest.mark.slow
def test_what_fresh_processes_do_not_repeat_is_charged_to_no_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "once.py", tmp_path / "out"
    file.write_text(HEAD + ONCE.format(seen=str(tmp_path / "seen")))
    assert record(out, str(file), "--max-cases", "3") == 0
    assert main(["compare", str(out), str(out), "--format", "json"]) == 0
    assert "in each of 2 fresh processes" in capsys.readouterr().out


def test_why_cases_are_lacking_is_told_and_they_are_tried_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "empty.py", tmp_path / "out"
    file.write_text(HEAD.replace("N <= 32", "N > N") + BODIES["plain"])
    for _ in range(2):
        assert record(out, str(file), "--max-cases", "2") == 3
        assert "rows: " in capsys.readouterr().err
    assert main(["compare", str(out), str(out)]) == 4
    assert "rows of sum: A ended early: " in capsys.readouterr().out


def test_a_file_that_is_cut_off_is_refused(
    recorded: Recorded, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in recorded("plain").iterdir():
        content = file.read_bytes()
        cut = file.suffix == ".z"
        (tmp_path / file.name).write_bytes(content[:-20] if cut else content)
    assert main(["compare", str(tmp_path), str(tmp_path)]) == 2
    assert "is cut off" in capsys.readouterr().err
