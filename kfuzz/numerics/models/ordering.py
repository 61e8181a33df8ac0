"""What indices that order or select elements may be where some are equal."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from kfuzz.numerics.acceptance import Acceptance, Problem, around, between
from kfuzz.numerics.formats import INTEGERS


@dataclass(frozen=True)
class Order:
    """Elements in order along a dimension, NaN the greatest, +0 and -0 equal.

    Attributes:
        keys: float64, as `x`, by which elements are compared: one NaN, one zero;
            all of a subnormal magnitude 0 where they may be flushed.
        index: int64, where the elements in order come from; of equal ones the first
            comes first.
        values: float64, the elements in order.
        sorted: float64, their keys.
        blurred: bool, the place holds an element that may be flushed, or one that
            then equals it.
    """

    keys: Tensor
    index: Tensor
    values: Tensor
    sorted: Tensor
    blurred: Tensor


def order(x: Tensor, dim: int, *, descending: bool) -> tuple[Tensor, Tensor]:
    """Return the elements in order and their indices, of equal ones the first first.

    Args:
        x: float64; NaN counts as the greatest.
        dim: the dimension to order along (negative).
        descending: whether the greatest comes first.
    """
    # One NaN and one zero: sorts by bits would tell them apart.
    index = torch.sort(_key(x), dim=dim, descending=descending, stable=True).indices
    return x.gather(dim, index), index


def _key(x: Tensor) -> Tensor:
    return torch.where(x.isnan(), torch.full_like(x, float("nan")), x + 0.0)


def ordered(problem: Problem, *, descending: bool) -> Order:
    """Return the order of a problem's data along its `dim`."""
    x, dim = problem.tensors["x"], problem.axis()
    values, index = order(x, dim, descending=descending)
    keys, blurred = _key(x), torch.zeros_like(x, dtype=torch.bool)
    if problem.flushes:
        near = keys.abs() < problem.format.min_normal
        flushed = (near & (keys != 0)).any(dim, keepdim=True)
        blurred = (values.abs() < problem.format.min_normal) & flushed
        keys = torch.where(near, 0.0, keys)
    return Order(keys, index, values, keys.gather(dim, index), blurred)


def accepted(
    problem: Problem, *, descending: bool, count: int | None = None
) -> dict[str, Acceptance]:
    """Return the acceptance of values in order and of their indices.

    Values are exact. An index is the first's turn where ties="first" is declared,
    else it lies between the first and the last of its equals, see `admitted`.

    Args:
        problem: the inputs and the declaration.
        descending: whether the greatest comes first.
        count: how many of them are returned; all by default.
    """
    dim = problem.axis()
    found = ordered(problem, descending=descending)
    count = found.index.shape[dim] if count is None else count
    low = high = found.index.to(torch.float64)
    undecided = found.blurred
    if problem.declaration.ties == "any":
        low, high = (_among_equals(found, dim, end) for end in ("amin", "amax"))
        undecided = torch.zeros_like(found.blurred)

    def first(t: Tensor) -> Tensor:
        return t.narrow(dim, 0, count)

    return {
        "values": around(
            problem, first(found.values), 0.0, undecided=first(found.blurred)
        ),
        "indices": between(
            problem,
            first(found.index.to(torch.float64)),
            first(low),
            first(high),
            undecided=first(undecided),
            output=INTEGERS["int64"],
        ),
    }


def _among_equals(found: Order, dim: int, end: str) -> Tensor:
    """Return the least or greatest index of the elements equal to each, in order."""
    keys = found.sorted
    n = keys.shape[dim]
    if not keys.numel():
        return found.index.to(torch.float64)
    before, after = keys.narrow(dim, 0, n - 1), keys.narrow(dim, 1, n - 1)
    differs = ~same(before, after)
    start = torch.zeros_like(found.index).narrow(dim, 0, 1)
    group = torch.cat([start, differs.cumsum(dim)], dim)
    ends = torch.zeros_like(found.index).scatter_reduce(
        dim, group, found.index, end, include_self=False
    )
    return ends.gather(dim, group).to(torch.float64)


def same(a: Tensor, b: Tensor) -> Tensor:
    """Return where two keys are equal, NaN equal to NaN."""
    return (a == b) | (a.isnan() & b.isnan())


def admitted(
    problem: Problem, outputs: Mapping[str, Tensor], *, descending: bool
) -> dict[str, Tensor]:
    """Return where indices name the element in order there, none of them twice.

    Args:
        problem: the inputs and the declaration.
        outputs: the kernel's own results, "indices" among them.
        descending: whether the greatest comes first.
    """
    dim, index = problem.axis(), outputs["indices"]
    found = ordered(problem, descending=descending)
    wanted = found.sorted.narrow(dim, 0, index.shape[dim])
    named, valid = picked(found.keys, index, dim)
    fits = valid & same(named, wanted)
    if index.shape[dim] > 1:
        place = torch.sort(index, dim=dim, stable=True)
        n = index.shape[dim] - 1
        again = place.values.narrow(dim, 1, n) == place.values.narrow(dim, 0, n)
        first = torch.zeros_like(fits).narrow(dim, 0, 1)
        repeated = torch.cat([first, again], dim)
        fits &= ~torch.zeros_like(fits).scatter(dim, place.indices, repeated)
    return {"indices": fits}


def picked(keys: Tensor, index: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Return the keys that a kernel's indices name, and where they are in range."""
    n = keys.shape[dim]
    valid = (index >= 0) & (index < n)
    if not n:
        return index.to(keys.dtype), valid
    return keys.gather(dim, index.clamp(0, n - 1)), valid
