"""Classes of sizes share a kernel's time, and none is left out for what it costs."""

from pathlib import Path
from typing import Any

import pytest
import torch

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.classes import CLASSES
from kfuzz.core.budget import Depth, SizeBudget
from kfuzz.core.errors import BindingError
from kfuzz.core.event import KernelFinished
from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.engine.search.round import (
    BYTES_EACH,
    SHORTEST_ROUND,
    above,
    due,
    quantum,
    size_classes,
)
from kfuzz.engine.workers.children import Children
from kfuzz.engine.workers.jobs import SHARING
from kfuzz.evaluation.drawing import search_round, strategy_of
from kfuzz.evaluation.evaluator import Evaluator, setting_of
from kfuzz.execution.device.backends import GPU
from tests.contracts.test_operator_domains import kernel_of
from tests.helpers.searches import searched

KERNEL = """
import time

import torch

import kfuzz
from kfuzz.contracts import operators as ops
from kfuzz.execution.calls.compiling import at_work

seen = set()


@kfuzz.kernel(ops.relu)
def relu(x):
    with open({log!r}, "a") as log:
        log.write(f"{{x.numel()}}\\n")
    {slow}
    return torch.relu(x)
"""
SLOW = "time.sleep(0.7 if x.numel() > 1000 else 0)"
COMPILES = """
    if x.shape not in seen:
        with at_work():
            time.sleep(60 if x.numel() > 8000 else SHORT)
        seen.add(x.shape)
"""


def called(
    tmp_path: Path, slow: str, **limits: float
) -> tuple[list[int], KernelFinished]:
    """Return the elements of each call in a run of one kernel, and how it ended."""
    log = tmp_path / "calls"
    source = KERNEL.format(log=str(log), slow=slow)
    (tmp_path / "kernels.py").write_text(source, encoding="utf-8")
    contracts = ("K-LIV-*", "K-VAL-*")
    events = searched(tmp_path / "kernels.py", contracts=contracts, **limits)
    [kernel] = [e for e in events if isinstance(e, KernelFinished)]
    assert not kernel.findings
    return [int(line) for line in log.read_text().split()], kernel


def test_the_class_that_had_least_time_is_next() -> None:
    classes = size_classes(SizeBudget(1 << 16, 64), lambda budget: None)
    assert [c.budget.elements for c in classes] == [1 << 16, 1 << 12, 1 << 8]
    assert due(classes) is classes[0]
    classes[0].seconds, classes[1].seconds = 9.0, 0.5
    assert due(classes) is classes[2]


def test_a_class_in_which_no_case_exists_is_left_out() -> None:
    def possible(budget: SizeBudget) -> None:
        if budget.elements < 1000:
            raise BindingError("no shape")

    classes = size_classes(SizeBudget(1 << 22, 1 << 16), possible)
    assert [c.budget.elements for c in classes] == [1 << 22, 1 << 16, 1 << 12]


@pytest.mark.parametrize(
    ("gib", "bounds"), [(0, []), (4, []), (8, [1 << 23]), (34, [1 << 24])]
)
def test_above_a_gpu_s_budget_is_a_class_of_what_its_memory_holds(
    gib: int, bounds: list[int]
) -> None:
    budget = GPU.limits.sizes
    found = above(budget, GPU.limits.largest, gib << 30)
    assert [c.budget.elements for c in found] == bounds
    assert all(c.budget.rows == budget.rows for c in found)


def test_larger_sizes_share_the_time_where_a_child_reports_free_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU: of the host's memory a child reports none."""
    ready = Children._ready

    def with_memory(self: Children, served: Any) -> str:
        why = ready(self, served)
        self.free = SHARING * BYTES_EACH << 17
        return why

    monkeypatch.setattr(Children, "_ready", with_memory)
    calls, kernel = called(tmp_path, "", max_time=4.0)
    assert [each.most for each in kernel.searched] == [
        1 << 8, 1 << 12, 1 << 16, 1 << 17, None,
    ]  # fmt: skip
    assert max(calls) <= 1 << 17


@pytest.mark.slow
def test_larger_sizes_share_the_time_on_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kfuzz.engine.search.campaign.free_memory", lambda: 64 << 30)
    calls, kernel = called(tmp_path, "", max_time=15.0)
    assert kernel.searched[-2].most == 1 << 22
    assert kernel.searched[-2].cases
    assert max(calls) > 1 << 16


@pytest.mark.slow
def test_what_takes_too_long_above_the_budget_is_no_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kfuzz.engine.search.campaign.free_memory", lambda: 64 << 30)
    body = "time.sleep(30 if x.numel() > 1 << 16 else 0)"
    calls, kernel = called(tmp_path, body, max_time=15.0)
    assert max(calls) > 1 << 16
    assert not kernel.findings
    assert kernel.searched[-2].lacks == "no case there decided a contract"
    assert kernel.cases > 100


@pytest.mark.slow
def test_what_takes_too_long_in_more_rows_than_usual_is_no_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of no more elements than usual: the largest class has more rows, too."""
    free = BYTES_EACH << 17
    monkeypatch.setattr("kfuzz.engine.search.campaign.free_memory", lambda: free)
    source, begun = KERNEL, tmp_path / "begun"
    for old, new in (
        ("ops.relu", "ops.softmax"),
        ("relu(x):", "relu(x, dim):"),
        ("torch.relu(x)", "torch.softmax(x.float(), dim).to(x.dtype)"),
    ):
        source = source.replace(old, new)
    monkeypatch.setattr(f"{__name__}.KERNEL", source)
    note = f"print(x.numel(), file=open({str(begun)!r}, 'a'), flush=True)"
    rows = "x.numel() // max(x.shape[dim], 1) if x.dim() else 1"
    body = f"if ({rows}) > 1 << 12: {note}; time.sleep(30)"
    _, kernel = called(tmp_path, body, max_time=40.0, jobs=1)
    assert any(int(n) <= 1 << 16 for n in begun.read_text().split())
    assert kernel.cases > 100


def test_memory_that_lacks_above_the_budget_is_no_error() -> None:
    def runs_out(x: torch.Tensor) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    bound = kernel(ops.relu, name="relu_that_runs_out")(runs_out)
    spec = TensorSpec((8,), ("N",), "float32", fill=Fill("randn"))
    for elements, is_error in ((4, False), (8, True)):
        setting = setting_of("cpu", SizeBudget(elements, 64), CLASSES)
        report = Evaluator(bound, setting).judge(Case({"x": spec}), Depth.SEARCH)
        assert "out of memory" in (report.error or report.unsupported or "")
        assert (report.error is not None) is is_error
        assert not report.failure


def test_a_round_is_as_long_as_the_time_for_the_last_one_allowed() -> None:
    [size] = size_classes(SizeBudget(1 << 8, 64), lambda budget: None)
    lengths = [size.cases]
    for cut_at in (None, None, 30, 2, None):
        size.count(1.0, cut_at=cut_at)
        lengths.append(size.cases)
    assert lengths == [25, 50, 100, 30, 9, 18]
    assert (size.rounds, size.seconds) == (5, 5.0)


def test_rounds_cut_short_draw_large_sizes_as_often_as_whole_ones() -> None:
    kernel = kernel_of(ops.softmax)
    strategy = strategy_of(kernel, SizeBudget(1 << 16, 64))
    assert strategy is not None
    found: list[Case] = []
    for seed in range(40):
        end = len(found) + 3
        search_round(
            strategy, found.append, cases=SHORTEST_ROUND, seed_value=seed,
            ends=lambda end=end: len(found) >= end, simplest=False,
        )  # fmt: skip
    assert len(found) == 120
    assert sum(case.largest > 1 << 12 for case in found) > 120 / 8


@pytest.mark.parametrize(("left", "seconds"), [(0.1, 0.2), (8.0, 1.0), (1e9, 2.0)])
def test_a_round_draws_for_a_part_of_the_time(left: float, seconds: float) -> None:
    assert quantum(left) == seconds


def test_a_run_names_the_classes_of_sizes_that_it_searched(tmp_path: Path) -> None:
    calls, kernel = called(tmp_path, "", max_cases=60)
    assert kernel.tried is not None
    bounds = [(each.above, each.most) for each in kernel.searched]
    assert bounds == [(0, 256), (256, 4096), (4096, 65_536), (65_536, None)]
    assert sum(each.cases for each in kernel.searched) == kernel.tried.cases == 60
    structures = sum(each.structures for each in kernel.searched)
    assert structures == kernel.tried.structures
    for each in kernel.searched:
        assert bool(each.lacks) is not bool(each.cases)
        most = each.most or max(calls)
        assert bool(each.cases) <= any(each.above <= n <= most for n in calls)
        assert (each.seconds > 0) is bool(each.cases)
    assert kernel.searched[-1].lacks == "the limit on the CPU"
    assert max(kernel.largest.values()) <= max(calls)


def test_a_class_for_which_no_time_was_left_is_named(tmp_path: Path) -> None:
    _, kernel = called(tmp_path, "time.sleep(1.5)", max_time=1.0, jobs=1)
    lacks = [each.lacks for each in kernel.searched]
    assert "no time was left" in lacks


@pytest.mark.slow
def test_what_is_slow_is_drawn_all_the_same_and_does_not_take_all_time(
    tmp_path: Path,
) -> None:
    calls, kernel = called(tmp_path, SLOW, max_time=10.0)
    assert sum(n > 1000 for n in calls) >= 4
    assert kernel.cases > 100


@pytest.mark.slow
def test_a_compilation_that_takes_a_minute_is_given_up(tmp_path: Path) -> None:
    slow = COMPILES.replace("SHORT", "0.01")
    _, kernel = called(tmp_path, slow, max_time=15.0)
    assert kernel.cases > 50
    assert any("compiling took more than" in each.note for each in kernel.notes)


@pytest.mark.slow
def test_what_was_compiled_for_one_case_serves_a_batch(tmp_path: Path) -> None:
    slow = COMPILES.replace("SHORT", "0.4")
    _, kernel = called(tmp_path, slow, max_time=10.0)
    assert kernel.cases > 25 * kernel.tried.structures


@pytest.mark.slow
def test_without_a_time_limit_no_clock_has_a_part_in_the_cases(tmp_path: Path) -> None:
    _, kernel = called(tmp_path, SLOW, max_cases=8)
    assert kernel.cases == 8
