"""The rows, by kind; a new one is a line in the module of its kind."""

from kfuzz.contracts.aten.tables import (
    elementwise,
    indexing,
    losses,
    moves,
    pooling,
    products,
    reductions,
    suite,
)

TABLES = (
    elementwise, indexing, losses, moves, pooling, products, reductions, suite,
)  # fmt: skip
