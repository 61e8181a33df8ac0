"""What a fault beside a page is found out to be, by running the case again."""

from dataclasses import replace

import pytest

from kfuzz.core.recipe import Case, Destination, Edge, TensorSpec
from kfuzz.core.verdict import Allocation, CaseReport, Failure, Kind, Verdict
from kfuzz.engine.workers.runner import Answer, answer_of, is_flush, locate, measure

ALIGNMENT = 16


def case_of(edge, *, n=4, dtype="float32", size=4, offset=0):
    def spec():
        return TensorSpec((n,), ("d0",), dtype, None, offset, values=bytes(n * size))

    return Case({"x": spec(), "y": spec()}, edge=edge)


def kernel(
    *, argument="x", past=0, before=0, writes=False, crashes=False, size=4,
    alignment=ALIGNMENT,
):  # fmt: skip
    """Return what a kernel that touches so many bytes outside shows on the CPU."""
    asked = []

    def ask(case):
        asked.append(case)
        struck = dies(case)
        return Answer(struck, bool(struck and case.edge and case.edge.readable))

    def dies(case):
        edge = case.edge
        if crashes:
            return True
        if edge is None or edge.argument not in ("", argument):
            return False
        if edge.readable and not writes:
            return False
        spec = case.memory(argument)
        if edge.side == "end":
            stop = -(-edge.slack // alignment) * alignment
            gap = -(spec.offset + spec.span) * size % alignment
            return past > stop + gap
        gap = spec.offset * size + -(-edge.slack // alignment) * alignment
        return before > gap

    ask.asked = asked
    return ask


def found(case, dies):
    located = locate(case, dies)
    assert located is not None
    return located[0], measure(*located, dies, ALIGNMENT)


@pytest.mark.parametrize("writes", [False, True])
@pytest.mark.parametrize("argument", ["x", "y"])
def test_argument_side_and_direction_are_found(argument, writes):
    dies = kernel(argument=argument, past=4, writes=writes)
    case, failure = found(case_of(Edge("end")), dies)
    assert case.edge == Edge("end", argument)
    verb, kind = ("read of", Kind.READ_OUTSIDE)
    if writes:
        verb, kind = ("write to", Kind.WRITE_OUTSIDE)
    assert (failure.contract, failure.kind, failure.output) == (
        "K-MEM-01", kind, argument,
    )  # fmt: skip
    assert failure.message == (
        f"out-of-bounds {verb} {argument}: 1 to 4 elements past the end "
        f"(guard page; {argument} is aligned to 16 bytes)"
    )
    [access] = failure.accesses
    assert (access.access, access.argument) == ("store" if writes else "load", argument)
    assert (access.where, access.distance, access.offset) == ("after", 1, 4)


@pytest.mark.parametrize(
    ("past", "least", "most"),
    [(4, 1, 4), (16, 1, 4), (17, 5, 8), (100, 25, 28), (4000, 997, 1000)],
)
def test_the_distance_is_bisected_to_the_alignment(past, least, most):
    dies = kernel(past=past)
    _, failure = found(case_of(Edge("end")), dies)
    assert f": {least} to {most} elements past the end (" in failure.message
    assert failure.accesses[0].distance == least
    assert len(dies.asked) < 30


def test_elements_as_wide_as_the_alignment_are_counted_exactly():
    dies = kernel(past=8, size=8, alignment=8)
    case = case_of(Edge("end"), n=3, dtype="float64", size=8)
    failure = measure(*locate(case, dies), dies, 8)
    assert (
        failure.message
        == "out-of-bounds read of x: 1 element past the end (guard page)"
    )


def test_what_lies_between_the_view_and_the_page_counts():
    _, failure = found(case_of(Edge("start"), offset=3), kernel(before=16))
    assert ": 4 to 7 elements before the start" in failure.message
    assert failure.accesses[0].offset == -4
    _, failure = found(case_of(Edge("end"), n=5), kernel(past=16))
    assert ": 4 to 7 elements past the end" in failure.message


def test_an_access_without_end_is_only_called_far():
    _, failure = found(case_of(Edge("end")), kernel(past=1 << 40))
    assert ": more than " in failure.message


def test_a_destination_may_be_to_blame():
    given = {"z": Destination((4,), "float32", (2,))}
    case = replace(case_of(Edge("end")), destinations=given)
    case, failure = found(case, kernel(argument="z", past=24, writes=True))
    assert case.edge == Edge("end", "z")
    assert (failure.kind, failure.output) == (Kind.WRITE_OUTSIDE, "z")
    # Seven elements from the first to the last: a gap of four bytes to the page.
    assert "6 to 9 elements past the end" in failure.message


def test_the_other_side_is_tried_too():
    case, failure = found(case_of(Edge("end")), _either(kernel(before=4)))
    assert case.edge == Edge("start", "x")
    assert failure.accesses[0].where == "before"


def _either(inner):
    """Die at any edge of all arguments, else as told."""
    return lambda case: (
        Answer(True) if case.edge and not case.edge.argument else inner(case)
    )


def test_a_crash_that_needs_no_page_stays_a_crash():
    assert locate(case_of(Edge("end")), kernel(crashes=True)) is None
    assert locate(case_of(None), kernel(past=4)) is None


def test_a_death_that_no_single_argument_brings_back_stays_a_crash():
    assert locate(case_of(Edge("end")), kernel(past=0)) is None


def test_only_what_touches_the_page_says_that_nothing_is_touched():
    assert is_flush(case_of(Edge("end", "x"), n=4), ALIGNMENT)
    assert not is_flush(case_of(Edge("end", "x"), n=5), ALIGNMENT)
    assert is_flush(case_of(Edge("start", "x"), n=5), ALIGNMENT)
    assert not is_flush(case_of(Edge("start", "x"), n=4, offset=4), ALIGNMENT)


OWN = Allocation("its own float32[100]", elements=100, itemsize=4)


def on_a_device(*, argument="x", own=None, past=4, writes=False, fence=1 << 25):
    """Return what a kernel shows on a GPU that touches so many bytes past the end.

    Args:
        argument: whose end it passes, where it is no allocation's.
        own: number of the allocation whose end it passes.
        past: bytes.
        writes: whether it writes there.
        fence: bytes that can be read and written where the fence is readable.
    """
    made = [Allocation("its own int32[8]", 8, 4), OWN]
    asked = []

    def ask(case):
        asked.append(case)
        edge = case.edge
        if edge is None:
            return Answer(False)
        named = made[edge.allocation : edge.allocation + 1] if edge.allocation else []
        if edge.allocation == 0:
            named = made[:1]
        beside = named[0] if named else None
        meant = own if edge.argument == "" else argument
        mine = edge.allocation if edge.argument == "" else edge.argument
        everything = edge.argument == "" and edge.allocation is None
        if edge.side != "end" or not (everything or (meant == mine is not None)):
            return Answer(False, beside=beside)
        step = 256 if own is not None else ALIGNMENT
        nbytes = made[own].elements * 4 if own is not None else 16
        gap = -nbytes % step + -(-edge.slack // step) * step
        if edge.readable:
            return Answer(past > gap + fence, writes and past <= gap + fence, beside)
        return Answer(past > gap, beside=beside)

    ask.asked = asked
    return ask


@pytest.mark.parametrize("writes", [False, True])
def test_on_a_device_changed_bytes_tell_a_write(writes):
    case, failure = found(case_of(Edge("end")), on_a_device(past=20, writes=writes))
    assert case.edge == Edge("end", "x")
    assert failure.kind is (Kind.WRITE_OUTSIDE if writes else Kind.READ_OUTSIDE)
    assert ": 5 to 8 elements past the end" in failure.message


def test_an_access_beyond_a_fence_that_can_be_touched_is_of_either_kind():
    ask = on_a_device(past=1 << 30, writes=True)
    _, failure = found(case_of(Edge("end")), ask)
    assert failure.message.startswith("out-of-bounds access to x: more than ")
    assert failure.accesses[0].access == "access"


@pytest.mark.parametrize("own", [0, 1])
def test_an_allocation_of_the_kernels_own_may_be_to_blame(own):
    ask = on_a_device(argument="", own=own, past=1024)
    located = locate(case_of(Edge("end")), ask, allocations=True)
    assert located is not None
    case, failure = located[0], measure(*located, ask, ALIGNMENT)
    assert case.edge == Edge("end", allocation=own)
    assert (failure.kind, failure.output) == (Kind.READ_OUTSIDE, "")
    [access] = failure.accesses
    assert access.argument == ""
    name, gap = (OWN.memory, 112) if own else ("its own int32[8]", 224)
    least = (gap + (1024 - gap - 1) // 256 * 256) // 4 + 1
    assert access.memory == name
    assert failure.message == (
        f"out-of-bounds read of {name}: {least} to {least + 63} elements past the end "
        "(guard page; it is aligned to 256 bytes)"
    )
    assert access.offset == (100 if own else 8) + least - 1


def report_of(kind, *, detail="", output="", contract="K-LIV-01"):
    failure = Failure(contract, kind, "", output=output, detail=detail)
    return CaseReport({contract: Verdict.VIOLATES}, failure=failure)


def test_a_write_is_told_by_the_fence_that_can_be_read():
    readable = case_of(Edge("end", "x", readable=True))
    crash = report_of(Kind.CRASH, detail="SIGSEGV")
    assert answer_of(readable, crash) == Answer(True, True)
    assert answer_of(case_of(Edge("end", "x")), crash) == Answer(True, False)

    def write(output):
        return report_of(Kind.WRITE_OUTSIDE, output=output, contract="K-MEM-01")

    assert answer_of(readable, write("x")) == Answer(False, True)
    assert answer_of(readable, write("y")) == Answer(False, False)
