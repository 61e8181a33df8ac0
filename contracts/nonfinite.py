"""NaN and infinities where they are masked or refused: whether a case holds one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor

from kfuzz.contracts.operator import Operator

ASKING: Final = frozenset({"mask", "raise"})
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
