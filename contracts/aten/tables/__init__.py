"""The rows, by kind; a new one is a line in the module of its kind."""

from kfuzz.contracts.aten.tables import (
    comparisons,
    elementwise,
    indexing,
    lists,
    losses,
    moves,
    pooling,
    products,
    reductions,
    suite,
)

TABLES = (
    comparisons, elementwise, indexing, lists, losses, moves, pooling, products,
    reductions, suite,
)  # fmt: skip
