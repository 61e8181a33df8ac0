from kfuzz.core.event import Note
from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.core.verdict import CaseReport, Failure, Kind
from kfuzz.engine.search.record import Record

CASE = Case({"x": TensorSpec((2,), ("N",), "float32", fill=Fill("randn"))})


def test_notes_are_counted_by_their_text() -> None:
    record = Record(frozenset({"K-VAL-01"}), ("float32",))
    for notes in (("stale", "races"), (), ("stale",)):
        record.take(CASE, CaseReport({}, notes=notes))
    assert record.notes() == (Note("races", 1), Note("stale", 2))


def recorded(*reports: CaseReport) -> Record:
    record = Record(frozenset(), ("float32", "float16", "bfloat16"))
    for report in reports:
        record.take(CASE, report)
    return record


def refused(message: str, *aspects: str) -> CaseReport:
    """Return what the evaluator tells of a case that a kernel raised on."""
    return CaseReport({}, refusal=aspects[0], example=message, aspects=aspects)


def taken(*aspects: str) -> CaseReport:
    return CaseReport({}, aspects=aspects)


def test_a_refusal_names_what_no_case_taken_has() -> None:
    record = recorded(
        taken("dtype bfloat16"),
        refused("no mask", "dtype bfloat16", "optional tensor mask"),
        refused("no mask", "rank 3", "dtype float16", "optional tensor mask"),
        taken("rank 3", "dtype float16"),
    )
    (told,) = record.refusals()
    assert (told.reason, told.cases) == ("optional tensor mask", 2)
    assert "leave the parameter out of the signature, or of the binding" in told.remedy
    (told,) = recorded(refused("half", "dtype float16")).refusals()
    assert (told.reason, told.remedy) == (
        "dtype float16", "dtypes=('float32', 'bfloat16')",
    )  # fmt: skip


def test_a_refusal_of_two_aspects_together_names_both() -> None:
    record = recorded(
        taken("dtype float16"),
        taken("optional tensor bias"),
        *[refused("bias", "dtype float16", "rank 4", "optional tensor bias")] * 2,
        refused("bias", "dtype float16", "optional tensor bias"),
    )
    (told,) = record.refusals()
    assert (told.reason, told.cases) == ("dtype float16 with optional tensor bias", 3)
    assert told.remedy == ""


def test_a_refusal_of_what_was_taken_too_blames_no_aspect() -> None:
    record = recorded(
        refused("size 31", "dtype float16", "rank 3"), taken("dtype float16", "rank 3")
    )
    (told,) = record.refusals()
    assert told.reason == "some cases beyond the core domain"
    assert (told.remedy, told.example) == ("", "size 31")


def test_what_is_raised_in_the_core_domain_too_is_no_refusal() -> None:
    raises = Failure("K-LIV-01", Kind.RAISES, "raises ValueError: 7 heads, not 4")
    violated = CaseReport({}, failure=raises)
    assert not recorded(refused("3 heads, not 4", "rank 3"), violated).refusals()
    (told,) = recorded(refused("another", "rank 3"), violated).refusals()
    assert told.reason == "rank 3"
