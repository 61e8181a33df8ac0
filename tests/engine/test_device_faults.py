"""A GPU's illegal address beside a fence, from the child's report to the charge."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kfuzz.contracts.classes import calls as k_liv_01
from kfuzz.contracts.suite import judge
from kfuzz.core.budget import Depth
from kfuzz.core.recipe import Case, Edge, TensorSpec
from kfuzz.core.verdict import (
    Allocation,
    CaseReport,
    Failure,
    Kind,
    Signature,
    State,
    Verdict,
)
from kfuzz.engine.confirm import confirm
from kfuzz.engine.workers.children import Place
from kfuzz.engine.workers.runner import Runner
from kfuzz.numerics.run import Raised, Run
from tests.helpers.budgets import SIZE_BUDGETS
from tests.helpers.judged_cases import bench_of, pinned

VALUES = bytes(16)
CASE = Case(
    {"x": TensorSpec((4,), ("d0",), "float32", values=VALUES)}, edge=Edge("end")
)
SIGNATURE = Signature("k", "K-LIV-01", Kind.DEVICE_FAULT, detail="illegal_address")
Model = Callable[[Case], CaseReport]


def lost(detail: str = "illegal_address", **more: Any) -> CaseReport:
    failure = Failure("K-LIV-01", Kind.DEVICE_FAULT, "faults", detail=detail)
    return CaseReport({"K-LIV-01": Verdict.VIOLATES}, failure=failure, **more)


class Child:
    """A child whose kernel does what a model says; it is lost after a fault."""

    pid = 0

    def __init__(self, model: Model, unfenced: str) -> None:
        self.model, self.unfenced = model, unfenced
        self.reply: dict[str, Any] = {}

    def send(self, message: dict[str, Any]) -> None:
        if message["do"] == "open":
            assert message["fences"] is True
            self.reply = {"device": "fake", "ailment": "", "unfenced": self.unfenced}
        elif message["do"] == "pin":
            self.reply = {"case": message["case"]}
        else:
            report = self.model(message["case"])
            spent = report.failure is not None and (
                report.failure.kind is Kind.DEVICE_FAULT
            )
            self.reply = {"report": report, "spent": spent}

    def wait(self, timeout: float | None) -> dict[str, Any]:
        return self.reply

    def kill(self) -> None:
        """End it."""

    close = kill


def runner_of(
    model: Model, *, unfenced: str = "", classes: tuple[str, ...] = ("K-MEM-01",)
) -> Runner:
    claims = SimpleNamespace(out=(), alignment=16)
    loaded: Any = SimpleNamespace(
        source=SimpleNamespace(file=None, module="m"),
        kernel=SimpleNamespace(name="k", declaration=claims),
        target=SimpleNamespace(node_id="m:k"),
    )
    place = Place("cuda:0", "cuda", SIZE_BUDGETS["cuda"], classes, Path())
    fork: Any = lambda: Child(model, unfenced)  # noqa: E731
    return Runner(loaded, place, fork)


def reads_past(case: Case) -> CaseReport:
    """Report a load of 20 bytes past the end of x."""
    edge = case.edge
    if edge is None or edge.readable or edge.argument not in ("", "x"):
        return CaseReport({})
    if edge.side == "end" and edge.slack < 20 and edge.allocation is None:
        return lost()
    return CaseReport({})


def test_a_load_past_the_end_is_charged_with_argument_and_distance() -> None:
    reports = runner_of(reads_past).judge_fresh(
        CASE, [Depth.FULL, Depth.SEARCH, Depth.SEARCH]
    )
    for report in reports:
        assert report.verdicts == {"K-MEM-01": Verdict.VIOLATES}
        assert report.failure is not None
        assert report.failure.kind is Kind.READ_OUTSIDE
        assert report.failure.message == (
            "out-of-bounds read of x: 5 to 8 elements past the end "
            "(guard page; x is aligned to 16 bytes)"
        )


def test_a_fault_that_needs_no_fence_stays_one_of_the_device() -> None:
    settled = confirm(runner_of(lambda case: lost()), CASE, SIGNATURE)
    assert settled.state is State.CONFIRMED
    assert settled.failure is not None
    assert (settled.failure.contract, settled.failure.kind) == (
        "K-LIV-01", Kind.DEVICE_FAULT,
    )  # fmt: skip


def test_a_fault_that_comes_once_is_never_charged_to_a_fence() -> None:
    seen = []

    def once(case: Case) -> CaseReport:
        seen.append(case)
        return lost() if len(seen) == 1 else CaseReport({})

    settled = confirm(runner_of(once), CASE, SIGNATURE)
    assert settled.state is State.FLAKY
    assert settled.failure is not None
    assert settled.failure.contract == "K-LIV-01"


@pytest.mark.parametrize("detail", ["assert", "misaligned_address", "launch_timeout"])
def test_other_faults_of_a_device_are_no_matter_of_fences(detail: str) -> None:
    asked: list[Case] = []

    def faults(case: Case) -> CaseReport:
        asked.append(case)
        return lost(detail)

    [report] = runner_of(faults).judge_fresh(CASE, [Depth.FULL])
    assert report == lost(detail)
    assert len(asked) == 1


def test_an_over_read_allocation_of_its_own_is_named() -> None:
    beside = Allocation("its own float32[64]", 64, 4)

    def reads_own(case: Case) -> CaseReport:
        edge = case.edge
        if edge is None or edge.argument:
            return CaseReport({})
        named = beside if edge.allocation == 0 else None
        if edge.readable or edge.slack >= 4 or edge.allocation not in (None, 0):
            return CaseReport({}, beside=named)
        return lost(beside=named)

    runner = runner_of(reads_own)
    [report] = runner.judge_fresh(CASE, [Depth.FULL])
    assert report.failure is not None
    assert report.failure.message == (
        "out-of-bounds read of its own float32[64]: 1 to 64 elements past the end "
        "(guard page; it is aligned to 256 bytes)"
    )
    [access] = report.failure.accesses
    assert (access.argument, access.offset) == ("", 64)
    # While it is reduced it is the same as soon as that allocation faults.
    runner.fault = report.failure
    alone = replace(CASE, edge=Edge("end", allocation=0))
    again = runner.judge(alone, Depth.BASE).failure
    assert again is not None
    assert again.contract == "K-MEM-01"
    everything = runner.judge(CASE, Depth.BASE).failure
    assert everything is not None
    assert everything.contract == "K-LIV-01"


def test_a_child_that_makes_no_fences_says_why_and_none_is_blamed() -> None:
    why = "cuda-bindings is not installed"
    runner = runner_of(lambda case: lost(), unfenced=why)
    [report] = runner.judge_fresh(CASE, [Depth.FULL])
    assert runner.children.unfenced == why
    assert report == lost()
    assert runner.locate(CASE) is None


@pytest.mark.parametrize(
    ("fault", "contract"), [("illegal_address", "K-LIV-01"), ("assert", None)]
)
def test_an_illegal_address_refuses_no_index(fault: str, contract: str | None) -> None:
    """An assertion is how a GPU refuses; that an address was illegal is luck."""
    from kfuzz.contracts import operators as ops

    weight = pinned([[1.0]], "V D")
    case = Case({"weight": weight, "indices": pinned([9], "B", below="V")})
    evaluator = bench_of(ops.embedding, lambda weight, indices: weight)
    view, _ = evaluator.caller(case).evidence(_derived(evaluator, case))
    assert view.beyond_bounds
    raised = Raised("RuntimeError", "CUDA error", "", fault=fault)
    runs = dict.fromkeys(view.runs, Run(raised=raised))
    verdicts, failure = judge(replace(view, runs=runs), {"K-LIV-01"})
    assert (failure.contract if failure else None) == contract
    if failure is not None:
        assert (failure.kind, failure.detail) == (Kind.DEVICE_FAULT, fault)
    assert k_liv_01.is_refused(replace(view, runs=runs)) is (contract is None)
    assert "K-LIV-01" not in verdicts or contract


@pytest.mark.parametrize("index", [0, 9])
def test_a_further_run_outside_the_domain_may_lose_the_device(
    index: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the case's first run might have done as well is no error of kfuzz's."""
    from kfuzz.contracts import operators as ops
    from kfuzz.evaluation import evaluator as evaluators

    def asserts(*given: Any, **named: Any) -> None:
        raise RuntimeError("CUDA error: device-side assert triggered")

    weight = pinned([[1.0]], "V D")
    case = Case({"weight": weight, "indices": pinned([index], "B", below="V")})
    evaluator = bench_of(ops.embedding, lambda weight, indices: weight)
    monkeypatch.setattr(evaluators, "judge_repeated", asserts)
    monkeypatch.setattr(evaluators, "is_lost", lambda device: True)
    report = evaluator.judge(case, Depth.SEARCH)
    assert evaluator.spent
    assert report.failure is None
    assert ("lost the device" in (report.error or "")) is (index == 0)


def test_nothing_is_run_after_a_refusal_that_lost_the_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from kfuzz.contracts import operators as ops
    from kfuzz.evaluation import evaluator as evaluators
    from kfuzz.evaluation.calling import Caller

    def again(*given: Any, **named: Any) -> None:
        raise AssertionError("the device is lost")

    def called(self: Caller, derived: Any, **how: Any) -> Any:
        evidence, unsupported = real(self, derived, **how)
        self.lost = self.raised = True
        raised = Raised("RuntimeError", "CUDA error", "", fault="assert")
        runs = dict.fromkeys(evidence.runs, Run(raised=raised))
        return replace(evidence, runs=runs), unsupported

    real = Caller.evidence
    weight = pinned([[1.0]], "V D")
    case = Case({"weight": weight, "indices": pinned([9], "B", below="V")})
    evaluator = bench_of(ops.embedding, lambda weight, indices: weight)
    monkeypatch.setattr(evaluators, "judge_repeated", again)
    monkeypatch.setattr(Caller, "evidence", called)
    report = evaluator.judge(case, Depth.SEARCH)
    assert evaluator.spent
    assert (report.failure, report.error) == (None, None)


def _derived(evaluator: Any, case: Case) -> Any:
    from kfuzz.contracts.binding import Derived

    return Derived(case, evaluator.values(case))
