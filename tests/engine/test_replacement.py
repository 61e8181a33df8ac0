"""Children of a runner on a device: proved, replaced, prepared; witnessed findings."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kfuzz.cli.streams import ExitCode, code_of
from kfuzz.core.budget import Burst, Depth, Screened
from kfuzz.core.errors import BackendError, HarnessError
from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.core.verdict import CaseReport, Failure, Kind, Signature, State
from kfuzz.engine.confirm import WITNESS_CHILDREN, WITNESSES, confirm
from kfuzz.engine.workers import runner as running
from kfuzz.engine.workers.children import Children, Place, Served
from kfuzz.engine.workers.runner import Runner
from kfuzz.execution.processes.wire import ChildDied, ChildRaised, ChildTimeout
from tests.helpers.budgets import SIZE_BUDGETS
from tests.helpers.searches import searched

CASE = Case({"x": TensorSpec((4,), ("d0",), "float32", fill=Fill("randn", 2))})
WELL = {"device": "fake", "ailment": ""}
SICK = {"ailment": "CUDA error: unspecified launch failure"}
CLEAN = {"report": CaseReport({}), "spent": False}
DIED = ChildDied(1, exit_code=1, signal_name=None, output_tail="")
RAISED = ChildRaised(1, "RuntimeError", "CUDA error: device-side assert", "")


class FakeChild:
    """A child that answers what it was told to, and counts among the living."""

    pid = 0

    def __init__(self, replies: Sequence[Any], living: set["FakeChild"]) -> None:
        self.replies, self.living = list(replies), living
        self.asked: list[str] = []
        living.add(self)

    def send(self, message: dict[str, Any]) -> None:
        self.asked.append(message["do"])

    def wait(self, timeout: float | None) -> dict[str, Any]:
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def kill(self) -> None:
        self.living.discard(self)

    close = kill


class Zoo:
    """Makes children in order, each with its replies; the last ones are all well."""

    def __init__(self, *replies: Sequence[Any]) -> None:
        self.replies = list(replies)
        self.born: list[FakeChild] = []
        self.living: set[FakeChild] = set()

    def fork(self) -> FakeChild:
        replies = self.replies.pop(0) if self.replies else [WELL, *[CLEAN] * 9]
        self.born.append(FakeChild(replies, self.living))
        return self.born[-1]


def runner_of(zoo: Zoo, backend: str = "cuda") -> Runner:
    loaded: Any = SimpleNamespace(
        source=SimpleNamespace(file=None, module="m"),
        kernel=SimpleNamespace(name="k", declaration=SimpleNamespace(out=())),
        node_id="m:k",
    )
    device = "cuda:0" if backend == "cuda" else "cpu"
    place = Place(device, backend, SIZE_BUDGETS[backend], ("K-VAL-01",), Path())
    return Runner(loaded, place, zoo.fork)  # type: ignore[arg-type]


@pytest.mark.parametrize("end", [DIED, RAISED])
def test_whatever_ends_a_child_of_a_device_has_it_replaced(end: Exception) -> None:
    zoo = Zoo([WELL, end])
    runner = runner_of(zoo)
    runner.judge(CASE, Depth.SEARCH)
    assert zoo.living == {zoo.born[1]}
    runner.close()
    assert not zoo.living


def test_a_child_that_ends_while_it_draws_is_replaced_once() -> None:
    zoo = Zoo([WELL, DIED], [WELL, {"drawn": [CASE]}])
    assert runner_of(zoo, "cpu").generate() == [CASE]
    with pytest.raises(HarnessError, match="no case can be drawn"):
        runner_of(Zoo([WELL, DIED], [WELL, DIED]), "cpu").generate()


def test_a_device_that_no_fresh_child_can_use_ends_the_run() -> None:
    zoo = Zoo([SICK], [SICK])
    with pytest.raises(BackendError) as caught:
        runner_of(zoo).judge(CASE, Depth.SEARCH)
    text = str(caught.value)
    assert "cuda:0" in text
    assert "unspecified launch failure" in text
    assert "saved in the corpus" in text
    assert not zoo.living


BY_CHANCE = Signature("k", "C-ORD-02", Kind.NONDETERMINISTIC, "y")
ALWAYS = Signature("k", "K-VAL-01", Kind.VALUE, "y")


def report_of(signature: Signature | None) -> CaseReport:
    if signature is None:
        return CaseReport({})
    failure = Failure(
        signature.contract, signature.kind, "message", output=signature.output
    )
    return CaseReport({}, failure=failure)


def showing(*shown: Signature | None) -> tuple[Any, Callable[[], int]]:
    """Return a runner whose fresh children show these in turn, then nothing."""
    left, asked = list(shown), []

    def judge_fresh(case: Case, depths: Sequence[str]) -> list[CaseReport]:
        asked.extend(depths)
        return [report_of(left.pop(0) if left else None) for _ in depths]

    return SimpleNamespace(judge_fresh=judge_fresh, distinguishes=True), lambda: len(
        asked
    )


def test_what_chance_shows_twice_is_confirmed() -> None:
    runner, asked = showing(None, None, BY_CHANCE, None, None, BY_CHANCE)
    made = confirm(runner, CASE, BY_CHANCE)
    assert made.state is State.CONFIRMED
    assert made.failure is not None
    assert made.note == "2 of 6 fresh processes"
    assert asked() == 6


def test_what_chance_shows_once_is_flaky() -> None:
    runner, asked = showing(BY_CHANCE)
    assert confirm(runner, CASE, BY_CHANCE).state is State.FLAKY
    assert asked() == WITNESS_CHILDREN
    assert WITNESSES == 2


def test_what_chance_never_shows_again_is_unreproduced() -> None:
    runner, _ = showing(ALWAYS, ALWAYS)  # another symptom is no witness
    made = confirm(runner, CASE, BY_CHANCE)
    assert (made.state, made.failure) == (State.UNREPRODUCED, None)


def test_what_does_not_follow_from_chance_has_to_show_every_time() -> None:
    runner, asked = showing(ALWAYS, ALWAYS, ALWAYS)
    assert confirm(runner, CASE, ALWAYS).state is State.CONFIRMED
    assert asked() == 3
    runner, _ = showing(ALWAYS, None, ALWAYS)
    made = confirm(runner, CASE, ALWAYS)
    assert (made.state, made.instead) == (State.FLAKY, None)


def test_a_value_that_is_wrong_at_times_is_told_as_that() -> None:
    runner, _ = showing(ALWAYS, BY_CHANCE, ALWAYS)
    made = confirm(runner, CASE, ALWAYS)
    assert made.state is State.FLAKY
    assert made.instead is not None
    assert made.instead.kind is Kind.NONDETERMINISTIC


KERNEL = """
import torch
from kfuzz.contracts import kernel, operators as ops


@kernel(ops.relu)
def my_relu(x):
    return torch.relu(x)
"""


def test_a_run_whose_device_is_gone_exits_5_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(KERNEL)
    # Each case closes its child; from the second one on no device works.
    ready, asked = Children._ready, []

    def fading(children: Children, served: Any) -> str:
        asked.append(served)
        return ready(children, served) or ("" if len(asked) < 2 else "it has no answer")

    monkeypatch.setattr(Children, "_ready", fading)
    monkeypatch.setattr(Runner, "_learn", lambda runner, seconds: runner.close())
    with pytest.raises(BackendError) as raised:
        searched(tmp_path / "mine.py", max_cases=40)
    assert code_of(raised.value) == ExitCode.NO_BACKEND
    told = str(raised.value)
    assert "it has no answer" in told
    assert "saved in the corpus" in told
    assert len(asked) == 3  # one that worked, one that did not, and a fresh one


SCREENED = {"screened": Screened(passed=3), "branches": None}
REFUSED = {"report": CaseReport({}, refusal="no"), "spent": False}


def test_the_answer_to_a_burst_is_nobody_else_s() -> None:
    """Whatever comes between a burst and its answer, as an exception does."""
    zoo = Zoo([WELL, SCREENED], [WELL, REFUSED, SCREENED])
    runner = runner_of(zoo, "cpu")
    runner.submit(Burst(CASE, 3))
    assert runner.judge(CASE, Depth.SEARCH).refusal == "no"
    assert zoo.living == {zoo.born[1]}
    with pytest.raises(HarnessError, match="no batch"):
        runner.prefiltered()
    runner.submit(Burst(CASE, 3))
    assert runner.prefiltered().passed == 3
    assert len(zoo.born) == 2
    runner.close()


def late(times: int) -> list[Any]:
    return [ChildTimeout(1, 0.2)] * times


@pytest.mark.parametrize("by_kernel", [False, True])
def test_the_work_around_a_burst_is_no_hang(
    by_kernel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "SUSPECT_SECONDS", 0.0)
    monkeypatch.setattr(Served, "is_in_kernel", lambda self: by_kernel)
    zoo = Zoo([WELL, *late(3), SCREENED])
    runner = runner_of(zoo, "cpu")
    runner.submit(Burst(CASE, 3))
    made = runner.prefiltered()
    assert (made.passed, made.lost) == (
        (0, "it takes too long") if by_kernel else (3, "")
    )
    assert bool(zoo.living) == (not by_kernel)
    runner.close()


def test_a_call_that_hangs_at_times_is_noted_and_slows_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("SUSPECT_SECONDS", "HANG_SECONDS", "FIRST_SECONDS"):
        monkeypatch.setattr(running, name, 0.0)
    monkeypatch.setattr(Served, "is_in_kernel", lambda self: True)
    monkeypatch.setattr(Served, "stack", lambda self: "")
    runner = runner_of(Zoo([WELL, *late(1)], [WELL, *late(1)], [WELL, CLEAN]), "cpu")
    before = runner.predicted
    report = runner.judge(CASE, Depth.SEARCH)
    assert report.failure is None
    assert report.notes == (running.HANGS_AT_TIMES,)
    assert runner.predicted == before
    runner.close()


def test_a_child_that_ended_between_requests_is_nobody_s_fault_in_pinning() -> None:
    pinned = {"case": CASE}
    zoo = Zoo([WELL, CLEAN], [WELL, pinned], [WELL, DIED])
    runner = runner_of(zoo, "cpu")
    runner.judge(CASE, Depth.SEARCH)

    def ended(message: dict[str, Any]) -> None:
        raise DIED

    zoo.born[0].send = ended  # type: ignore[method-assign]
    assert runner.pin(CASE) == CASE
    runner.close()
    with pytest.raises(HarnessError, match="the values cannot be made"):
        runner.pin(CASE)
    assert not zoo.living
