"""One round of search: Hypothesis draws recipes, the runner judges them.

The test function records and never raises: a raise ends the search after some
33 of 1,000 calls (measured). Phases are generate and target;
reduction is kfuzz's own. Every setting is explicit, because Hypothesis loads a
derandomised profile where `CI` is set.
"""

import math
import os
import tempfile
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Final

# Hypothesis writes constants it finds in local source into its storage folder,
# even without a database; that must not land in the user's working folder.
os.environ.setdefault(
    "HYPOTHESIS_STORAGE_DIRECTORY",
    str(Path(os.environ.get("XDG_CACHE_HOME", tempfile.gettempdir())) / "kfuzz"),
)

from hypothesis import (
    HealthCheck,
    Phase,
    Verbosity,
    given,
    seed,
    settings,
    target,
)
from hypothesis.strategies import SearchStrategy

from kfuzz.contracts.binding import BoundKernel
from kfuzz.contracts.cutting import row_axis
from kfuzz.core.budget import Profile, SizeBudget
from kfuzz.core.finding import short_hash
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CaseReport
from kfuzz.strategies.cases import cases
from kfuzz.strategies.large import large_cases

# target() climbs the logarithm of error / tolerance; below this it is noise.
LEAST_RATIO: Final = 2.0**-40

Judge = Callable[[Case], CaseReport | None]


def strategy_of(
    kernel: BoundKernel,
    budget: SizeBudget,
    *,
    without: Collection[str] = (),
    profile: Profile = Profile.QUICK,
) -> SearchStrategy[Case] | None:
    """Return the strategy of a kernel's cases; None if no dtype is left.

    Args:
        kernel: the bound kernel.
        budget: limits on sizes; those of the profile large are its own.
        without: declared dtypes that are not to be drawn.
        profile: which sizes are searched.

    Raises:
        BindingError: if the declaration leaves no shape within the budget.
    """
    operator, passed = kernel.operator, kernel.arguments
    named = {*passed.tensors, *passed.scalars}
    dtypes = tuple(d for d in kernel.declaration.dtypes if d not in without)
    if not dtypes:
        return None

    def within(budget: SizeBudget) -> SearchStrategy[Case]:
        return cases(
            operator.inputs,
            declaration=replace(kernel.declaration, dtypes=dtypes),
            budget=budget,
            ranks=operator.ranks,
            reduced=operator.reduced,
            empty_reduction=operator.empty_reduction,
            shape_class=operator.shape_class,
            workspaces=operator.workspaces,
            subtracts_mean=operator.subtracts_mean,
            omitted=frozenset(n for n in operator.inputs if n not in named),
        )

    if profile is Profile.QUICK:
        return within(budget)
    return large_cases(
        within,
        kernel.declaration,
        admits=lambda case: operator.admits(case, kernel.declaration),
        sliceable=lambda case: row_axis(operator, case) is not None,
    )


def round_seed(run_seed: int, kernel: str, number: int) -> int:
    """Return the seed of one round: it depends on these three alone."""
    return int(short_hash(f"{run_seed} {kernel} {number}"), 16)


def search_round(
    strategy: SearchStrategy[Case], judge: Judge, *, cases: int, seed_value: int
) -> None:
    """Draw and judge a number of cases.

    Args:
        strategy: of the kernel's cases.
        judge: records what a case teaches; returns None once the round is over
            (a signal, the deadline), after which cases are only drawn.
        cases: how many to draw.
        seed_value: everything drawn depends on it.
    """

    def once(case: Case) -> None:
        report = judge(case)
        if report is not None and report.ratio > LEAST_RATIO:
            target(math.log2(min(report.ratio, 2.0**60)), label="error / tolerance")

    configured = settings(
        max_examples=cases,
        database=None,
        deadline=None,
        derandomize=False,
        phases=(Phase.generate, Phase.target),
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
        print_blob=False,
        report_multiple_bugs=False,
    )
    seed(seed_value)(configured(given(strategy)(once)))()
