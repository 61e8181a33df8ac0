"""Strategies: what the inputs of an operator look like, as recipes."""

from kfuzz.strategies.parameters import dim, indices, scalar, tensors

__all__ = ["dim", "indices", "scalar", "tensors"]
