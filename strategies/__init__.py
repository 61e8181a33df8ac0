"""Strategies: what the inputs of an operator look like, as recipes."""

from kfuzz.strategies.parameters import (
    dim,
    dtype,
    indices,
    masks,
    scalar,
    tensors,
)

__all__ = ["dim", "dtype", "indices", "masks", "scalar", "tensors"]
