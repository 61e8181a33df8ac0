"""What a run warns of in itself, and what it must not warn of."""

import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import kfuzz
from kfuzz.contracts import Operator, kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.binding import BoundKernel
from kfuzz.contracts.classes import CLASSES
from kfuzz.core.budget import Depth
from kfuzz.core.codec import encode
from kfuzz.core.errors import KfuzzError
from kfuzz.core.event import ContractTally, Notice
from kfuzz.core.finding import Fingerprint, Target
from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.core.verdict import Soundness, Verdict
from kfuzz.engine.search.schedule import watched
from kfuzz.evaluation import evaluator as baselines
from kfuzz.evaluation.evaluator import Evaluator, setting_of
from kfuzz.strategies import tensors
from tests.helpers.budgets import SIZE_BUDGETS
from tests.helpers.events import finished

calibrations = pytest.importorskip("kfuzz.features.lab.grade.grading")
Calibrations: Any = calibrations.Calibrations
statement = pytest.importorskip("kfuzz.features.lab.grade.statement")

Impostor = dict[str, bool]
_names = map("k{}".format, itertools.count())


def bind(operator: Operator, function: Any, **claims: Any) -> BoundKernel:
    return kernel(operator, name=next(_names), **claims)(function)


def case(seed: int, family: str = "randn", shape: tuple[int, ...] = (4, 8)) -> Case:
    axes = tuple(f"d{i}" for i in range(len(shape)))
    return Case({"x": TensorSpec(shape, axes, "float32", fill=Fill(family, seed))})


@pytest.fixture
def all_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "is_tried", lambda case: not case.pinned)


def tried(bound: BoundKernel, *cases: Case, classes: Any = CLASSES) -> list[Impostor]:
    evaluator = Evaluator(bound, setting_of("cpu", SIZE_BUDGETS["cpu"], classes))
    reports = [evaluator.judge(c, Depth.SEARCH) for c in cases]
    assert not any(r.failure or r.error for r in reports)
    return [r.baselines for r in reports]


@pytest.mark.usefixtures("all_tried")
def test_a_judgement_refuses_what_computes_nothing() -> None:
    first, second = tried(bind(ops.exp, torch.exp), case(1), case(2))
    assert first == {"zeros": True, "NaN": True, "a copy of an input": True}
    assert second == {**first, "the results of the case before": True}


@pytest.mark.usefixtures("all_tried")
def test_a_judgement_without_power_admits_impostors() -> None:
    def thrice(x: Tensor) -> Tensor:
        return 3 * x

    undecided = Operator(
        "vague",
        inputs={"x": tensors("*")},
        oracle=thrice,
        error_model=kfuzz.numerics.elementwise(ulps=2.0**40),
    )
    told = tried(bind(undecided, thrice), case(1), case(2))[1]
    assert told == {
        "zeros": False, "NaN": True, "a copy of an input": False,
        "the results of the case before": False,
    }  # fmt: skip


@pytest.mark.usefixtures("all_tried")
def test_nothing_is_tried_where_nothing_judges_values() -> None:
    relu = bind(ops.relu, torch.relu)
    assert tried(relu, case(1), classes={"K-MEM-01"}) == [{}]
    pinned = Evaluator(relu, setting_of("cpu", SIZE_BUDGETS["cpu"], CLASSES)).pin(
        case(1)
    )
    assert tried(relu, pinned) == [{}]


RELU = bind(ops.relu, torch.relu)


def search_of(bound: BoundKernel) -> Any:
    """Return the search of a kernel."""
    return SimpleNamespace(
        node_id="a.py::k",
        loaded=SimpleNamespace(kernel=bound, target=Target("a.py", "k")),
        record=SimpleNamespace(baselines={}),
    )


def told(kernel: Any) -> list[tuple[str, str]]:
    return [(n.about, n.message) for n in watched(kernel)]


def test_an_impostor_is_told_where_no_case_of_several_refused_it() -> None:
    search = search_of(RELU)
    search.record.baselines = {
        "zeros": (8, 0),
        "NaN": (40, 1),
        "a copy of an input": (7, 0),
    }
    [(about, text)] = told(search)
    assert about == "impostor"
    assert "zeros" in text


def warned(
    calibrations: Any,
    bound: BoundKernel,
    decided: Sequence[str] = ("K-VAL-01", "C-PRC-02"),
) -> list[Notice]:
    tallies = {name: ContractTally(Verdict.CONFORMS, 9) for name in decided}
    tallies["C-ORD-02"] = ContractTally(Verdict.NOT_APPLICABLE)
    result = finished(contracts=tallies)
    return list(calibrations.warn([search_of(bound)], [result]))


def test_contracts_that_nothing_calibrates_are_reported() -> None:
    # No unstable formula of relu is in use; those of others are told from stable ones.
    assert warned(Calibrations("cpu", None), RELU) == []
    own = replace(ops.relu, name="my_relu")
    [notice] = warned(Calibrations("interpret", None), bind(own, torch.relu))
    assert notice.about == "uncalibrated"
    assert "my_relu (your own)" in notice.message


def test_a_calibration_made_here_goes_before_what_is_kept(tmp_path: Path) -> None:
    sound = [
        statement.ContractCalibration(f"{name}/relu", Soundness.SOUND)
        for name in ("K-VAL-01", "C-PRC-02")
    ]
    file = tmp_path / "calibration.json"
    for contracts, expected in ((sound, []), (sound[1:], ["relu (K-VAL-01)"])):
        made = statement.Calibration(
            0, 1, 1, "cpu", Fingerprint(python="3.11"), tuple(contracts), ()
        )
        file.write_text(json.dumps({"format": 1, "calibration": encode(made)}))
        notices = warned(Calibrations("cpu", file), RELU)
        assert [n.message.split(": ")[1] for n in notices] == expected
    file.write_text("{}")
    with pytest.raises(KfuzzError):
        Calibrations("cpu", file)
