"""What may choose the cases of a search in the place of Hypothesis."""

from collections.abc import Callable
from typing import Protocol

from hypothesis.strategies import SearchStrategy

from kfuzz.core.errors import UsageError
from kfuzz.core.recipe import Case
from kfuzz.engine.config import Engine, RunConfig
from kfuzz.engine.search.round import KernelSearch, Round
from kfuzz.execution.processes import Child


class GuidedSearch(Protocol):
    """The search of one kernel, over its rounds."""

    def search(
        self,
        this_round: Round,
        strategy: SearchStrategy[Case],
        *,
        cases: int,
        seed_value: int,
    ) -> None:
        """Draw and judge the cases of a round; never raises.

        Args:
            this_round: takes what a case teaches.
            strategy: draws cases where nothing else does.
            cases: how many.
            seed_value: of the cases that `strategy` draws.
        """

    def close(self) -> None:
        """End its children."""


class Guide(Protocol):
    """A way to choose cases, with children of its own."""

    @property
    def serve(self) -> str:
        """What serves the children of a run, "module:function"."""

    def require(self, config: RunConfig) -> None:
        """Check that a run can be guided so.

        Raises:
            UsageError: if it cannot.
        """

    def search_of(
        self,
        kernel: KernelSearch,
        fork: Callable[[], Child],
        config: RunConfig,
        *,
        expired: Callable[[], bool],
    ) -> GuidedSearch:
        """Return the search of one kernel.

        Args:
            kernel: its search.
            fork: starts a child that serves `serve`.
            config: the run.
            expired: whether the run is over.
        """


def guide_of(config: RunConfig, guide: Guide | None) -> Guide | None:
    """Return what chooses the cases of a run, None where Hypothesis does.

    Raises:
        UsageError: if it is not at hand.
    """
    if config.engine is Engine.HYPOTHESIS:
        return None
    if guide is None:
        raise UsageError("this engine is not at hand", where=config.engine)
    guide.require(config)
    return guide
