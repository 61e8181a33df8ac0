"""What a fault is planted in: a correct kernel, and how it is spoilt."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import torch
from torch import Tensor

from kfuzz.contracts.operator import Operator

Change = Callable[[tuple[Tensor, ...], list[Tensor]], list[Tensor]]

# Sizes that a fault spares: multiples of this, as the usual vector widths are.
WIDTH: Final = 8
# Formats whose elements can be computed with and assigned to.
EDITABLE: Final = (
    torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int8,
)  # fmt: skip


@dataclass(frozen=True)
class Base:
    """A kernel that conforms, in the form that faults are planted in.

    Attributes:
        operator: what it computes.
        function: the implementation.
        claims: its declarations, as keywords of `kfuzz.kernel`.
        shapes: friendly shape of each tensor argument.
        dtype: data type of the functional test.
        backends: where the fault shows.
    """

    operator: Operator
    function: Callable[..., Any]
    claims: Mapping[str, Any]
    shapes: tuple[tuple[int, ...], ...]
    dtype: str = "float32"
    backends: tuple[str, ...] = ("cpu", "cuda")

    def having(self, function: Callable[..., Any], **changes: Any) -> "Base":
        """Return it with another implementation, and other fields."""
        return replace(self, function=function, **changes)

    def claiming(self, **claims: Any) -> "Base":
        """Return it with further declarations."""
        return replace(self, claims={**self.claims, **claims})

    def by_reference(self) -> "Base":
        """Return the oracle in float64, rounded once, under the default claims."""
        oracle = self.operator.oracle

        def reference(*tensors: Tensor, **scalars: Any) -> Any:
            wide = [x.double() if x.is_floating_point() else x for x in tensors]
            dtype = next(x.dtype for x in tensors if x.is_floating_point())
            outputs, several = unpacked(oracle(*wide, **scalars))
            stored = [y.to(dtype) if y.is_floating_point() else y for y in outputs]
            return packed(stored, several)

        shapes = self.shapes
        if self.operator.name == "attention":
            # A mask, and sinks.
            shapes = (*shapes[:3], (shapes[0][2], shapes[1][2]), (shapes[0][1],))
        return self.having(reference, claims={}, shapes=shapes)


@dataclass(frozen=True)
class Fault:
    """A way of spoiling kernels that a contract class forbids.

    Attributes:
        name: what is wrong, the first part of the names of its kernels.
        contract: the class under which it is falsified.
        plant: returns the spoilt kernel, or why the operator has none.
        devices: where it is planted.
    """

    name: str
    contract: str
    plant: Callable[[Base], Base | str]
    devices: tuple[str, ...] = field(default=("cpu", "cuda"))


def spoilt(
    base: Base, change: Change, before: Callable[[Tensor], Tensor] = lambda x: x
) -> Base:
    """Return the kernel with its results changed.

    Args:
        base: a conforming kernel.
        change: makes the new results of the tensor arguments and the right results.
        before: makes what the kernel takes for each tensor argument.
    """

    @functools.wraps(base.function)
    def faulty(*tensors: Tensor, **scalars: Any) -> Any:
        tensors = tuple(map(before, tensors))
        outputs, rest = unpacked(base.function(*tensors, **scalars))
        return packed(change(tensors, outputs), rest)

    return base.having(faulty)


def unpacked(returned: Any) -> tuple[list[Tensor], bool]:
    """Return a call's results as a list, and whether there may be several."""
    if isinstance(returned, Tensor):
        return [returned], False
    return list(returned), True


def packed(outputs: Sequence[Tensor], several: bool) -> Any:
    """Return results in the form in which a kernel returns them."""
    return tuple(outputs) if several else outputs[0]


def odd(x: Tensor) -> bool:
    """Whether a fault of tails strikes: not at the sizes that are usual.

    Those are multiples of `WIDTH` elements, in an even number of rows: where columns
    come in blocks alone, the rows have the tail.
    """
    rows = x.shape[0] if x.dim() > 1 and x.numel() else 1
    return x.numel() % WIDTH != 0 or (rows > 1 and rows % 2 == 1)


def main(tensors: Sequence[Tensor]) -> Tensor:
    """Return the first floating argument of more than 8 bits, else of integers."""
    floats = [x for x in tensors if x.is_floating_point() and x.element_size() > 1]
    return next(x for x in (*floats, *tensors) if not x.is_floating_point() or floats)


def editable(outputs: Sequence[Tensor]) -> int | None:
    """Return the place of the first result to spoil; None if none can be."""
    floats = [i for i, y in enumerate(outputs) if y.dtype in EDITABLE[:3]]
    others = [i for i, y in enumerate(outputs) if y.dtype in EDITABLE]
    return next(iter(floats or others), None)


def sizes_of(operator: Operator, tensors: Sequence[Tensor]) -> dict[str, int]:
    """Return the sizes of the named dimensions that arguments have."""
    found: dict[str, int] = {}
    for parameter, x in zip(operator.tensors.values(), tensors, strict=False):
        names = parameter.names
        found |= dict(zip(names, x.shape[x.dim() - len(names) :], strict=True))
    return found
