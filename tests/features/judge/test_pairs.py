"""Candidates that cheat, and honest ones beside them, judged as `kfuzz judge` does.

Each folder of `pairs` has a reference, an honest candidate, and those that cheat.
"""

import json
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kfuzz.app import main
from kfuzz.core.verdict import ATTRIBUTED, Verdict
from kfuzz.execution.processes.child import Zygote
from kfuzz.features.judge import procedure as engine
from kfuzz.features.judge.candidate import Candidate
from kfuzz.features.judge.sandbox.sandbox import zygote_for
from tests.features.judge.judging import judged
from tests.helpers.tiers import sampled

PAIRS = Path(__file__).with_name("pairs")
PARTS = {"reference", "honest"}
HONEST = sorted(p.parent.name for p in PAIRS.glob("*/honest.py"))

# What gives each cheat away; several where the cases drawn decide which comes first.
CHEATS = {
    "early_exit": {"C-PRC-01", "K-VAL-01", "C-PRC-03", "C-CMP-03"},
    "hidden_randomness": {"C-PRC-01", "K-VAL-01", "K-REF-01", "C-ORD-02"},
    "lazy_subclass": {"K-MET-01"},
    "memo_pointer": {"K-REF-01"},
    "memo_shape": {"K-REF-01"},
    "neutral_weights": {"K-VAL-01"},
    "output_alias": {"K-MEM-04"},
    "partial_write": {"K-MEM-02"},
    "patched_comparison": {"K-VAL-01"},
    "precision_downgrade": {"C-PRC-01"},
    "returned_input": {"K-MEM-04"},
    "shape_guard": {"C-CMP-03", "K-VAL-01"},
    "shape_hardcoded": {"C-CMP-03", "K-LIV-01", "C-EXC-01"},
    "stale_memory": {"K-MEM-02"},
    "thread": {"C-ORD-03"},
    "train_eval": {"K-VAL-01", "C-PRC-01", "C-CMP-03"},
    "value_assumption": {"K-VAL-01", "C-CMP-03"},
    "wrong_device": {"K-MET-01"},
    "wrong_dtype": {"K-MET-01"},
    "zeroed_inputs": {"K-MEM-03"},
    "zeros": {"K-VAL-01"},
}
# Right results, but not by work of its own: told, and charged only on demand.
NOTED = {"fallback": "aten::addmm"}


def test_every_pair_is_expected_somewhere() -> None:
    assert {p.stem for p in PAIRS.glob("*/*.py")} - PARTS == {*CHEATS, *NOTED}


def cheat(name: str, folder: Path = PAIRS) -> tuple[Path, Path]:
    """Return a reference, and the candidate of this name that cheats at it."""
    [file] = folder.glob(f"*/{name}.py")
    return file.with_name("reference.py"), file


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    with zygote_for("cpu", output=lambda piece: None) as zygote:
        yield zygote


def some(names: Iterable[str]) -> list[Any]:
    """Return the names as parameters, of which each push tries one in six.

    The others, among them what shows after many cases alone, are the night's.
    """
    return sampled(names, one_in=6, first=2)


@pytest.mark.slow
@pytest.mark.parametrize("name", some(CHEATS))
def test_a_cheat_is_falsified(name: str, zygote: Zygote, tmp_path: Path) -> None:
    made = judged(*cheat(name), zygote, tmp_path)
    assert made.verdict is Verdict.VIOLATES, made
    [finding] = [f for f in made.findings if f.state in ATTRIBUTED]
    assert finding.signature.contract in CHEATS[name], finding.failure.message


@pytest.mark.slow
@pytest.mark.parametrize("name", some(HONEST))
def test_an_honest_one_conforms(name: str, zygote: Zygote, tmp_path: Path) -> None:
    pair = PAIRS / name
    made = judged(
        pair / "reference.py", pair / "honest.py", zygote, tmp_path, max_cases=30
    )
    assert made.verdict is Verdict.CONFORMS, (made.reason, made.findings)
    assert made.coverage.benchmarked >= 10
    assert made.coverage.elsewhere
    assert made.coverage.shapes > 1
    assert len(made.coverage.families) > 5


@pytest.mark.slow
def test_library_calls_are_told_and_charged_on_demand(
    zygote: Zygote, tmp_path: Path
) -> None:
    for name, operator in NOTED.items():
        files = cheat(name)
        told = judged(*files, zygote, tmp_path, max_cases=20)
        assert told.verdict is Verdict.CONFORMS
        assert operator in told.operators
        attributed = judged(*files, zygote, tmp_path, claims={"own_kernels_only": True})
        assert attributed.verdict is Verdict.VIOLATES
        assert attributed.findings[0].signature.contract == "K-OWN-01"


@pytest.mark.slow
def test_the_command_line_judges_and_replays(
    zygote: Zygote,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared = partial(Candidate, zygote=zygote)
    for function in (engine.Judging.__init__, engine.loaded_candidate):
        monkeypatch.setitem(function.__kwdefaults__, "opened", shared)
    corpus = ["--corpus", str(tmp_path)]
    files = [str(file) for file in cheat("value_assumption")]
    code = main(
        ["judge", *files, *corpus, "--device", "cpu", "--format", "json", "--seed", "7"]
    )
    document = json.loads(capsys.readouterr().out)
    assert code == 1
    assert document["format"] == 1
    assert document["verdict"] == "violates"
    assert document["coverage"]["benchmarked"]
    assert document["containment"]
    [found] = document["findings"]
    assert main(["replay", found["id"], *corpus]) == 1
    assert "FAILS" in capsys.readouterr().out
    assert main(["replay", found["id"], *corpus, "--script", "never.py"]) == 3
    assert "sandbox" in capsys.readouterr().err
    other = ["--target", "::".join([files[0], files[0].replace("reference", "honest")])]
    assert main(["replay", found["id"], *corpus, *other]) == 0
    assert "FIXED" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("raise RuntimeError('no compiler')", 3, "cannot be built: RuntimeError"),
        ("class Model: pass", 3, "defines no 'ModelNew'"),
        (
            "from torch import nn\nclass ModelNew(nn.Module):\n"
            "    def __init__(self, k, n):\n        super().__init__()\n"
            "        self.w = nn.Linear(n, k)\n",
            3,
            "weights are not the reference's: linear",
        ),
    ],
)
def test_what_cannot_be_built_is_an_error(
    text: str,
    code: int,
    says: str,
    zygote: Zygote,
    tmp_path: Path,
) -> None:
    candidate = tmp_path / "candidate.py"
    candidate.write_text(text)
    made = judged(PAIRS / "linear" / "reference.py", candidate, zygote, tmp_path)
    assert made.verdict is Verdict.ERROR
    assert says in made.reason
