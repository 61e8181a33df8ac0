"""What fresh children are asked while a finding is taken to its minimum."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kfuzz.core.budget import Depth
from kfuzz.core.finding import Finding
from kfuzz.core.recipe import Case, TensorSpec
from kfuzz.core.verdict import CaseReport, Failure, Kind, State
from kfuzz.engine.confirm import process, recorded
from tests.helpers.findings import finding

Fails = Callable[[Case], bool]


class Scripted:
    """A runner whose kernel fails on some cases; FULL tells another class.

    Attributes:
        fresh: elements and depths of every question to fresh children.
        undiagnosed: whether telling the classes apart takes too long.
        prepared: how often children were told to get ready.
    """

    def __init__(self, fails: Fails, *, fails_fresh: Fails | None = None) -> None:
        self.fails = fails
        self.fails_fresh = fails_fresh or fails
        self.fresh: list[tuple[int, tuple[str, ...]]] = []
        self.prepared = 0
        self.undiagnosed = False
        self.hanging, self.fault, self.records_count = False, None, False
        self.distinguishes, self.predicted = True, 0.0
        kernel = SimpleNamespace(
            name="softmax",
            operator=SimpleNamespace(
                accepts=lambda case, claims: True,
                inputs={},
                settled=lambda sizes, case: sizes,
                following=lambda case, values: {},
            ),
            declaration=SimpleNamespace(dtypes=("float32",), alignment=16),
        )
        self.loaded = SimpleNamespace(kernel=kernel)

    def accepts(self, case: Case) -> bool:
        return True

    def seen_often(self, failure: Failure) -> bool:
        return False

    def prepare(self, children: int) -> None:
        self.prepared += 1

    def judge(self, case: Case, depth: str, patience: float = 0) -> CaseReport:
        return self._report(self.fails(case), depth)

    def judge_fresh(self, case: Case, depths: Sequence[str]) -> list[CaseReport]:
        self.fresh.append((case.elements, tuple(depths)))
        return [self._report(self.fails_fresh(case), depth) for depth in depths]

    def diagnose(
        self, case: Case, seconds: float, *, fresh: bool, sizes: bool = True
    ) -> CaseReport | None:
        if self.undiagnosed:
            return None
        [report] = self.judge_fresh(case, [Depth.FULL])
        return report

    def _report(self, fails: bool, depth: str) -> CaseReport:
        if not fails:
            return CaseReport({})
        contract = "C-CMP-03" if depth == Depth.FULL else "K-VAL-01"
        failure = Failure(contract, Kind.VALUE, "wrong", "out")
        return CaseReport({}, failure=failure)


def found(n: int) -> Finding:
    spec = TensorSpec((1, n), ("M", "N"), "float32", values=b"\x00\x00\x80\x3f" * n)
    failure = Failure("K-VAL-01", Kind.VALUE, "wrong", "out")
    return replace(
        finding(),
        case=Case({"x": spec}),
        failure=failure,
        signature=failure.signature("softmax"),
        state=State.NEW,
        explanation=None,
        reduction=None,
    )


def taken(
    runner: Any, start: Finding, *, seconds: float = 60.0
) -> tuple[Finding, list[Finding]]:
    saved: list[Finding] = []

    def save(now: Finding) -> Finding:
        saved.append(now)
        return now

    final = process(
        runner, start, seconds=lambda: seconds, stopped=lambda: False, save=save
    )
    return final, saved


CONFIRMED = (Depth.SEARCH, Depth.SEARCH, Depth.SEARCH)


def test_the_classes_are_told_apart_once_in_a_fresh_child_at_the_minimum() -> None:
    runner = Scripted(lambda case: case.elements >= 3 and case.elements % 16 > 0)
    final, saved = taken(runner, found(20))
    # Each time it is confirmed, and stored, before anything is asked to explain it.
    # At last the input as first found is asked whether it has the same cause.
    first = (found(20).first.elements, (Depth.FULL,))
    assert runner.fresh == [(20, CONFIRMED), (3, CONFIRMED), (3, (Depth.FULL,)), first]
    told = [(f.case.elements, f.signature.contract) for f in saved]
    assert told == [(20, "K-VAL-01"), (3, "K-VAL-01"), (3, "C-CMP-03")]
    assert final.state is State.CONFIRMED
    assert final.explanation is not None
    assert "tail" in [str(f) for f in final.explanation.features]
    [line] = final.explanation.lines
    assert line.startswith(
        "fails where N > 2 and N is no multiple of 16: passes at x [2]"
    )
    assert runner.prepared


def test_what_an_explanation_says_to_pass_fails_in_no_other_way_either() -> None:
    """While it is made small a case is put to what can show the symptom, no longer."""

    class Unwritten(Scripted):
        sought: Kind | None = None

        def _report(self, fails: bool, depth: str) -> CaseReport:
            if not fails and self.sought:
                return CaseReport({})
            kind = Kind.UNWRITTEN if fails else Kind.RACE
            contract = "K-MEM-02" if fails else "K-DET-01"
            return CaseReport({}, failure=Failure(contract, kind, "wrong", "out"))

    runner, start = Unwritten(lambda case: case.elements >= 3), found(20)
    failure = replace(start.failure, contract="K-MEM-02", kind=Kind.UNWRITTEN)
    signature = failure.signature("softmax")
    final, _ = taken(runner, replace(start, failure=failure, signature=signature))
    assert final.state is State.CONFIRMED
    assert final.case.elements == 3
    assert final.explanation is not None
    assert not any("passes" in line for line in final.explanation.lines)


def test_a_slow_case_is_made_small_before_fresh_children_are_asked() -> None:
    runner = Scripted(lambda case: case.elements >= 3)
    runner.predicted = 5.0
    final, saved = taken(runner, found(2000))
    assert [elements for elements, _ in runner.fresh[:2]] == [3, 3]
    assert saved[0].state is State.NEW  # what is known so far is stored
    assert final.state is State.CONFIRMED
    assert final.case.elements == 3


def test_a_slow_case_that_fails_alone_is_confirmed_as_it_was_found() -> None:
    runner = Scripted(
        lambda case: case.elements >= 3, fails_fresh=lambda case: case.elements > 999
    )
    runner.predicted = 5.0
    final, _ = taken(runner, found(2000))
    assert final.state is State.CONFIRMED
    assert final.case.elements == 2000


def test_a_minimum_that_does_not_come_again_leaves_the_case_as_found() -> None:
    runner = Scripted(
        lambda case: case.elements >= 3, fails_fresh=lambda case: case.elements > 9
    )
    final, _ = taken(runner, found(20))
    assert final.case.elements == 20
    assert final.state is State.CONFIRMED
    assert final.signature.contract == "C-CMP-03"
    assert final.reduction is not None
    assert final.reduction.stopped == "the minimum did not reproduce"


def test_without_time_a_finding_is_confirmed_and_no_more() -> None:
    runner = Scripted(lambda case: True)
    final, _ = taken(runner, found(20), seconds=0.0)
    assert runner.fresh == [(20, CONFIRMED)]
    assert final.state is State.CONFIRMED


def test_what_cannot_be_told_apart_in_time_is_confirmed_and_stays_open() -> None:
    runner = Scripted(lambda case: case.elements >= 3)
    runner.undiagnosed = True
    final, _ = taken(runner, found(20))
    assert final.state is State.CONFIRMED
    assert (final.case.elements, final.signature.contract) == (3, "K-VAL-01")
    assert final.explanation is not None
    assert not final.explanation.complete


@pytest.mark.parametrize("counts", [True, False])
def test_what_is_right_at_another_time_counts_where_equal_bits_are_promised(
    counts: bool,
) -> None:
    runner = Scripted(lambda case: True, fails_fresh=lambda case: False)
    runner.records_count = counts
    start = found(4)
    final, saved = taken(runner, start)
    assert saved[-1] is final
    assert final.case == start.case  # the inputs, as bytes
    if not counts:
        assert final.state is State.UNREPRODUCED
        assert final.signature == start.signature
        return
    assert final.state is State.WITNESSED
    assert final.signature.contract == "C-ORD-02"
    assert final.signature.kind is Kind.NONDETERMINISTIC
    assert "right on the same input at another time: wrong" in final.failure.message
    assert "0 of 3 fresh processes" in final.history[-1].note


def test_a_crash_that_no_other_process_shows_proves_nothing() -> None:
    failure = Failure("K-LIV-01", Kind.CRASH, "ends its process", detail="SIGKILL")
    start = replace(found(4), failure=failure, signature=failure.signature("softmax"))
    assert recorded(start, right="0 of 3 fresh processes") is None
    again = recorded(start, right="1 of 3 fresh processes", again=True)
    assert again is not None
    assert again.state is State.WITNESSED
    assert again.signature.contract == "K-LIV-01"


def test_gradients_that_are_wrong_in_another_way_are_a_finding_of_that_way() -> None:
    def wrong(way: str) -> Failure:
        return Failure("K-GRD-01", Kind.VALUE, "wrong", "dx", detail=way)

    runner, start = Scripted(lambda case: True), found(4)
    runner._report = lambda fails, depth: CaseReport({}, failure=wrong("alone"))  # type: ignore[method-assign]
    signature = wrong("again").signature("softmax")
    start = replace(start, failure=wrong("again"), signature=signature)
    final, _ = taken(runner, start, seconds=0.0)
    assert final.state is State.CONFIRMED
    assert final.signature.detail == "alone"
