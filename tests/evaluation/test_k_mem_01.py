"""K-MEM-01 on hand-made evidence: what is charged, in which order, in which words."""

from types import SimpleNamespace

from kfuzz.contracts.classes.memory import K_MEM_01
from kfuzz.core.verdict import Access, Failure, Kind
from kfuzz.numerics.run import AllocationTouch, Run, Touch

LOAD = Access(
    "load", "x", "x", "after", distance=1, offset=3, count=4, program=(0, 0, 0),
    line="softmax.py:41",
)  # fmt: skip
STORE = Access("store", "", "its own float32[4]", "before", distance=2, offset=-2)


def judged(*accesses: Access, **evidence: object) -> Failure | None:
    run = Run(accesses=accesses, **evidence)  # type: ignore[arg-type]
    return K_MEM_01.judge(SimpleNamespace(base=run))  # type: ignore[arg-type]


def test_a_load_outside_is_named_with_line_and_program() -> None:
    failure = judged(LOAD)
    assert failure is not None
    assert (failure.kind, failure.output) == (Kind.READ_OUTSIDE, "x")
    assert failure.message == (
        "out-of-bounds load of x: 1 element past the end, "
        "at softmax.py:41 in program (0, 0, 0)"
    )
    assert failure.accesses == (LOAD,)
    assert failure.elements == 4


def test_writes_come_before_reads() -> None:
    failure = judged(LOAD, STORE)
    assert failure is not None
    assert (failure.kind, failure.output) == (Kind.WRITE_OUTSIDE, "")
    assert failure.message == (
        "out-of-bounds store to its own float32[4]: 2 elements before the start"
    )
    assert failure.accesses == (STORE,)
    touch = Touch("z", "after", count=1, distance=1, itemsize=4)
    failure = judged(LOAD, touches=(touch,))
    assert failure is not None
    assert (failure.kind, failure.output) == (Kind.WRITE_OUTSIDE, "z")
    stray = AllocationTouch(0, (4,), "float32", "after", 1, 1)
    failure = judged(LOAD, strays=(stray,))
    assert failure is not None
    assert failure.kind is Kind.WRITE_OUTSIDE


def test_unwritten_elements_and_races_are_no_access_outside() -> None:
    unwritten = Access("load", "", "its own float32[4]", "unwritten")
    race = Access("store", "", "its own float32[4]", "race")
    inside = Touch("x", "element", count=1, distance=0, itemsize=4)
    assert judged(unwritten, race, touches=(inside,)) is None
