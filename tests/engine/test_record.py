import math
from dataclasses import replace

from kfuzz.core.budget import Burst, Screened
from kfuzz.core.event import ContractTally
from kfuzz.core.finding import Explanation
from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.core.verdict import CaseReport, Failure, Kind, State, Tried, Verdict
from kfuzz.engine.search.record import Record
from tests.helpers.findings import finding

CASE = Case({"x": TensorSpec((2,), ("N",), "float32", fill=Fill("randn"))})


def test_a_failure_that_was_not_told_apart_leaves_open_what_it_may_be() -> None:
    every = frozenset({"K-VAL-01", "C-CMP-03", "K-MET-01"})
    record = Record(every, ("float32",))
    record.take(CASE, CaseReport(dict.fromkeys(every, Verdict.CONFORMS)))
    base = finding(state=State.CONFIRMED)
    base = replace(base, signature=replace(base.signature, contract="K-VAL-01"))
    for explanation, left in (
        (Explanation(), Verdict.CONFORMS),
        (Explanation(complete=False), Verdict.UNDER_SPECIFIED),
        (None, Verdict.UNDER_SPECIFIED),
    ):
        tallies = record.tallies([replace(base, explanation=explanation)], every)
        assert tallies["K-VAL-01"].verdict is Verdict.VIOLATES
        assert tallies["C-CMP-03"].verdict is left
        assert tallies["K-MET-01"].verdict is Verdict.CONFORMS


def test_a_case_counts_by_the_elements_of_its_largest_tensor() -> None:
    record = Record(frozenset({"K-VAL-01"}), ("float32",))
    decided = CaseReport({"K-VAL-01": Verdict.CONFORMS})
    wide = CASE.with_tensor(
        "y", TensorSpec((300, 2), ("M", "N"), "float32", fill=Fill("randn"))
    )
    record.take(CASE, decided, 0.5)
    record.take(CASE, decided, 0.5)
    record.take(wide, decided, 2.0)
    record.take(wide.with_tensor("z", CASE.tensors["x"]), CaseReport({}), 4.0)
    assert record.tried(0, 256) == Tried(2, 1, 0, 1.0, most=256)
    assert record.tried(256, 4096) == Tried(1, 1, 1, 6.0, 256, 4096)
    assert record.tried(4096) == Tried(above=4096)
    assert record.largest == {"N": 2, "M": 300}


def test_the_items_of_a_batch_count_as_cases_of_one_structure() -> None:
    record = Record(frozenset({"K-VAL-01"}), ("float32",))
    passed = Screened(passed=8, conforms={"K-VAL-01": 8})
    record.take_batch(Burst(CASE, 8), passed, 1.5)
    assert record.tried(0, 256) == Tried(8, 1, 1, 1.5, most=256)


def test_the_worst_error_of_each_dtype_counts_failing_cases() -> None:
    record = Record(frozenset({"K-VAL-01"}), ("float32",))
    half = CASE.with_tensor("x", replace(CASE.tensors["x"], dtype="float16"))
    decided = {"K-VAL-01": Verdict.VIOLATES}
    wrong = Failure("K-VAL-01", Kind.VALUE, "off", ratio=40.0)
    record.take(CASE, CaseReport({"K-VAL-01": Verdict.CONFORMS}, ratio=1.5))
    record.take(half, CaseReport(decided, wrong, ratio=40.0))
    assert record.dtypes_drawn == ["float16", "float32"]
    assert [record.tried(dtype=d).worst for d in record.dtypes_drawn] == [40.0, 1.0]
    record.take(half, CaseReport(decided, Failure("K-LIV-01", Kind.HANG, "hangs")))
    assert record.tried().worst == math.inf
    assert record.worst == 1.0


def test_where_one_value_alone_is_allowed_a_miss_has_its_number_from_the_report() -> (
    None
):
    for kind, worst in ((Kind.VALUE, 575.5), (Kind.NAN_MISSING, math.inf)):
        record = Record(frozenset({"K-VAL-01"}), ("float32",))
        wrong = Failure("K-VAL-01", kind, "off", ratio=None)
        decided = {"K-VAL-01": Verdict.VIOLATES}
        record.take(CASE, CaseReport(decided, wrong, ratio=575.5))
        assert record.tried().worst == worst


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


MEMORY = {"K-MEM-01": Verdict.CONFORMS, "K-LIV-01": Verdict.CONFORMS}
BOTH = frozenset({"K-VAL-01", "K-MEM-01", "K-LIV-01"})


def verdicts(record: Record) -> dict[str, Verdict]:
    return {n: t.verdict for n, t in record.tallies([], BOTH).items()}


def test_memory_alone_conforms_to_nothing() -> None:
    record = Record(BOTH, ("float32",))
    for _ in range(3):
        record.take(CASE, CaseReport(MEMORY))
    assert Verdict.CONFORMS not in verdicts(record).values()
    assert "there is nothing to compare in every case" in record.uncompared([], "")
    record.take(CASE, CaseReport({**MEMORY, "K-VAL-01": Verdict.CONFORMS}))
    assert set(verdicts(record).values()) == {Verdict.CONFORMS}
    assert record.uncompared([], "") == ""


def test_why_no_value_was_compared() -> None:
    record = Record(BOTH, ("float32",))
    assert record.uncompared([], "time was up") == "time was up"
    record.take(CASE, refused("RuntimeError: no half", "dtype float16"))
    told = record.uncompared([], "time was up")
    assert told == "the kernel rejected every case: RuntimeError: no half"
    undecided = CaseReport({"K-VAL-01": Verdict.UNDER_SPECIFIED})
    for _ in range(2):
        record.take(CASE, replace(undecided, notes=("y is undecided: no rule",)))
    assert record.uncompared([], "") == (
        "the error model decides nothing in 2 of 3 cases: y is undecided: no rule; "
        "the kernel rejected 1 of 3 cases: RuntimeError: no half"
    )


def test_failing_cases_count_for_the_contract_of_their_finding() -> None:
    """Most are judged by values alone; one was diagnosed, and broke another."""
    found = finding()  # C-PRC-01, a wrong value in "out"
    record = Record(frozenset({"K-VAL-01", "C-PRC-01"}), ("float32",))
    failure = Failure("K-VAL-01", Kind.VALUE, "off by 3", "out")
    for _ in range(3):
        record.take(
            found.case, CaseReport({"K-VAL-01": Verdict.VIOLATES}, failure=failure)
        )
    for contract in ("K-VAL-01", "C-PRC-01"):
        record.take(found.case, CaseReport({contract: Verdict.CONFORMS}))
    tallies = record.tallies([found], record.classes)
    assert tallies["C-PRC-01"] == ContractTally(Verdict.VIOLATES, 4, 0, 3)
    assert tallies["K-VAL-01"].verdict is Verdict.CONFORMS
    assert tallies["K-VAL-01"].failed == 0
    # Another finding, not attributed in time, may be of it: those three are not.
    other = finding(
        signature=replace(found.signature, contract="C-EXC-01", kind=Kind.NAN_MISSING),
        explanation=Explanation(complete=False),
    )
    tallies = record.tallies([found, other], record.classes)
    assert tallies["K-VAL-01"] == ContractTally(Verdict.UNDER_SPECIFIED, 1, 0, 0)
