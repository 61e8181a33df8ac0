"""What a case may hold that a kernel promises no value for.

NaN and infinities where they do not propagate, and indices out of bounds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor

from kfuzz.contracts.operator import Operator
from kfuzz.core.recipe import Case
from kfuzz.numerics.acceptance import Problem
from kfuzz.numerics.models.scattered import out_of_bounds

ASKING: Final = frozenset({"mask", "raise", "undefined"})
"""Policies that depend on whether the data hold NaN or infinities."""


@dataclass(frozen=True)
class NonFinite:
    """One element of the data that is NaN or infinite.

    Attributes:
        argument: the parameter.
        at: logical index of the element.
        value: what it holds.
    """

    argument: str
    at: tuple[int, ...]
    value: float

    def describe(self) -> str:
        """Return for example "x[0, 2] is nan"."""
        place = f"[{', '.join(map(str, self.at))}]" if self.at else ""
        return f"{self.argument}{place} is {self.value:g}"


def is_concerned(operator: Operator, name: str, values: Tensor) -> bool:
    """Whether a policy for NaN and infinities speaks of an argument.

    Of floats it does, but for additive masks: there -Inf has a meaning.
    """
    return values.is_floating_point() and operator.tensors[name].role != "mask"


def first_nonfinite(
    operator: Operator, values: Mapping[str, Tensor]
) -> NonFinite | None:
    """Return the first NaN or infinity of any argument concerned.

    Args:
        operator: what is to be computed.
        values: logical elements by argument, in their own dtypes.
    """
    for name, given in values.items():
        if not is_concerned(operator, name, given):
            continue
        x = given.to(torch.float64)
        wrong = ~torch.isfinite(x)
        if bool(wrong.any()):
            flat = int(wrong.flatten().to(torch.uint8).argmax())
            at = np.unravel_index(flat, tuple(x.shape)) if x.dim() else ()
            value = float(x.flatten()[flat])
            return NonFinite(name, tuple(int(i) for i in at), value)
    return None


def masked(values: Tensor) -> Tensor:
    """Return the values with +0 for NaN and infinities."""
    return torch.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)


@dataclass(frozen=True)
class OutOfBounds:
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


def first_out_of_bounds(
    operator: Operator, case: Case, problem: Problem
) -> OutOfBounds | None:
    """Return the first element of any index argument that is out of bounds.

    Elements equal to the scalar that the operator ignores are not.
    """
    for name, parameter in operator.straying.items():
        if name not in problem.tensors:
            continue
        index, bound = problem.tensors[name][0], case.bound(case.tensors[name])
        outside = out_of_bounds(index, bound)
        if parameter.ignored:
            outside = outside & (index != problem.axis(parameter.ignored))
        if bool(outside.any()):
            flat = int(outside.flatten().to(torch.uint8).argmax())
            at = np.unravel_index(flat, tuple(index.shape)) if index.dim() else ()
            return OutOfBounds(
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
