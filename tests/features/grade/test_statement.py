"""Conformance statements: written, read again, drawn, and made by `kfuzz grade`."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kfuzz.app import main
from kfuzz.core.event import (
    ContractTally,
    Event,
    KernelFinished,
    Refusal,
    RunFinished,
)
from kfuzz.core.finding import host_fingerprint
from kfuzz.core.verdict import Graded, Kind, Signature, Soundness, State, Verdict
from kfuzz.engine.config import RunConfig
from kfuzz.features.lab.grade import grading as grade
from kfuzz.features.lab.grade.statement import (
    Calibration,
    ContractCalibration,
    KnownDefect,
    Statement,
)
from kfuzz.features.lab.grade.statement_text import (
    statement_document,
    statement_page,
)
from kfuzz.features.lab.grade.verb import code_of
from kfuzz.store import files as strict_json
from tests.helpers.findings import finding
from tests.helpers.statements import but, fault, kernel, statement

VIOLATED = Graded(Verdict.VIOLATES, 9, 2)
BROKEN = replace(
    but(kernel("broken"), C_EXC_01=VIOLATED, C_PRC_03=Graded(Verdict.NOT_APPLICABLE)),
    findings=(fault(message="y[0] = <nothing> | nan"),),
    refusals=(Refusal("zero-size input", 3, 'shape_class="N >= 1"'),),
    claims={"accumulator": "tf32"},
    defects=(
        KnownDefect("C-EXC-01", "a NaN", "0 comes out"),
        KnownDefect("C-EXC-02", "an index of 7", "is taken"),
    ),
)
PLATFORM = ("torch_take_along_dim", "torch_softmax")
RICH = statement(kernel(), BROKEN)


def write(made: Statement, path: Path) -> Path:
    path.write_text(strict_json.dumps({"format": 1, **statement_document(made)}))
    return path


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "not JSON"),
        ("[]", "not an object"),
        ('{"format": 2}', "format 2"),
        ('{"format": 1}', "holds no statement"),
        ('{"format": 1, "statement": {"device": 7}}', "statement.device"),
    ],
)
def test_what_is_no_statement_is_refused_by_name(
    text: str, part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    assert main(["grade", "--statement", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert part in err
    assert "a.json" in err


def test_the_page_has_every_kernel_with_its_findings_and_defects() -> None:
    page = statement_page(RICH, markdown=True)
    assert "| broken | softmax | KL-1 |" in " ".join(page)
    assert any("y[0] = &lt;nothing>" in line for line in page)
    listed = [line for line in page if line.startswith("- C-EXC-0")]
    assert listed == [
        "- C-EXC-01, `broken` (found): a NaN: 0 comes out",
        "- C-EXC-02, `broken`: an index of 7: is taken",
    ]
    assert "- KL-2: C-EXC-01 is violated: `broken`" in page


def test_exit_codes_follow_findings_errors_and_cases() -> None:
    def code(made: Statement, *, strict: bool = False) -> int:
        return code_of(made, fail_on_known=strict)

    def having(**changes: object) -> Statement:
        return statement(replace(kernel(), findings=(fault(**changes),)))

    assert code(statement()) == 0
    assert code(having()) == 1
    for excused in (having(listed=True), having(state=State.KNOWN)):
        assert code(excused) == 0
        assert code(excused, strict=True) == 1
    assert code(having(state=State.FLAKY), strict=True) == 0
    assert code(statement(but(kernel(), C_EXC_01=Graded(Verdict.ERROR)))) == 3
    assert code(statement(kernel(cases=0))) == 4
    memory = {"K-MEM-01": Graded(Verdict.UNDER_SPECIFIED, 300)}
    undecided = {"K-VAL-01": Graded(Verdict.UNDER_SPECIFIED, 0, 300)}
    idle = replace(kernel(), contracts={**memory, **undecided})
    assert code(statement(kernel(), idle)) == 4
    assert code(statement(replace(idle, contracts=memory))) == 0  # alone asked for
    assert code(replace(having(), interrupted=True)) == 130


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ("a.py --platform", "exclude each other"),
        ("--statement a.json --platform", "exclude each other"),
        ("--platform --device interpret", "Triton's interpreter"),
        ("--statement nowhere.json", "nowhere.json"),
        ("a.py --format xml", "'xml'"),
    ],
)
def test_what_cannot_be_obeyed_is_said_before_a_search(
    words: str, part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["grade", *words.split()]) == 2
    assert part in capsys.readouterr().err


def test_a_statement_rests_on_a_calibration_made_after_it() -> None:
    sound = ContractCalibration("C-EXC-01/softmax", Soundness.SOUND, ("a",), ("b",))
    made = Calibration(7, 400, 100, "cpu", host_fingerprint(), (sound,), ())
    [rests] = grade.resting_on(statement(), made).kernels
    states = {n: g.calibration for n, g in rests.contracts.items()}
    assert states.pop("C-EXC-01") is Soundness.SOUND
    assert set(states.values()) == {Soundness.UNCALIBRATED}


def test_the_platforms_findings_are_told_from_its_listed_defects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kfuzz.targets.load import load, resolve

    module = "kfuzz.contracts.platform.torch_cpu"
    config = RunConfig(targets=(), root=tmp_path, corpus=tmp_path, device="cpu")
    loaded = [load(resolve(f"{module}:{n}")[0], root=tmp_path)[0] for n in PLATFORM]
    known, fresh = (
        replace(finding(), signature=Signature(name, contract, Kind.NAN_MISSING))
        for name, contract in zip(PLATFORM, ("C-EXC-02", "K-VAL-01"), strict=True)
    )
    tally = {"C-ORD-02": ContractTally(Verdict.NOT_APPLICABLE)}

    def searched(*_: object, **__: object) -> Iterator[Event]:
        for one, found in zip(loaded, (known, fresh), strict=True):
            yield KernelFinished(
                one.target.node_id, one.kernel.operator.name, 9, 1.0, tally,
                findings=(found,),
            )  # fmt: skip
        yield RunFinished(1.0, False, 7, "cpu")

    monkeypatch.setattr(grade, "load_all", lambda *_, **__: loaded)
    monkeypatch.setattr(grade, "run_kernels", searched)
    grading = grade.Grading(config, platform=True)
    for _ in grading.events(stop=threading.Event()):
        pass
    gather, softmax = grading.statement().kernels
    assert [f.listed for f in (*gather.findings, *softmax.findings)] == [True, False]
    assert [d.contract for d in gather.defects] == ["C-EXC-02"]
    assert softmax.defects == ()
    assert gather.kernel == f"{module}:torch_take_along_dim"
    assert "intermediates" in softmax.claims
