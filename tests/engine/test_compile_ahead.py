"""Children that compile ahead: asked, replaced, given up, and never believed."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from triton.runtime.driver import driver

from kfuzz.core.budget import Depth, Spending
from kfuzz.core.codec import decode, encode
from kfuzz.core.errors import HarnessError
from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.engine.workers.backend import Backend
from kfuzz.engine.workers.compile_ahead import CompileAhead, Compiled, Slots
from kfuzz.engine.workers.runner import runner_of
from kfuzz.engine.workers.served import Served
from kfuzz.execution.processes import ChildDied, ChildTimeout
from kfuzz.targets.load import load_all

DIED = ChildDied(1, exit_code=None, signal_name="SIGSEGV", output_tail="")
PATIENCE = 30.0


def case_of(n: int) -> Case:
    return Case({"x": TensorSpec((2, n), ("d0", "d1"), "float32", fill=Fill("randn"))})


class Child:
    """A child that answers as a model says."""

    pid = 0

    def __init__(self, model: Callable[[int], Any]) -> None:
        self.model = model
        self.alive = True
        self.asked: list[str] = []
        self._sizes = 0

    def send(self, message: dict[str, Any]) -> None:
        self.asked.append(message["do"])
        case = decode(Case, message["case"], "case")
        self._sizes = case.tensors["x"].shape[1]

    def wait(self, timeout: float | None) -> dict[str, Any]:
        reply = self.model(self._sizes)
        if isinstance(reply, Exception):
            time.sleep(0.01)
            raise reply
        return dict(reply)

    def kill(self) -> None:
        self.alive = False

    close = kill


def told(seconds: float = 0.5, *, returned: bool = True, free: Any = None) -> Any:
    spending = Spending(compiling=seconds, compiled=int(seconds > 0))
    return {"returned": returned, "spending": encode(spending), "free": free}


class Yard:
    """Opens children, and remembers them."""

    def __init__(self, model: Callable[[int], Any]) -> None:
        self.model = model
        self.children: list[Child] = []
        self.over = False

    def __call__(self) -> Served:
        self.children.append(Child(self.model))
        return Served(self.children[-1], None, lambda: self.over)

    def ahead(self, slots: int = 2, limit: float = PATIENCE) -> CompileAhead:
        return CompileAhead(self, Slots(slots), lambda: self.over, limit=limit)


def answers(ahead: CompileAhead, count: int) -> list[Compiled]:
    """Return what comes of some cases, whenever it does."""
    made: list[Compiled] = []
    until = time.monotonic() + PATIENCE
    while len(made) < count and time.monotonic() < until:
        made += ahead.made()
        time.sleep(0.002)
    return made


@pytest.fixture
def closing() -> Iterator[list[CompileAhead]]:
    made: list[CompileAhead] = []
    yield made
    for each in made:
        each.close()


def test_what_was_compiled_is_told_with_its_seconds(
    closing: list[CompileAhead],
) -> None:
    yard = Yard(lambda n: told(n / 10))
    ahead = yard.ahead()
    closing.append(ahead)
    for n in (1, 2, 3):
        until = time.monotonic() + PATIENCE
        while not ahead.room() and time.monotonic() < until:
            time.sleep(0.002)
        ahead.ask(case_of(n))
    made = sorted(answers(ahead, 3), key=lambda each: each.spent.compiling)
    assert [each.spent.compiling for each in made] == [0.1, 0.2, 0.3]
    assert all(each.done for each in made)
    assert {do for child in yard.children for do in child.asked} == {"compile"}
    assert len(yard.children) <= 2


def test_there_are_no_more_children_than_slots(closing: list[CompileAhead]) -> None:
    held = threading.Event()

    def model(n: int) -> Any:
        return told() if held.is_set() else ChildTimeout(1, 0.2)

    yard = Yard(model)
    ahead = yard.ahead(slots=2)
    closing.append(ahead)
    asked = 0
    while ahead.room():
        ahead.ask(case_of(asked + 1))
        asked += 1
    assert asked == 2
    held.set()
    assert len(answers(ahead, 2)) == 2
    assert not Yard(model).ahead(slots=0).room()


@pytest.mark.parametrize("fault", [DIED, ChildTimeout(1, 0.2)])
def test_a_child_that_dies_or_hangs_is_given_up_and_another_goes_on(
    closing: list[CompileAhead], fault: Exception
) -> None:
    yard = Yard(lambda n: fault if n == 1 else told())
    ahead = yard.ahead(slots=1, limit=0.05)
    closing.append(ahead)
    assert ahead.room()
    ahead.ask(case_of(1))
    [lost] = answers(ahead, 1)
    assert not lost.done
    until = time.monotonic() + PATIENCE
    while not ahead.room() and time.monotonic() < until:
        time.sleep(0.002)
    ahead.ask(case_of(2))
    [made] = answers(ahead, 1)
    assert made.done
    assert [child.alive for child in yard.children] == [False, True]


def test_a_device_short_of_memory_has_fewer_of_them(
    closing: list[CompileAhead],
) -> None:
    yard = Yard(lambda n: told(free=1 << 20))
    ahead = yard.ahead(slots=1)
    closing.append(ahead)
    assert ahead.room()
    ahead.ask(case_of(1))
    assert answers(ahead, 1)[0].done
    until = time.monotonic() + PATIENCE
    while yard.children[0].alive and time.monotonic() < until:
        time.sleep(0.002)
    assert not ahead.room()


def test_what_raised_is_as_good_as_compiled_only_if_nothing_was(
    closing: list[CompileAhead],
) -> None:
    yard = Yard(lambda n: told(0.0 if n == 1 else 9.0, returned=False))
    ahead = yard.ahead(slots=1)
    closing.append(ahead)
    for n in (1, 2):
        until = time.monotonic() + PATIENCE
        while not ahead.room() and time.monotonic() < until:
            time.sleep(0.002)
        ahead.ask(case_of(n))
    made = answers(ahead, 2)
    assert [each.done for each in made] == [True, False]


def test_where_none_opens_what_was_asked_for_is_given_up() -> None:
    def cannot() -> Served:
        raise HarnessError("no context can be made")

    ahead = CompileAhead(cannot, Slots(1), lambda: False)
    assert ahead.room()
    ahead.ask(case_of(1))
    [made] = answers(ahead, 1)
    assert not made.done
    assert not ahead.room()


KERNEL = """
import kfuzz, torch, triton
from kfuzz.contracts import operators as ops
from tests.helpers.compiled_apart import Driver, softmax_row
from triton.runtime.driver import driver

driver.set_active(Driver())


@kfuzz.kernel(ops.softmax, layouts="contiguous", dtypes=("float32",))
def softmax(x, dim=-1):
    y = torch.empty_like(x)
    rows, n = x.shape
    softmax_row[(rows,)](x, y, n, BLOCK=triton.next_power_of_2(n))
    return y
"""


@pytest.mark.slow
def test_children_of_a_kernel_compile_what_another_one_then_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real processes, and real compilations for a device that does nothing."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    # The file replaces it in this process, too.
    monkeypatch.setattr(driver, "_active", driver._active)
    file = tmp_path / "kernels.py"
    file.write_text(KERNEL, encoding="utf-8")
    [loaded] = load_all((str(file),), root=tmp_path)
    backend = Backend("cpu")
    try:
        runner = runner_of(loaded, backend, root=tmp_path, expired=lambda: False)
        children = runner._children
        ahead = CompileAhead(children.beside, Slots(2), lambda: False)
        cases = [case_of(n) for n in (40, 200)]
        for case in cases:
            assert ahead.room()
            ahead.ask(replace(case, scalars={"dim": -1}))
        made = answers(ahead, 2)
        assert [(each.done, each.spent.compiled) for each in made] == [(True, 1)] * 2
        ahead.close()
        for case in cases:
            runner.judge(replace(case, scalars={"dim": -1}), Depth.BASE)
            assert runner.spending is not None
            assert runner.spending.compiled == 0
            assert runner.spending.compiling > 0
        runner.judge(replace(case_of(500), scalars={"dim": -1}), Depth.BASE)
        assert runner.spending.compiled == 1
        runner.close()
    finally:
        backend.close()


def test_what_is_called_off_was_not_in_vain() -> None:
    yard = Yard(lambda n: ChildTimeout(1, 0.2))
    ahead = yard.ahead(slots=1)
    assert ahead.room()
    ahead.ask(case_of(1))
    until = time.monotonic() + PATIENCE
    while not (yard.children and yard.children[0].asked):
        assert time.monotonic() < until
        time.sleep(0.002)
    ahead.close()
    [made] = answers(ahead, 1)
    assert not made.done
    assert not made.spent.total
    yard.model = lambda n: told()
    while not ahead.room():
        assert time.monotonic() < until
        time.sleep(0.002)
    ahead.ask(case_of(1))
    [made] = answers(ahead, 1)
    assert made.done
    ahead.close()


def test_an_idle_child_makes_room_for_another_kernels_first() -> None:
    yard, slots = Yard(lambda n: told()), Slots(1)
    one, other = (CompileAhead(yard, slots, lambda: yard.over) for _ in range(2))
    assert one.room()
    one.ask(case_of(1))
    assert answers(one, 1)[0].done
    until = time.monotonic() + PATIENCE
    while not other.room():
        assert time.monotonic() < until
        time.sleep(0.01)
    other.ask(case_of(2))
    assert answers(other, 1)[0].done
    assert [child.alive for child in yard.children] == [False, True]
    other.close()


def test_closing_ends_the_children() -> None:
    yard = Yard(lambda n: ChildTimeout(1, 0.2))
    ahead = yard.ahead(slots=2)
    assert ahead.room()
    ahead.ask(case_of(1))
    until = time.monotonic() + PATIENCE
    while not (yard.children and yard.children[0].asked):
        assert time.monotonic() < until
        time.sleep(0.002)
    ahead.close()
    while yard.children[0].alive:
        assert time.monotonic() < until
        time.sleep(0.002)
