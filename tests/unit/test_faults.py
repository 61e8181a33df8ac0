"""What a fault beside a page is found out to be, by running the case again."""

from dataclasses import replace

import pytest

from kfuzz.core.recipe import Case, Destination, Edge, TensorSpec
from kfuzz.core.verdict import Kind
from kfuzz.engine.faults import is_flush, locate, measure

ALIGNMENT = 16


def case_of(edge, *, n=4, dtype="float32", size=4, offset=0):
    def spec():
        return TensorSpec((n,), ("d0",), dtype, None, offset, values=bytes(n * size))

    return Case({"x": spec(), "y": spec()}, edge=edge)


def kernel(
    *, argument="x", past=0, before=0, writes=False, crashes=False, size=4,
    alignment=ALIGNMENT,
):  # fmt: skip
    """Return whether a kernel that touches so many bytes outside dies on a case."""
    asked = []

    def dies(case):
        asked.append(case)
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

    dies.asked = asked
    return dies


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
    verb, kind = ("reads", Kind.READ_OUTSIDE)
    if writes:
        verb, kind = ("writes", Kind.WRITE_OUTSIDE)
    assert (failure.contract, failure.kind, failure.output) == (
        "K-MEM-01", kind, argument,
    )  # fmt: skip
    assert failure.message == (
        f"{verb} outside {argument}: 1 to 4 elements past the end "
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
    assert failure.message == "reads outside x: 1 element past the end (guard page)"


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
        (case.edge is not None and not case.edge.argument) or inner(case)
    )


def test_a_crash_that_needs_no_page_stays_a_crash():
    assert locate(case_of(Edge("end")), kernel(crashes=True)) is None
    assert locate(case_of(None), kernel(past=4)) is None


def test_a_death_that_no_single_argument_brings_back_stays_a_crash():
    assert locate(case_of(Edge("end")), kernel(past=0)) is None


def test_a_named_argument_is_asked_about_alone():
    dies = kernel(argument="y", past=4)
    case = case_of(Edge("end", "y"))
    assert locate(case, dies) is not None
    assert {c.edge.argument for c in dies.asked if c.edge} == {"y"}
    assert locate(replace(case, edge=Edge("end", "x")), dies) is None


def test_only_what_touches_the_page_says_that_nothing_is_touched():
    assert is_flush(case_of(Edge("end", "x"), n=4), ALIGNMENT)
    assert not is_flush(case_of(Edge("end", "x"), n=5), ALIGNMENT)
    assert is_flush(case_of(Edge("start", "x"), n=5), ALIGNMENT)
    assert not is_flush(case_of(Edge("start", "x"), n=4, offset=4), ALIGNMENT)
