"""Findings come the gravest first, and say what input they need."""

from dataclasses import replace

import pytest

from kfuzz.core.finding import Explanation, Finding, Severity
from kfuzz.core.verdict import Failure, Feature, Kind, Signature
from kfuzz.report.finding_view import finding_lines, view
from kfuzz.report.tables import Shown
from tests.helpers.findings import finding


def made(
    contract: str,
    kind: Kind,
    *features: Feature,
    detail: str = "",
    message: str = "off by 3",
) -> Finding:
    return finding(
        signature=Signature("softmax", contract, kind, "out", detail),
        failure=Failure(contract, kind, message, "out", detail),
        explanation=Explanation(features),
    )


# The gravest first.
ORDER = [
    (made("K-MEM-01", Kind.READ_OUTSIDE), Severity.OUT_OF_BOUNDS),
    (
        made("K-LIV-01", Kind.DEVICE_FAULT, detail="illegal_address"),
        Severity.OUT_OF_BOUNDS,
    ),
    (made("K-LIV-01", Kind.RAISES, detail="ValueError"), Severity.CRASH),
    (made("C-CMP-03", Kind.VALUE, Feature.TAIL), Severity.WRONG_VALUE),
    (
        made("K-GRD-01", Kind.VALUE, message="C-PRC-01 in a gradient: dx is off"),
        Severity.PRECISION,
    ),
    (made("C-PRC-02", Kind.VALUE), Severity.PRECISION),
    (made("C-ORD-02", Kind.NONDETERMINISTIC), Severity.NONDETERMINISM),
    (made("C-EXC-01", Kind.NAN_MISSING), Severity.NONFINITE),
    (made("K-VAL-01", Kind.VALUE, Feature.INF), Severity.NONFINITE),
    (made("K-OWN-01", Kind.FOREIGN_OPERATOR), Severity.LIMIT),
]


@pytest.mark.parametrize(("one", "severity"), ORDER)
def test_each_has_a_severity_that_a_list_shows(
    one: Finding, severity: Severity
) -> None:
    assert one.severity is severity
    assert one.severity is severity


@pytest.mark.parametrize(
    ("one", "needs"),
    [
        (made("C-EXC-01", Kind.NAN_MISSING, Feature.NAN), "needs NaN in the input"),
        (
            made("K-VAL-01", Kind.VALUE, Feature.NAN, Feature.INF),
            "needs NaN and infinity in the input",
        ),
        (made("C-EXC-01", Kind.VALUE), "needs NaN or infinity in the input"),
        (made("K-VAL-01", Kind.NAN_UNEXPECTED, Feature.TAIL), ""),
    ],
)
def test_the_title_says_what_numbers_it_needs(one: Finding, needs: str) -> None:
    head = finding_lines(view(Shown("k.py::softmax", one, "", True)))[0]
    assert needs in head
    assert ("needs" in head) == bool(needs)


@pytest.mark.parametrize(
    ("contract", "near", "severity"),
    [
        ("K-VAL-01", True, Severity.LIMIT),
        ("C-CMP-01", True, Severity.LIMIT),
        ("C-PRC-01", True, Severity.PRECISION),
        ("C-CMP-03", True, Severity.WRONG_VALUE),
        ("K-VAL-01", False, Severity.WRONG_VALUE),
    ],
)
def test_what_another_form_may_give_is_the_least_and_says_how_far_it_is(
    contract: str, near: bool, severity: Severity
) -> None:
    plain = made(contract, Kind.VALUE)
    one = replace(plain, failure=replace(plain.failure, ratio=1.5, near=near))
    assert one.severity is severity
    assert ("1.5 x tolerance" in one.summary) is (severity is Severity.LIMIT)
