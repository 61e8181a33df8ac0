"""Reductions that ask about one case at a time."""

from collections.abc import Callable, Sequence

from kfuzz.core.recipe import Case
from kfuzz.engine.reduce import FirstFailing


def one_by_one(fails: Callable[[Case], bool]) -> FirstFailing:
    """Return the search for the first failing case that asks of each case alone."""

    def first_failing(cases: Sequence[Case]) -> int | None:
        return next((i for i, case in enumerate(cases) if fails(case)), None)

    return first_failing
