"""How a large case is cut into rows that do not depend on one another."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import torch
from torch import Tensor

from kfuzz.contracts.derive import Derived
from kfuzz.contracts.operator import Operator
from kfuzz.core.errors import BindingError
from kfuzz.core.recipe import Case, Fill, TensorSpec
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


def row_axis(
    operator: Operator,
    case: Case,
    can_part: Callable[[TensorSpec], bool] = can_stretch,
) -> str | None:
    """Return the dimension along which a case may be cut; "" for single elements.

    None where there is none, an argument is too large to be seen whole, or values
    cannot be had in parts.

    Args:
        operator: what is computed.
        case: the whole case.
        can_part: whether an argument's values can be.
    """
    specs = case.tensors.values()
    if any(s.below for s in specs):
        return None
    together = all(p.dims == "*" for p in operator.tensors.values())
    shapes = {s.shape for s in specs}
    if together and operator.dim is None and operator.reduced is None:
        return "" if len(shapes) == 1 and all(map(can_part, specs)) else None
    axis = batch_axis(operator, case)
    if axis is None:
        return None
    for spec in specs:
        cut = axis in spec.axes
        row = spec.numel // case.dims[axis] if cut else spec.numel
        if row > large.SLICE_ELEMENTS or (cut and not can_part(spec)):
            return None
    return axis


def part_of(
    case: Case,
    axis: str,
    start: int,
    stop: int,
    elements: Callable[[str, int, int], Tensor],
) -> Derived:
    """Return rows of a case, as a case of its own.

    Args:
        case: the whole one.
        axis: as of `Cut`.
        start: number of the first row.
        stop: one past the number of the last.
        elements: returns elements of an argument, from one number to another, in C
            order.
    """
    tensors, values = {}, {}
    for name, spec in case.tensors.items():
        if axis and axis not in spec.axes:
            tensors[name] = spec
            values[name] = elements(name, 0, spec.numel).view(spec.shape)
            continue
        row = spec.numel // spec.shape[0] if axis else 1
        shape = (stop - start, *spec.shape[1:]) if axis else (stop - start,)
        axes = spec.axes if axis else ("d0",)
        values[name] = elements(name, start * row, stop * row).view(shape)
        # The values are given apart: a recipe has to name some.
        tensors[name] = TensorSpec(shape, axes, spec.dtype, fill=Fill("zeros"))
    return Derived(replace(case, tensors=tensors, edge=None), values)


def cut_of(
    operator: Operator,
    case: Case,
    axis: str,
    accepted: Callable[[int, int], Mapping[str, Acceptance]],
    elements: int,
) -> Cut:
    """Return how a case is cut.

    Args:
        operator: what is computed.
        case: the whole case.
        axis: as `row_axis` says.
        accepted: returns what is admitted for rows of it.
        elements: most of a slice.

    Raises:
        Unsliceable: if it cannot be.
        BindingError: if the operator's oracle or error model is malformed.
    """
    names = tuple(n for n, s in case.tensors.items() if not axis or axis in s.axes)
    rows = case.dims[axis] if axis else case.tensors[names[0]].numel
    few, more = TRIED
    if rows < few + more:
        raise Unsliceable(f"{rows} rows are too few to be cut")
    try:
        spans = ((0, few), (few, few + more), (0, few + more))
        first, second, both = (accepted(*span) for span in spans)
    except BindingError:
        raise
    except Exception as error:
        raise Unsliceable(f"outside the oracle's domain: {error}") from None
    outputs: dict[str, int] = {}
    expected: dict[str, Expected] = {}
    widest = max(case.tensors[n].numel // rows for n in names)
    for name, one in first.items():
        at = cut_axis(one.shape, second[name].shape)
        if at is None or not adds_up(one, second[name], both[name], at):
            raise Unsliceable(f"rows of {name} depend on one another")
        shape = (*one.shape[:at], rows, *one.shape[at + 1 :])
        if not axis:
            shape = case.tensors[names[0]].shape
        outputs[name] = at
        expected[name] = Expected(shape, one.output.dtype)
        widest = max(widest, math.prod(shape) // rows)
    for axes in operator.spaces(case):
        sizes = [case.dims[d] for d in axes]
        widest = max(widest, math.prod(sizes) // rows)
    at_once = elements // max(widest, 1)
    if not at_once:
        raise Unsliceable(f"one row has {widest} elements")
    return Cut(axis, rows, names, outputs, expected, at_once)


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
