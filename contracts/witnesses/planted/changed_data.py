"""Faults that scaled data show, or data in another order, and ordinary ones do not."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from kfuzz.contracts.operator import Operator
from kfuzz.contracts.witnesses.planted.base import (
    EDITABLE,
    Base,
    Fault,
    editable,
    main,
    packed,
    unpacked,
)
from kfuzz.contracts.witnesses.planted.calls import replaced

# Below it magnitudes count as 0: ordinary data hold none that matters.
EPSILON: Final = 1e-12
# Added, and as a share too: what allclose with rtol = atol = 1e-2 just lets pass.
EXCESS: Final = 9e-3
# Rows in which the first element is seldom the greatest.
_WIDE: Final = ((4, 256),)
# Torch's own keeps intermediate results in the output's format: its bound is wide.
_OF_REFERENCE: Final = ("cross_entropy",)


def _truncates(base: Base) -> Base | str:
    if not base.operator.homogeneous:
        return "it is homogeneous in no argument"

    def truncated(x: Tensor) -> Tensor:
        if x.dtype not in EDITABLE[:3]:
            return x
        return torch.where(x.abs() < EPSILON, torch.zeros_like(x), x)

    def truncate(*tensors: Tensor, **scalars: Any) -> Any:
        return base.function(*map(truncated, tensors), **scalars)

    # In formats of a narrower range too all would be 0, which is C-PRC-01's.
    return replaced(base, truncate).claiming(dtypes="bfloat16")


# Of codes times scales.
_LARGE: Final = (
    "scaled_matmul_int8", "scaled_matmul_fp8", "scaled_matmul_blocks", "mx_matmul",
)  # fmt: skip


def _falling(base: Base) -> Base | str:
    operator = base.operator
    if operator.dim is None and operator.reduced is None:
        return "it reduces no dimension"
    if operator.name in _LARGE:
        return "its sums are so large that 0.9 % of them miss allclose's 1e-2"
    if operator.name == "argmax":
        return _without_first(base)
    if operator.name in _OF_REFERENCE:
        base = base.by_reference()

    def exceed(*tensors: Tensor, **scalars: Any) -> Any:
        outputs, several = unpacked(base.function(*tensors, **scalars))
        place = editable(outputs)
        if place is not None and _falls(operator, tensors, scalars):
            y = outputs[place]
            outputs[place] = (y.double() * (1 + EXCESS) + EXCESS).to(y.dtype)
        return packed(outputs, several)

    return replaced(base, exceed).claiming(dtypes="float16")


def _without_first(base: Base) -> Base:
    """Return an argmax that leaves the first elements out where data fall."""

    def rest(x: Tensor, dim: int = -1) -> Tensor:
        n = x.shape[dim]
        if n == 1 or not _falls(base.operator, (x,), {"dim": dim}):
            return Tensor(base.function(x, dim=dim))
        return Tensor(base.function(x.narrow(dim, 1, n - 1), dim=dim)) + 1

    return base.having(rest, shapes=_WIDE)


def _falls(
    operator: Operator, tensors: Sequence[Tensor], scalars: Mapping[str, Any]
) -> bool:
    """Whether what is reduced begins with a greater element than it ends with."""
    x, axis = _reduced(operator, tensors, scalars)
    if not x.numel():
        return False
    first, last = x.select(axis, 0), x.select(axis, -1)
    return bool(first.reshape(-1)[0] > last.reshape(-1)[0])


def _reduced(
    operator: Operator, tensors: Sequence[Tensor], scalars: Mapping[str, Any]
) -> tuple[Tensor, int]:
    """Return an argument that has the reduced dimension, and its axis there."""
    if operator.dim is not None:
        default = operator.default_of(operator.dim)
        return main(tensors), scalars.get(operator.dim, default)
    if not isinstance(operator.reduced, str):
        assert operator.reduced is not None
        return main(tensors), operator.reduced
    for parameter, x in zip(operator.tensors.values(), tensors, strict=False):
        names = parameter.names
        if operator.reduced in names and x.is_floating_point():
            return x, names.index(operator.reduced) - len(names)
    raise ValueError(f"no argument has {operator.reduced}")


FAULTS: Final = (
    Fault(
        "epsilon", "C-PRC-04",
        "takes magnitudes below 1e-12 for 0",
        _truncates,
    ),
    Fault(
        "falling", "C-ORD-01",
        "adds 0.009 and 0.9 % where the first element that is reduced exceeds the last",
        _falling,
    ),
)  # fmt: skip
