"""`kfuzz show`, `corpus` and `contracts`: reading what is there."""

import re
from pathlib import Path

import pytest

from kfuzz.app import main
from kfuzz.cli.streams import ExitCode
from kfuzz.store import files as strict_json
from tests.helpers.command_line import stored

pytestmark = pytest.mark.usefixtures("project")


def test_corpus_list_and_check(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["corpus", "list"]) == 0
    assert "no finding in corpus" in capsys.readouterr().out
    one, other = stored(project), stored(project, kernel="other")
    assert main(["corpus", "check"]) == 0
    assert "2 readable, 0 problems" in capsys.readouterr().out
    (project / "corpus" / one.folder / "finding.json").write_text("{")
    assert main(["corpus", "list"]) == 0
    out, err = capsys.readouterr()
    assert other.id in out
    assert one.id not in out
    assert "skipped: damaged" in err
    assert main(["corpus", "check"]) == ExitCode.VIOLATION
    assert "1 readable, 1 problem\n" in capsys.readouterr().out
    assert main(["corpus", "check", "--format", "json"]) == ExitCode.VIOLATION
    document = strict_json.loads(capsys.readouterr().out)
    assert document["readable"] == len(document["problems"]) == 1
    assert main(["corpus", "list", "--format", "json"]) == 0
    document = strict_json.loads(capsys.readouterr().out)
    assert [f["id"] for f in document["findings"]] == [other.id]


def test_contracts_in_two_formats(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["contracts", "list", "--format", "json"]) == 0
    document = strict_json.loads(capsys.readouterr().out)
    identifiers = [c["identifier"] for c in document["contracts"]]
    assert "C-PRC-01/matmul" in identifiers
    assert main(["contracts", "list", "*/matmul"]) == 0
    out = capsys.readouterr().out
    assert all((i in out) == i.endswith("/matmul") for i in identifiers)
    assert main(["contracts", "list"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"C-PRC-01 .*computes in the declared .* \d\d", out)
    assert f"{len(identifiers)} contracts" in out
    assert main(["contracts", "list", "X-*"]) == ExitCode.USAGE
    assert "no contract matches 'X-*'" in capsys.readouterr().err
    parts = (
        "identifier", "scope", "precondition", "postcondition", "tolerance", "oracle",
        "protocol", "signature",
    )  # fmt: skip
    assert main(["contracts", "show", "C-PRC-01/matmul"]) == 0
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if line in parts] == list(parts)
    assert main(["contracts", "show", "C-PRC-01/matmul", "--format", "json"]) == 0
    document = strict_json.loads(capsys.readouterr().out)
    assert document["contract"]["identifier"] == "C-PRC-01/matmul"


OWN = """
import torch

import kfuzz
from kfuzz import strategies as ks

doubled = kfuzz.Operator(
    "doubled", inputs=dict(x=ks.tensors("*")), oracle=lambda x: 2 * x
)


@kfuzz.kernel(doubled)
def twice(x):
    print("imported")
    return x + x
"""


def test_operators_and_what_they_promise(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["contracts", "operators"]) == 0
    assert "layer_norm(x, weight, bias, *, eps)" in capsys.readouterr().out
    assert main(["contracts", "show", "softmax"]) == 0
    out = capsys.readouterr().out
    assert "  call            softmax(x, *, dim)\n" in out
    assert "  C-CMP-03  correct at every declared shape" in out
    # 0.13303… of the reference, and the float32 numbers beside what is accepted.
    _, low, high = map(float, re.findall(r"(?:= |from |to )(0\.\d+)", out))
    _, below, above = re.findall(r"(there )(0\.\d+) and less, (0\.\d+) and more", out)[
        0
    ]
    assert float(below) < low < high < float(above) < low * (1 + 1e-5)
    assert main(["contracts", "show", "elu"]) == 0
    assert (
        "  any        elu_by_exp     The same with exp(x) - 1"
        in capsys.readouterr().out
    )
    assert main(["contracts", "show", "softmax", "--format", "json"]) == 0
    [shown] = strict_json.loads(capsys.readouterr().out)["operators"]
    assert "C-CMP-03" in shown["contracts"]
    assert main(["contracts", "show", "C-CMP-03"]) == 0
    assert capsys.readouterr().out.startswith("C-CMP-03/*: correct at every")
    assert main(["contracts", "show", "softmxa"]) == ExitCode.USAGE
    assert "did you mean 'softmax'" in capsys.readouterr().err
    (project / "own.py").write_text(OWN)
    assert main(["contracts", "operators", "own.py"]) == 0
    out = capsys.readouterr().out
    assert "doubled(x)" in out
    assert "softmax" not in out
    assert main(["contracts", "show", "own.py::twice"]) == 0
    assert "  K-VAL-01  every element is within" in capsys.readouterr().out
