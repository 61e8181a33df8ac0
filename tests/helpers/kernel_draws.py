"""Draws the cases of a kernel as a campaign does."""

from hypothesis import Phase, given, seed, settings

from kfuzz.contracts.binding import BoundKernel
from kfuzz.core.recipe import Case
from kfuzz.evaluation.drawing import strategy_of
from tests.helpers.budgets import SIZE_BUDGETS


def drawn(kernel: BoundKernel, count: int, backend: str = "cpu") -> list[Case]:
    """Return cases of a kernel on a backend, always the same."""
    found: list[Case] = []
    strategy = strategy_of(kernel, SIZE_BUDGETS[backend])
    assert strategy is not None

    @seed(3)
    @settings(
        max_examples=count, database=None, deadline=None, phases=(Phase.generate,)
    )
    @given(strategy)
    def collect(case: Case) -> None:
        found.append(case)

    collect()
    return found
