"""Which findings of a kernel are one fault."""

from dataclasses import replace

import pytest

from kfuzz.core.finding import Explanation, Finding
from kfuzz.core.verdict import Feature, Kind
from kfuzz.engine.search.found import needs_alike
from tests.helpers.findings import finding


def made(kind: Kind, *lines: str, features: tuple[Feature, ...] = ()) -> Finding:
    signature = replace(finding().signature, contract="K-VAL-01", kind=kind)
    explanation = Explanation(features, lines)
    return finding(signature=signature, explanation=explanation)


@pytest.mark.parametrize(
    ("line", "same"),
    [
        ("fails where S < W: passes at x [2]; fails at x [1]", True),
        ("passes with window = None", True),
        # No need, or none that is known.
        ("fails also at other shapes, in float16", False),
        ("passes at x [2]; fails at x [1]", False),
    ],
)
def test_one_need_makes_two_findings_one_fault(line: str, same: bool) -> None:
    one, other = made(Kind.VALUE, line), made(Kind.NAN_UNEXPECTED, line)
    assert needs_alike(one, other) is same
    # Which class it is attributed to is a matter of the numbers that were drawn.
    cancels = replace(other, signature=replace(other.signature, contract="C-PRC-02"))
    assert needs_alike(one, cancels) is same
    beside = replace(other, signature=replace(other.signature, output="index"))
    assert not needs_alike(one, beside)


def test_further_values_of_a_scalar_are_further_needs() -> None:
    one = made(Kind.VALUE, "fails where W > 1: passes at x [1]", "passes with d = 1")
    also = "fails where W > 1: passes at x [2]"
    other = made(Kind.INF_MISSING, also, "passes with d = 1 and 2")
    assert needs_alike(one, other)
    assert not needs_alike(other, made(Kind.VALUE, "passes with d = 12"))


def test_what_needs_nothing_is_no_likeness() -> None:
    assert not needs_alike(made(Kind.VALUE), made(Kind.NAN_UNEXPECTED))


def test_other_conditions_are_other_faults() -> None:
    one = made(Kind.VALUE, "fails where S < W: passes at x [2]; fails at x [1]")
    other = made(Kind.NAN_UNEXPECTED, "fails where B > 1: passes at x [1]")
    assert not needs_alike(one, other)


@pytest.mark.parametrize("line", ["", "fails where S < W: passes at x [2]"])
def test_formats_and_magnitudes_alone_are_no_likeness(line: str) -> None:
    features = (Feature.SIXTEEN_BIT, Feature.MAGNITUDE)
    lines = (line,) if line else ()
    one = made(Kind.VALUE, *lines, features=features)
    other = made(Kind.INF_UNEXPECTED, *lines, features=features)
    assert needs_alike(one, other) is bool(line)
    fewer = made(Kind.VALUE, features=features[:1])
    assert not needs_alike(fewer, other)


def test_a_layout_that_both_need_is_one_fault_whatever_it_breaks() -> None:
    features = (Feature.NON_CONTIGUOUS,)
    one = made(Kind.READ_OUTSIDE, features=features)
    other = made(Kind.VALUE, features=features)
    moved = replace(other, signature=replace(other.signature, output="index"))
    assert needs_alike(one, moved)
