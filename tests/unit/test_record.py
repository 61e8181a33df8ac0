from kfuzz.core.event import Note
from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.core.verdict import CaseReport
from kfuzz.engine.record import Record

CASE = Case({"x": TensorSpec((2,), ("N",), "float32", fill=Fill("randn"))})


def test_notes_are_counted_by_their_text() -> None:
    record = Record(frozenset({"K-VAL-01"}), ("float32",))
    for notes in (("stale", "races"), (), ("stale",)):
        record.take(CASE, CaseReport({}, notes=notes))
    assert record.notes() == (Note("races", 1), Note("stale", 2))
