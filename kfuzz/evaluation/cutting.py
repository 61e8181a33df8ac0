"""How a large case is cut into rows that do not depend on one another."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor

from kfuzz.contracts.operator import Operator
from kfuzz.core.recipe import Case
from kfuzz.evaluation.probes.batches import batch_axis
from kfuzz.execution.calls import large
from kfuzz.execution.values.fills import can_stretch
from kfuzz.numerics.acceptance import Acceptance
from kfuzz.numerics.run import Expected

TRIED: Final = (2, 3)
"""Rows of the slices that show which axis of a result is cut, and that what is admitted
for a row does not depend on others."""

# The same sums in another number of rows may be grouped in another way.
_SAME: Final = 1e-9


@dataclass(frozen=True)
class Cut:
    """How a case is cut into rows.

    Attributes:
        axis: the first dimension of every argument that is cut; "" where all
            elements are rows of one, as of elementwise operators.
        rows: how many there are.
        names: the arguments that are cut.
        outputs: per output the axis of its rows.
        expected: metadata of each whole output.
        at_once: rows of a slice.
    """

    axis: str
    rows: int
    names: tuple[str, ...]
    outputs: Mapping[str, int]
    expected: Mapping[str, Expected]
    at_once: int

    def place(self, output: str, start: int, index: tuple[int, ...]) -> tuple[int, ...]:
        """Return where in the whole output an element of a slice lies."""
        if not self.axis:
            at = np.unravel_index(start + index[0], self.expected[output].shape)
            return tuple(int(i) for i in at)
        axis = self.outputs[output]
        return (*index[:axis], start + index[axis], *index[axis + 1 :])

    def slice_of(self, output: str, y: Tensor, start: int, stop: int) -> Tensor:
        """Return the rows of an output, contiguous."""
        if not self.axis:
            return y.contiguous().view(-1)[start:stop]
        return y.narrow(self.outputs[output], start, stop - start).contiguous()


class Unsliceable(Exception):
    """Why a case cannot be judged in slices."""


def row_axis(operator: Operator, case: Case) -> str | None:
    """Return the dimension along which a case may be cut; "" for single elements.

    None where there is none, an argument is too large to be seen whole, or values
    cannot be made in parts.
    """
    specs = case.tensors.values()
    if any(s.below for s in specs):
        return None
    together = all(p.dims == "*" for p in operator.tensors.values())
    shapes = {s.shape for s in specs}
    if together and operator.dim is None and operator.reduced is None:
        return "" if len(shapes) == 1 and all(map(can_stretch, specs)) else None
    axis = batch_axis(operator, case)
    if axis is None:
        return None
    for spec in specs:
        cut = axis in spec.axes
        row = spec.numel // case.dims[axis] if cut else spec.numel
        if row > large.SLICE_ELEMENTS or (cut and not can_stretch(spec)):
            return None
    return axis


def cut_axis(one: tuple[int, ...], other: tuple[int, ...]) -> int | None:
    """Return the axis that holds the rows, given the shapes for `TRIED` rows."""
    if len(one) != len(other):
        return None
    pairs = enumerate(zip(one, other, strict=True))
    differ = [i for i, (here, there) in pairs if here != there]
    if len(differ) != 1 or (one[differ[0]], other[differ[0]]) != TRIED:
        return None
    return differ[0]


def adds_up(one: Acceptance, other: Acceptance, both: Acceptance, axis: int) -> bool:
    """Whether two slices are admitted what they are as one."""
    if (one.relation is None) is not (both.relation is None):
        return False
    for name in ("reference", "low", "high"):
        parts = [getattr(a, name) for a in (one, other)]
        joined, whole = torch.cat(parts, dim=axis + 1), getattr(both, name)
        if joined.shape != whole.shape:
            return False
        scale = whole.nan_to_num(0.0, 0.0, 0.0).abs().max() if whole.numel() else 0.0
        near = _SAME * float(scale)
        if not torch.allclose(joined, whole, rtol=_SAME, atol=near, equal_nan=True):
            return False
    return True
