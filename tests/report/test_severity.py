"""Findings come the gravest first, and say what input they need."""

import struct
from dataclasses import replace

import pytest

from kfuzz.core.event import FindingSaved
from kfuzz.core.finding import Explanation, Finding
from kfuzz.core.severity import Severity
from kfuzz.core.verdict import Failure, Feature, Kind, Signature
from kfuzz.report.finding_view import finding_lines, view
from kfuzz.report.gathered import Gathered, Shown
from kfuzz.report.text import draw_case, value_text
from kfuzz.store.entry import summary_of
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
    (made("K-LIV-01", Kind.HANG, Feature.NAN), Severity.CRASH),
    (made("K-LIV-01", Kind.RAISES, detail="ValueError"), Severity.CRASH),
    (made("C-CMP-03", Kind.VALUE, Feature.TAIL), Severity.WRONG_VALUE),
    (made("C-PRC-02", Kind.NAN_UNEXPECTED), Severity.WRONG_VALUE),
    (made("K-GRD-01", Kind.VALUE), Severity.WRONG_VALUE),
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
    assert summary_of(one).severity is severity


def test_findings_are_listed_the_gravest_first() -> None:
    run = Gathered()
    for i, (one, _) in enumerate(reversed(ORDER)):
        named = replace(one, signature=replace(one.signature, kernel=f"k{i:02}"))
        run.feed(FindingSaved(f"k.py::k{i:02}", named, "", True, "done"))
    listed = [shown.finding.severity for shown in run.findings]
    assert listed == sorted(severity for _, severity in ORDER)


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


def test_a_nan_of_other_than_the_default_bits_is_drawn_with_its_bits() -> None:
    assert value_text(0x7FC00000, "float32") == "nan"
    assert value_text(0xFFC00000, "float32") == "nan(0xffc00000)"
    assert value_text(0x7F81, "bfloat16") == "nan(0x7f81)"
    one = finding(n=2)
    spec = replace(one.case.tensors["x"], values=struct.pack("<II", 0x7FC00001, 0))
    [drawn, _] = draw_case(one.case.with_tensor("x", spec))
    assert drawn.endswith("= [[nan(0x7fc00001), 0]]")
