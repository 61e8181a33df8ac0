"""What a case leaves open and its seed decides: poison, edge, configuration."""

from kfuzz.core.recipe import Case, Edge
from kfuzz.execution.memory.poison import Poison


def poison_of(case: Case) -> Poison:
    """Return the poison of a case: pinned, or alternating with the seed."""
    if case.poison is not None:
        return Poison(case.poison)
    fills = (s.fill for s in case.tensors.values() if s.fill is not None)
    first = next(fills, None)
    odd = first is not None and first.seed % 2 == 1
    return Poison.FINITE if odd else Poison.NAN


def config_of(case: Case) -> int:
    """Return which autotune configuration runs: pinned, or by the seed.

    Poison and edge follow from its last bits. Up to ten configurations share the
    cases evenly.
    """
    return case.seed // 6 % 2520 if case.config is None else case.config


def edge_of(case: Case) -> Edge | None:
    """Return where a case lies beside pages: as it says, or alternating with the seed.

    At their start, at their end, or nowhere: guard zones see writes that a page far
    behind them does not, and alignments are then exact.
    """
    if case.edge is not None or case.pinned:
        return case.edge
    # The last bit decides the poison.
    side = ("start", "end", "")[case.seed // 2 % 3]
    return Edge(side) if side else None
