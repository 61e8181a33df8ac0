"""Strategies: what the inputs of an operator look like, as recipes."""

from kfuzz.strategies.parameters import (
    dim,
    dtype,
    indices,
    lists,
    longest,
    masks,
    offsets,
    scalar,
    size,
    spans,
    tensors,
)

__all__ = [
    "dim",
    "dtype",
    "indices",
    "lists",
    "longest",
    "masks",
    "offsets",
    "scalar",
    "size",
    "spans",
    "tensors",
]
