"""Indices that are not below their bound: whether a case holds one, and which."""

from dataclasses import dataclass

import numpy as np
import torch

from kfuzz.contracts.operator import Operator
from kfuzz.core.recipe import Case
from kfuzz.numerics.acceptance import Problem
from kfuzz.numerics.indices import out_of_bounds


@dataclass(frozen=True)
class HostileIndex:
    """One element of an index argument that selects nothing.

    Attributes:
        argument: the index parameter.
        at: logical index of the element.
        value: what it holds.
        dimension: the dimension that it selects along.
        bound: the size of that dimension.
        empty: whether nothing is there to be selected, other dimensions being 0.
    """

    argument: str
    at: tuple[int, ...]
    value: int
    dimension: str
    bound: int
    empty: bool = False

    def describe(self) -> str:
        """Return for example "indices[0] = 5 is not below V = 5"."""
        place = f"[{', '.join(map(str, self.at))}]" if self.at else ""
        text, limit = f"{self.argument}{place}", f"{self.dimension} = {self.bound}"
        if self.value < 0:
            return f"{text} = {self.value} is negative ({limit})"
        return f"{text} = {self.value} is not below {limit}"


def first_hostile(
    operator: Operator, case: Case, problem: Problem
) -> HostileIndex | None:
    """Return the first element of any index argument that is out of bounds.

    Elements equal to the scalar that the operator ignores are not.
    """
    for name, parameter in operator.indices.items():
        if name not in problem.tensors:
            continue
        index, bound = problem.tensors[name][0], case.dims[parameter.below]
        outside = out_of_bounds(index, bound)
        if parameter.ignored:
            outside = outside & (index != problem.axis(parameter.ignored))
        if bool(outside.any()):
            flat = int(outside.flatten().to(torch.uint8).argmax())
            at = np.unravel_index(flat, tuple(index.shape)) if index.dim() else ()
            return HostileIndex(
                argument=name,
                at=tuple(int(i) for i in at),
                value=int(index.flatten()[flat]),
                dimension=parameter.below,
                bound=bound,
                empty=_is_empty(case, parameter.below),
            )
    return None


def _is_empty(case: Case, dimension: str) -> bool:
    """Whether tensors with the dimension have no element whatever its size is."""
    found = [s for s in case.tensors.values() if dimension in s.axes]
    sizes = (zip(s.axes, s.shape, strict=True) for s in found)
    return any(n == 0 for named in sizes for axis, n in named if axis != dimension)
