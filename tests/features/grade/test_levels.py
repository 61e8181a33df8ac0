"""Conformance levels: what a statement is worth, and why not more."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kfuzz.core.verdict import Graded, Soundness, Tried, Verdict
from kfuzz.features.lab.grade.grading import _instruments
from kfuzz.features.lab.grade.statement import Instrument, KernelStatement
from kfuzz.features.lab.grade.statement_text import LEVELS, standing_of
from tests.helpers.statements import CLASSES, WELL, but, kernel, statement

VIOLATED = Graded(Verdict.VIOLATES, 20_000, 0, Soundness.SOUND)
UNDECIDED = Graded(Verdict.UNDER_SPECIFIED, 0, 900, Soundness.SOUND)
UNEXERCISED = Graded(Verdict.NOT_APPLICABLE, calibration=Soundness.SOUND)
FAILED = Graded(Verdict.ERROR, 900, 0, Soundness.SOUND)
FEW = replace(WELL, decided=9)


def level_of(made: KernelStatement, **changes: Any) -> int:
    return standing_of(statement(made, **changes), made).level


def test_all_evidence_but_instruments_is_the_third_level() -> None:
    standing = standing_of(statement(), kernel())
    assert standing.level == 3
    assert standing.lacks == ("no page guards", "no race check")


def test_the_fourth_level_needs_instruments_and_a_long_search() -> None:
    every = tuple(Instrument)
    assert level_of(kernel(), instruments=every) == 4
    assert level_of(kernel(cases=9_999), instruments=every) == 3
    shallow = but(kernel(), C_EXC_01=replace(WELL, decided=299))
    assert level_of(shallow, instruments=every) == 3


@pytest.mark.parametrize("bad", [VIOLATED, UNDECIDED, UNEXERCISED, FAILED, FEW])
@pytest.mark.parametrize(
    ("name", "level"), [("K_VAL_01", 0), ("C_EXC_01", 1), ("C_ORD_01", 2)]
)
def test_one_class_without_support_holds_its_level_back(
    name: str, level: int, bad: Graded
) -> None:
    made = but(kernel(), **{name: bad})
    standing = standing_of(statement(made), made)
    assert standing.level == level
    assert [lack.split()[0] for lack in standing.lacks] == [name.replace("_", "-")]


def test_a_class_that_a_share_of_cases_bears_on_needs_a_third_of_them() -> None:
    for name, least in (("C_EXC_01", 30), ("C_PRC_04", 10)):
        enough, lacking = (replace(WELL, decided=n) for n in (least, least - 1))
        assert level_of(but(kernel(), **{name: enough})) == 3
        assert level_of(but(kernel(), **{name: lacking})) == 1


@pytest.mark.parametrize(
    ("tried", "lack"),
    [
        (Tried(99, 60, 9), "99 of 100 cases decided a contract"),
        (Tried(5_000, 19, 9), "19 of 20 structures came"),
    ],
)
def test_a_kernel_barely_tried_has_no_level(tried: Tried, lack: str) -> None:
    made = replace(kernel(), tried=tried)
    standing = standing_of(statement(made), made)
    assert (standing.level, standing.lacks) == (0, (lack,))
    assert level_of(replace(kernel(), tried=Tried(100, 20, 9))) == 3


def test_what_was_left_out_of_the_run_is_not_granted() -> None:
    made = but(kernel(), C_EXC_01=None)
    judged = tuple(name for name in CLASSES if name != "C-EXC-01")
    assert level_of(made, classes=judged) == 1
    # In force, it does not bind this kernel, and demands nothing.
    assert level_of(made) == 3


def test_without_calibration_nothing_counts() -> None:
    raw = replace(WELL, calibration=Soundness.UNCALIBRATED)
    made = kernel(contracts=dict.fromkeys(CLASSES, raw))
    standing = standing_of(statement(made), made)
    assert standing.level == 0
    assert "K-VAL-01 is uncalibrated" in standing.lacks


def test_a_gpu_has_what_the_fourth_level_asks_for() -> None:
    beside_pages = [SimpleNamespace(cases=1, fenced=True)]
    asked = set(LEVELS[3].instruments)
    assert asked <= set(_instruments("cuda", beside_pages))
    assert not asked <= set(
        _instruments("cuda", [SimpleNamespace(cases=1, fenced=False)])
    )
    assert not asked <= set(_instruments("interpret", beside_pages[:0]))
    assert not asked <= set(_instruments("cpu", beside_pages))
