"""Strategies: what the inputs of an operator look like, as recipes."""

from kfuzz.strategies.parameters import dim, scalar, tensors

__all__ = ["dim", "scalar", "tensors"]
