"""What a search has visited, what it lacks, and what it climbs."""

import math
from dataclasses import replace

import pytest

from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.core.verdict import CaseReport, Verdict
from kfuzz.engine.search.plan import scores
from kfuzz.engine.search.record import Ledger, shape_class_of, stratum_of

FAMILIES = ("randn", "ones", "zeros", "cancel")


def spec(shape: tuple[int, ...], **changes: object) -> TensorSpec:
    axes = tuple(f"d{i}" for i in range(len(shape)))
    made = TensorSpec(shape, axes, "float32", fill=Fill("randn"))
    return replace(made, **changes)  # type: ignore[arg-type]


def case(
    shape: tuple[int, ...] = (4, 40), family: str = "randn", **changes: object
) -> Case:
    return Case({"x": spec(shape, fill=Fill(family), **changes)})


@pytest.mark.parametrize(
    ("shape", "axis", "expected"),
    [
        ((), -1, "0-d"),
        ((3, 0), -1, "empty"),
        ((1,), -1, "one one"),
        ((1, 5), -2, "one several"),
        ((8,), -1, "small one"),
        ((2, 15), -1, "beside several"),
        ((2, 16), -1, "tile several"),
        ((2, 1, 17), -1, "beside several"),
        ((1, 1, 1024), -1, "tile one"),
        ((1025,), -1, "beside one"),
        ((1040,), -1, "large one"),
        ((100, 7), -2, "between several"),
    ],
)
def test_shapes_are_classed_by_the_structured_axis_and_the_rest(
    shape: tuple[int, ...], axis: int, expected: str
) -> None:
    assert shape_class_of(spec(shape, fill=Fill("randn", axis=axis))) == expected


def test_cases_that_differ_in_their_bits_alone_share_a_stratum() -> None:
    one, other = case((4, 40)), case((3, 41))
    assert stratum_of(one) == stratum_of(replace(other, poison="nan"))
    ledger = Ledger()
    ledger.visit(one)
    ledger.visit(other)
    for different in (
        case(family="ones"), case((4, 33)), case(dtype="float16"), case(offset=1)
    ):  # fmt: skip
        ledger.visit(different)
    assert sorted(ledger.visits.values()) == [1, 1, 1, 1, 2]


def test_the_least_visited_is_wanted_first_near_the_case_and_then_anywhere() -> None:
    ledger = Ledger()
    for family in ("randn", "randn", "ones"):
        ledger.visit(case(family=family))
    far = case((4, 33))
    for family in ("zeros", "zeros", "cancel"):
        ledger.visit(far, family=family)
    wanting = ledger.wanting("family", FAMILIES, like=case(), count=4)
    assert wanting == ("cancel", "zeros", "ones", "randn")
    assert ledger.wanting("family", FAMILIES, count=2) == ("ones", "cancel")
    assert ledger.wanting("dtype", ("float32", "float16")) == ("float16",)
    assert ledger.wanting("family", ("ones", "ones"), count=3) == ("ones",)


def test_every_output_is_climbed_on_its_own() -> None:
    verdicts = {"K-VAL-01": Verdict.CONFORMS}
    assert scores(CaseReport(verdicts, ratio=0.25)) == {"error / tolerance": -2.0}
    assert scores(CaseReport(verdicts, ratio=0.0)) == {}
    assert scores(CaseReport(verdicts, ratio=math.inf)) == {"error / tolerance": 60.0}
    both = CaseReport(verdicts, ratio=0.5, ratios={"q": 0.5, "scale": 2.0**-50})
    assert scores(both) == {"error / tolerance q": -1.0}
    many = CaseReport(verdicts, ratio=0.5, ratios=dict.fromkeys("abcd", 0.5))
    assert scores(many) == {"error / tolerance": -1.0}
