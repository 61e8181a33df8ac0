"""The class of a case follows from what each device's entry says."""

from dataclasses import replace
from typing import Any

from kfuzz.core.finding import Fingerprint
from kfuzz.core.recipe import Case
from kfuzz.features.lab.record import comparing as pages
from kfuzz.features.lab.record.comparing import Told, compare
from kfuzz.features.lab.record.recording import (
    Entry,
    Header,
    Recorded,
    Recording,
    Result,
)

CASE = Case({})
Y = Result("y", "float32", (2,), "bits", "values", "flushed")
Z = replace(Y, name="z")


def entry(**changes: Any) -> Entry:
    made = Entry("0" * 32, CASE, "inputs", 0, "allowed", results=(Y, Z))
    return replace(made, **changes)


def recording(*entries: Entry, **changes: Any) -> Recording:
    made = replace(Recorded("mine", "softmax", {}, entries), **changes)
    header = Header("cpu", Fingerprint(device="a processor"), 0, 1, ("mine.py",))
    return Recording(header, {(made.operator, made.name): made})


def told(*entries: Entry) -> Told:
    (case,) = compare([recording(e) for e in entries]).cases
    return case.told


def outside(**changes: Any) -> Entry:
    missed = replace(Y, values="other", bits="other", missed=1, **changes)
    return entry(outcome="outside", contract="K-VAL-01", results=(missed, Z))


def test_outputs_are_paired_by_name() -> None:
    assert told(entry(), entry(results=(Z, Y))) is Told.EQUAL
    assert told(entry(), entry(results=(Y,))) is Told.UNLIKE
    other = replace(Y, dtype="float16")
    assert told(entry(), entry(results=(other, Z))) is Told.UNLIKE


def test_disagreement_alone_charges_nobody() -> None:
    other = replace(Y, bits="other", values="other", flushed="other")
    assert told(entry(), entry(results=(other, Z))) is Told.ALLOWED


def test_a_probe_names_the_cause_in_the_format_that_it_looked_at() -> None:
    other = entry(results=(replace(Y, bits="other", values="1", flushed="1"), Z))
    for dtype, cause in (("float32", "order of additions"), ("float16", "no probe")):
        a = recording(entry(), probes={f"order/{dtype}/16": "serial"})
        b = recording(other, probes={f"order/{dtype}/16": "in pairs"})
        assert cause in compare([a, b]).cases[0].why


def test_what_is_outside_is_charged_to_it_or_to_the_contract() -> None:
    assert told(entry(), outside()) is Told.OUTSIDE
    assert told(entry(), outside(exact=True)) is Told.EXACT
    assert told(outside(), outside()) is Told.ALL_OUTSIDE


def test_nothing_follows_from_what_was_not_computed_or_not_from_the_same() -> None:
    assert told(entry(), entry(outcome="refused")) is Told.REFUSED
    assert told(outside(), entry(outcome="unjudged")) is Told.UNJUDGED
    assert told(entry(), entry(inputs="others")) is Told.UNLIKE


def test_what_a_recording_says_is_one_line() -> None:
    """It may be a stranger's: no line of it passes for one of the comparison."""
    forged = "gpu\n  equal bits 9000\x1b[2J"
    header = Header(forged, Fingerprint(device=forged), 0, 1, ())
    one = replace(recording(entry()), header=header)
    shown = pages.lines(compare([one, one]))
    assert "equal bits 9000" in "\n".join(shown)
    assert not [s for s in shown if s.startswith("  equal bits 9")]
    assert "\x1b" not in "".join(shown)
