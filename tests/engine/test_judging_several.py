"""Several cases in one message: judged in order, and each answers for itself."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import kfuzz
from kfuzz.contracts import operators as ops
from kfuzz.core.budget import Depth
from kfuzz.core.codec import decode, encode
from kfuzz.core.finding import Target
from kfuzz.core.recipe import Case, TensorSpec
from kfuzz.core.verdict import CaseReport, Failure, Kind, Signature
from kfuzz.engine.workers.children import Place
from kfuzz.engine.workers.runner import Runner
from kfuzz.execution.processes import ChildDied, ChildRaised
from kfuzz.targets.load import LoadedKernel, Source
from tests.helpers.budgets import SIZE_BUDGETS

SOUGHT = Signature("k", "K-VAL-01", Kind.VALUE, "y")
DIED = ChildDied(1, exit_code=None, signal_name="SIGSEGV", output_tail="")
RAISED = ChildRaised(1, "RuntimeError", "out of luck", "")


def case_of(n: int) -> Case:
    spec = TensorSpec((n,), ("N",), "float32", values=bytes(4 * n))
    return Case({"x": spec})


def failing(kind: Kind = Kind.VALUE) -> CaseReport:
    failure = Failure("K-VAL-01", kind, "wrong", output="y")
    return CaseReport({}, failure=failure)


CLEAN = CaseReport({})
Model = Callable[[int], CaseReport | Exception]


class Child:
    """A child that reports what a model says of each number of elements."""

    pid = 0

    def __init__(self, model: Model, spent: int, log: list[Any]) -> None:
        self.model, self.spent, self.log = model, spent, log
        self.reply: Any = None
        self.alive = True

    def send(self, message: dict[str, Any]) -> None:
        match message["do"]:
            case "open":
                self.reply = {"device": "fake", "ailment": "", "unfenced": ""}
            case "judge":
                [report], spent = self._judged([message["case"]], None)
                self.reply = report
                if not isinstance(report, Exception):
                    self.reply = {"report": encode(report), "spent": spent}
            case "judge_each":
                until = decode(Signature, message["until"], "until")
                reports, spent = self._judged(message["cases"], until)
                raised = [r for r in reports if isinstance(r, Exception)]
                self.reply = (
                    raised[0]
                    if raised
                    else {"reports": [encode(r) for r in reports], "spent": spent}
                )

    def _judged(
        self, cases: list[Any], until: Signature | None
    ) -> tuple[list[Any], bool]:
        sizes = [decode(Case, case, "case").elements for case in cases]
        self.log.append(sizes)
        reports: list[Any] = []
        for size in sizes:
            reports.append(self.model(size))
            report = reports[-1]
            if isinstance(report, Exception) or size == self.spent:
                return reports, size == self.spent
            if report.error or (until is not None and report.shows(until)):
                break
        return reports, False

    def wait(self, timeout: float | None) -> Any:
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply

    def kill(self) -> None:
        self.alive = False

    close = kill


class Lab:
    """A runner, its children, and the sizes of the cases in each request."""

    def __init__(self, model: Model, *, backend: str = "cuda", spent: int = 0) -> None:
        self.asked: list[list[int]] = []
        self.born: list[Child] = []
        loaded: Any = SimpleNamespace(
            source=SimpleNamespace(file=None, module="m"),
            kernel=SimpleNamespace(
                name="k", declaration=SimpleNamespace(out=(), alignment=16)
            ),
            target=SimpleNamespace(node_id="m:k"),
        )
        device = "cuda:0" if backend == "cuda" else "cpu"
        place = Place(device, backend, SIZE_BUDGETS[backend], ("K-VAL-01",), Path())

        def fork() -> Any:
            self.born.append(Child(model, spent, self.asked))
            return self.born[-1]

        self.runner = Runner(loaded, place, fork)

    def reports(self, *sizes: int, until: Signature = SOUGHT) -> list[CaseReport]:
        cases = [case_of(n) for n in sizes]
        return self.runner.judge_each(cases, Depth.BASE, until)


def at(size: int, what: CaseReport | Exception) -> Model:
    return lambda n: what if n == size else CLEAN


def test_they_go_out_in_one_message_and_end_with_the_first_that_fails_alike() -> None:
    lab = Lab(at(3, failing()))
    reports = lab.reports(1, 2, 3, 4, 5)
    assert [r.shows(SOUGHT) for r in reports] == [False, False, True]
    assert lab.asked == [[1, 2, 3, 4, 5]]


def test_after_a_case_that_cannot_be_judged_come_the_others() -> None:
    lab = Lab(lambda n: CaseReport({}, error="no") if n == 2 else CLEAN)
    reports = lab.reports(1, 2, 3, 4)
    assert [r.error for r in reports] == [None, "no", None, None]
    assert [n for request in lab.asked[1:] for n in request] == [3, 4]


def test_a_child_that_is_spent_leaves_the_rest_to_the_next() -> None:
    lab = Lab(at(4, failing()), spent=2)
    reports = lab.reports(1, 2, 3, 4, 5)
    assert [r.shows(SOUGHT) for r in reports] == [False, False, False, True]
    assert not lab.born[0].alive


@pytest.mark.parametrize("fault", [DIED, RAISED])
def test_the_case_that_ends_a_child_is_the_one_charged(fault: Exception) -> None:
    lab = Lab(at(2, fault), backend="cpu")
    reports = lab.reports(1, 2, 3)
    assert [r == CLEAN for r in reports] == [True, False, True]
    assert lab.asked[:2] == [[1, 2, 3], [1]]


def test_a_symptom_that_ends_children_is_looked_for_one_by_one() -> None:
    sought = Signature("k", "K-LIV-01", Kind.CRASH, detail="SIGSEGV")
    lab = Lab(at(2, DIED))
    reports = lab.reports(1, 2, 3, until=sought)
    assert [r.shows(sought) for r in reports] == [False, True]
    assert lab.asked == [[1], [2]]


def test_a_real_child_says_of_each_case_what_it_says_of_it_alone() -> None:
    @kfuzz.kernel(ops.relu, name="k")
    def wrong_beyond_two(x: torch.Tensor) -> torch.Tensor:
        return x if x.numel() > 2 else x.relu()

    def minus_ones(n: int) -> Case:
        spec = TensorSpec((n,), ("d0",), "float32", values=b"\x00\x00\x80\xbf" * n)
        return Case({"x": spec})

    place = Place("cpu", "cpu", SIZE_BUDGETS["cpu"], ("K-VAL-01",), Path())
    loaded = LoadedKernel(wrong_beyond_two, Target("", "k"), Source())
    runner = Runner(loaded, place, None)
    cases = [minus_ones(n) for n in (1, 2, 4, 8)]
    together = runner.judge_each(cases, Depth.BASE, SOUGHT)
    assert [r.shows(SOUGHT) for r in together] == [False, False, True]
    assert together == [runner.judge(case, Depth.BASE) for case in cases[:3]]
    runner.close()
