"""What `kfuzz calibrate` says of contracts, and the witnesses that it runs."""

import json
from collections import Counter
from dataclasses import replace

import pytest
import torch

from kfuzz.app import main
from kfuzz.cli.streams import ExitCode
from kfuzz.contracts.classes import CLASSES
from kfuzz.contracts.operators import OPERATORS
from kfuzz.contracts.witnesses.planted.catalogue import FAULTS, planted
from kfuzz.contracts.witnesses.planted.narrow import Narrow
from kfuzz.contracts.witnesses.roster import roster
from kfuzz.core.codec import decode, encode
from kfuzz.core.finding import Fingerprint
from kfuzz.core.verdict import Role, Soundness
from kfuzz.features.lab.grade import calibrating as calibrate
from kfuzz.features.lab.grade.calibrating import lines
from kfuzz.features.lab.grade.statement import Calibration, Outcome

RIGHT = Outcome(
    "right", "relu", Role.CONFORMING, "", "cpu", True, 25, {"K-MEM-03": 20}
)  # fmt: skip
WRONG = Outcome(
    "wrong", "relu", Role.VIOLATING, "K-MEM-03", "cpu", True, 3,
    found={"K-VAL-01": "y = 1", "K-MEM-03": "overwrites x"},
)  # fmt: skip


def state(*outcomes: Outcome) -> tuple[Soundness, tuple[str, ...]]:
    made = {
        c.identifier: c for c in calibrate.judged(["K-MEM-03/relu"], outcomes, {})
    }  # fmt: skip
    return made["K-MEM-03/relu"].state, made["K-MEM-03/relu"].problems


# --- three states -----------------------------------------------------------------


@pytest.mark.parametrize(
    "outcomes",
    [(RIGHT,), (WRONG,), (), (replace(RIGHT, decided={"K-VAL-01": 9}), WRONG)],
    ids=["no violating", "no conforming", "none", "no evidence"],
)
def test_without_a_pair_a_contract_is_uncalibrated(
    outcomes: tuple[Outcome, ...],
) -> None:
    found, problems = state(*outcomes)
    assert found is Soundness.UNCALIBRATED
    assert len(problems) == 1


@pytest.mark.parametrize(
    ("outcomes", "says"),
    [
        ((RIGHT, replace(WRONG, functional=False)), "plain functional test"),
        ((RIGHT, replace(WRONG, found={})), "not falsified in 3 cases"),
        ((RIGHT, replace(WRONG, found={"K-VAL-01": ""})), "found under K-VAL-01"),
        ((replace(RIGHT, found={"K-MEM-03": "overwrites x"}), WRONG), "is reported"),
        ((RIGHT, replace(WRONG, problem="out of memory")), "out of memory"),
        ((replace(RIGHT, problem="out of memory"), WRONG), "out of memory"),
        # One that is right does not make up for another.
        ((RIGHT, WRONG, replace(WRONG, kernel="w", found={})), "w: not falsified"),
    ],
)
def test_a_witness_that_contradicts_makes_a_contract_unsound(
    outcomes: tuple[Outcome, ...], says: str
) -> None:
    found, problems = state(*outcomes)
    assert found is Soundness.UNSOUND
    assert says in problems[0]


def test_what_an_interruption_left_open_is_trusted_no_further() -> None:
    [left] = [e for e in roster("cpu") if e.witness.kernel == "torch_relu"]
    args = ["K-MEM-03/relu"], [RIGHT, WRONG], {}
    for rest, wanted in (([], "sound"), ([left], "uncalibrated")):
        [made] = calibrate.judged(*args, rest)
        assert made.state == wanted


def calibration(*outcomes: Outcome) -> Calibration:
    contracts = tuple(calibrate.judged(["K-MEM-03/relu"], outcomes, {}))
    return Calibration(7, 100, 25, "cpu", Fingerprint(), contracts, outcomes)


def test_the_document_is_read_back_and_states_the_budget() -> None:
    made = calibration(RIGHT, replace(WRONG, found={}))
    assert decode(Calibration, json.loads(json.dumps(encode(made)))) == made
    assert made.states == {"K-MEM-03/relu": Soundness.UNSOUND}
    shown = "\n".join(lines(made))
    for part in ("seed 7", "at most 100 cases", "25 on a conforming", "wrong: not"):
        assert part in shown


# --- the verb ---------------------------------------------------------------------


@pytest.mark.slow
def test_a_sound_pair_exits_0_and_what_has_none_is_listed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["calibrate", "K-MEM-03/copy", "C-PRC-02/copy", "--device", "cpu"]
    assert main([*words, "--max-cases", "32", "--format", "json"]) == ExitCode.OK
    made = decode(Calibration, json.loads(capsys.readouterr().out)["calibration"])
    states = {c.identifier: c.state for c in made.contracts}
    assert states == {
        "C-PRC-02/copy": Soundness.UNCALIBRATED,
        "K-MEM-03/copy": Soundness.SOUND,
    }
    [sound] = [c for c in made.contracts if c.state is Soundness.SOUND]
    assert "torch_copy" in sound.conforming
    assert "input_negated_in_copy" in sound.violating
    [without] = [c for c in made.contracts if c.state is Soundness.UNCALIBRATED]
    assert "nothing can overflow" in without.problems[0]
    assert any(o.role is Role.IMPOSTOR and o.found for o in made.outcomes)


@pytest.mark.parametrize(
    "words", [["C-XYZ-*"], ["*/relo"], ["--max-cases", "0"], ["--device", "tpu"]]
)
def test_what_cannot_be_obeyed_exits_2(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["calibrate", *words]) == ExitCode.USAGE
    assert "Traceback" not in capsys.readouterr().err


# --- the witnesses ----------------------------------------------------------------


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_fault_is_planted_in_every_operator_or_says_why_not(device: str) -> None:
    made = list(planted(device, str(torch.__version__)))
    pairs = [(p.fault.name, p.operator) for p in made]
    assert sorted(pairs) == sorted((f.name, o) for f in FAULTS for o in OPERATORS)
    for p in made:
        assert (p.base is None) == bool(p.reason)
        assert p.fault.contract in CLASSES


def test_the_names_of_the_roster_are_unique_and_load() -> None:
    entries = list(roster("cpu"))
    assert max(Counter(e.witness.kernel for e in entries).values()) == 1
    for entry in entries:
        assert entry.load().name == entry.witness.kernel
    planted_in = {e.load().operator.name for e in entries if e.role is Role.IMPOSTOR}
    assert planted_in == set(OPERATORS)


def test_a_narrow_accumulator_keeps_its_inputs() -> None:
    a = torch.tensor([[1 + 2.0**-20, -1.0]], dtype=torch.float64)
    ones = torch.ones(2, 1, dtype=torch.float64)
    many = torch.tensor([2048.0, *[1.0] * 7], dtype=torch.float64)
    with Narrow():  # type: ignore[no-untyped-call]
        assert float(a @ ones) == 2.0**-20
        # 2048 + 3 takes 12 bits: to even; then 4 more ones are kept.
        assert float(many.sum()) == 2056.0
