"""kfuzz check: whether a binding can be judged, told before a search."""

import json
import sys
from collections.abc import Callable

import pytest

from kfuzz.app import main
from kfuzz.cli import checking
from kfuzz.cli.streams import ExitCode
from tests.e2e.conftest import project as project
from tests.e2e.project import HEADER, Project

RIGHT = HEADER + "@kernel(ops.relu)\ndef right(x):\n    return torch.relu(x)\n\n\n"
WRONG = HEADER + "@kernel(ops.relu)\ndef wrong(x):\n    return torch.relu(x) + 1\n"
DENSE = (
    HEADER + "@kernel(ops.relu)\ndef dense(x):\n"
    "    if not x.is_contiguous():\n        raise ValueError('dense only')\n"
    "    return torch.relu(x)\n"
)
OWN = """\
import torch
import kfuzz
from kfuzz import strategies as ks


def reference(x):
    return {}


operator = kfuzz.Operator("own", inputs=dict(x=ks.tensors("M N")), oracle=reference)


@kfuzz.kernel(operator)
def own(x):
    return torch.polygamma(2, x.abs() + 1)
"""

Checked = Callable[..., tuple[int, str, str]]


@pytest.fixture
def checked(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Checked:
    """Return what checks a file in this process, which has torch already."""
    monkeypatch.chdir(project.folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    # What a slow machine leaves out is no matter of these tests.
    monkeypatch.setattr(checking, "SECONDS", 300.0)

    def run(text: str, *words: str) -> tuple[int, str, str]:
        project.write("kernels.py", text)
        code = main(["check", "kernels.py", "--device", "cpu", *words])
        assert not project.corpus.exists()
        return code, *capsys.readouterr()

    return run


def line_of(text: str, label: str) -> str:
    return next(ln for ln in text.splitlines() if ln.split()[:1] == label.split()[:1])


@pytest.mark.slow
def test_what_will_be_judged_and_what_will_not(checked: Checked) -> None:
    code, out, _ = checked(RIGHT)
    assert code == ExitCode.OK
    for dtype in ("float32", "float16", "bfloat16"):
        line = line_of(out, dtype)
        assert "ok: contiguous, offset, padded, transposed" in line
        assert "rejected" not in line
    assert "K-VAL-01" in line_of(out, "judged")
    assert "K-REF-01" in line_of(out, "in")
    assert "C-EXC-02: it binds operators with index parameters" in out
    assert "Nothing was searched; kfuzz run kernels.py does that" in out


def test_a_violation_is_named_and_not_stored(checked: Checked) -> None:
    code, out, _ = checked(WRONG)
    assert code == ExitCode.VIOLATION
    assert "violates: contiguous, offset, padded" in line_of(out, "float32")


def test_a_layout_that_is_rejected_is_no_failure(checked: Checked) -> None:
    code, out, _ = checked(DENSE)
    assert code == ExitCode.OK
    line = line_of(out, "float16")
    assert "ok: contiguous" in line
    assert "transposed" in line.partition("rejected: ")[2]
    assert line.endswith("(dense only)")


def test_what_nothing_can_be_compared_with_is_no_success(checked: Checked) -> None:
    code, out, _ = checked(OWN.format("torch.polygamma(2, x.abs() + 1)"))
    assert code == ExitCode.NOTHING_TO_RUN
    assert (
        "was compared: the error model decides nothing in every case: y is undecided"
        in out
    )
    assert "oracle reference of kernels.py:6" in line_of(out, "operator")


def test_a_broken_oracle_is_one_paragraph(checked: Checked) -> None:
    code, out, err = checked(OWN.format("None"))
    assert code == ExitCode.USAGE
    assert out == ""
    assert "kfuzz: error: kernels.py:13: kernel own, operator own: the oracle" in err


def test_a_wrong_binding_keeps_no_other_file_from_being_checked(
    checked: Checked, project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write(
        "square.py",
        "import kfuzz\nfrom kfuzz import strategies as ks\n\n"
        "kfuzz.reference(lambda x: x @ x, {'x': ks.tensors('N N')}, name='square')\n",
    )
    code, out, _ = checked(RIGHT.replace("ops.relu", '"relu"'), "square.py")
    assert code == ExitCode.USAGE
    assert "kernels.py::right" in out
    code, out, err = checked(RIGHT, "square.py", "--format", "json")
    assert code == ExitCode.USAGE
    (said,) = json.loads(out)["errors"]
    assert said in err
    assert 'shape_class="N == M"' in said
