"""What a declared policy makes of indices that are not below their bound."""

import torch
from torch import Tensor

from kfuzz.numerics.acceptance import Acceptance, Problem, moved


def out_of_bounds(index: Tensor, bound: int) -> Tensor:
    """Return where an integer index is not in [0, bound), bool."""
    return (index < 0) | (index >= bound)


def resolved(problem: Problem, name: str, bound: int) -> tuple[Tensor, Tensor]:
    """Return valid indices in place of an argument's, and where the result is 0.

    Args:
        problem: the inputs and the declaration.
        name: the index argument.
        bound: valid indices lie in [0, bound).

    Returns:
        int64 indices, clamped, and a bool mask: the elements out of bounds
        where out_of_bounds="zero" is declared, else none.
    """
    index = problem.tensors[name]
    zero = torch.zeros_like(index, dtype=torch.bool)
    if problem.declaration.out_of_bounds == "zero":
        zero = out_of_bounds(index, bound)
    return index.clamp(0, max(bound - 1, 0)), zero


def selected(problem: Problem, values: Tensor, zero: Tensor) -> Acceptance:
    """Return the acceptance of copied elements, 0 where a mask, see `resolved`, holds.

    Args:
        problem: the inputs and the declaration.
        values: what the indices name.
        zero: bool, broadcastable to it.
    """
    return moved(problem, torch.where(zero, torch.zeros_like(values), values))
