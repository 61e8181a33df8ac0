"""Planted differences between devices are told as what they are."""

import json
from pathlib import Path

import pytest

from kfuzz.app import main

pytestmark = pytest.mark.slow  # four recordings, of a process each

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
    shape_class="N >= 1 and N <= 64", name="rows",
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


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("devices")
    common = ["--device", "cpu", "--quiet"]
    for name, body in BODIES.items():
        file = folder / f"{name}.py"
        file.write_text(HEAD + body)
        words = ["record", str(file), "--out", str(folder / name), *common]
        more = ["--max-cases", "25"]
        if name != "plain":
            more = ["--like", str(folder / "plain")]
        more += ["--probe"] * (name in ("plain", "turned"))
        assert main([*words, *more]) == 0
    return folder


def compared(
    recordings: Path, other: str, capsys: pytest.CaptureFixture[str], code: int
) -> dict[str, object]:
    capsys.readouterr()
    pair = [str(recordings / "plain"), str(recordings / other)]
    assert main(["compare", *pair, "--format", "json"]) == code
    made: dict[str, object] = json.loads(capsys.readouterr().out)
    return made


def test_a_recording_equals_itself(
    recordings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = compared(recordings, "plain", capsys, 0)
    assert set(made["counts"]) <= {"equal bits", "not judged"}  # type: ignore[call-overload]


def test_another_order_is_told(
    recordings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "order of additions" in compared(recordings, "turned", capsys, 0)["causes"]  # type: ignore[operator]


def test_flushed_subnormals_are_told(
    recordings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = compared(recordings, "flushed", capsys, 0)
    assert list(made["causes"]) == ["flushed subnormals"]  # type: ignore[call-overload]


def test_a_wrong_element_is_charged_to_its_device(
    recordings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = compared(recordings, "wrong", capsys, 1)
    cases: list[dict[str, str]] = made["cases"]  # type: ignore[assignment]
    outside = [c for c in cases if c["class"] == "outside"]
    assert outside
    assert all(c["why"].startswith("B:") and c["contract"] for c in outside)


def test_a_file_that_is_cut_off_is_refused(
    recordings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in (recordings / "plain").iterdir():
        content = file.read_bytes()
        cut = file.suffix == ".z"
        (tmp_path / file.name).write_bytes(content[:-20] if cut else content)
    assert main(["compare", str(tmp_path), str(tmp_path)]) == 2
    assert "is cut off" in capsys.readouterr().err


def test_another_recording_in_the_folder_is_refused(
    recordings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["record", str(recordings / "plain.py"), "--out", str(recordings / "plain")]
    assert main([*words, "--device", "cpu", "--max-cases", "3"]) == 2
    assert "another recording" in capsys.readouterr().err
