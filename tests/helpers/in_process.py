"""A runner that judges in this process what a campaign's runner judges in children."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from kfuzz.contracts.binding import BoundKernel
from kfuzz.contracts.classes import CLASSES
from kfuzz.core.budget import Depth
from kfuzz.core.finding import Finding, Target, host_fingerprint
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CaseReport
from kfuzz.engine.confirm import process
from kfuzz.evaluation.drawing import search_round, strategy_of
from kfuzz.evaluation.evaluator import Evaluator, setting_of
from tests.helpers.budgets import SIZE_BUDGETS

# What needs several devices, and what needs other configurations.
_LEFT_OUT = {"C-ORD-03", "C-CMP-02"}


class InProcess:
    """Judges cases of one kernel; see `kfuzz.engine.workers.runner.Runner`.

    Attributes:
        judged: every case that was judged on its way to a minimum.
    """

    def __init__(self, kernel: BoundKernel, *, budget: str = "cpu") -> None:
        self.loaded: Any = SimpleNamespace(kernel=kernel)
        self.hanging, self.fault, self.distinguishes = False, None, True
        self.predicted = 0.0
        self.judged: list[Case] = []
        classes = set(CLASSES) - _LEFT_OUT
        self.evaluator = Evaluator(
            kernel, setting_of("cpu", SIZE_BUDGETS[budget], classes)
        )

    def accepts(self, case: Case) -> bool:
        kernel = self.loaded.kernel
        return bool(kernel.operator.accepts(case, kernel.declaration))

    def prepare(self, children: int) -> None:
        pass

    def pin(self, case: Case) -> Case:
        return self.evaluator.pin(case)

    def judge(self, case: Case, depth: Depth) -> CaseReport:
        self.judged.append(case)
        return self.evaluator.judge(case, depth)

    def diagnose(
        self, case: Case, seconds: float, *, fresh: bool, sizes: bool = True
    ) -> CaseReport | None:
        self.evaluator.of_sizes = sizes
        return self.judge(case, Depth.FULL)

    def judge_fresh(self, case: Case, depths: Sequence[Depth]) -> list[CaseReport]:
        return [self.judge(case, depth) for depth in depths]


def drawn(kernel: BoundKernel, cases: int, *, budget: str = "cpu") -> list[Case]:
    """Return cases as a campaign draws them."""
    strategy, found = strategy_of(kernel, SIZE_BUDGETS[budget]), list[Case]()
    assert strategy is not None

    def take(case: Case) -> CaseReport | None:
        if len(found) < cases:
            found.append(case)
        return None

    search_round(strategy, take, cases=cases, seed_value=7)
    return found


def first_failing(
    runner: InProcess, cases: Sequence[Case]
) -> tuple[Case, CaseReport] | None:
    """Return the first case that fails, with its classes told apart."""
    for case in cases:
        if runner.evaluator.judge(case, Depth.SEARCH).failure is not None:
            told = runner.evaluator.judge(case, Depth.FULL)
            if told.failure is not None:
                return case, told
    return None


def taken_to_minimum(
    runner: InProcess, case: Case, report: CaseReport, *, seconds: float = 600.0
) -> Finding:
    """Return the finding of a failing case at its minimum, explained."""
    kernel = runner.loaded.kernel
    assert report.failure is not None
    pinned = runner.pin(case)
    finding = Finding(
        signature=report.failure.signature(kernel.name),
        target=Target("", kernel.name),
        operator=kernel.operator.name_in_contracts,
        device="cpu",
        case=pinned,
        first=case,
        failure=report.failure,
        declaration=kernel.declaration,
        fingerprint=host_fingerprint(device="cpu"),
    )
    return process(
        runner,  # type: ignore[arg-type]
        finding,
        seconds=lambda: seconds,
        stopped=lambda: False,
        save=lambda made: made,
    )
