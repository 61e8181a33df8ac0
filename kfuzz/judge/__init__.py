"""Candidates that nobody vouches for, held against references: see the README."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kfuzz.core.finding import Finding
    from kfuzz.engine.config import ReplayConfig
    from kfuzz.targets.load import LoadedKernel


def opener(finding: "Finding", config: "ReplayConfig") -> "LoadedKernel":
    """Return the candidate of a finding, in a child, see `judged_again`.

    Raises:
        KfuzzError: if it cannot be judged any more.
    """
    # With torch, which commands that replay nothing do without.
    from kfuzz.judge.loading import judged_again

    return judged_again(finding, config)
