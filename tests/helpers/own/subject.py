"""A reference of one's own with kernels that are right, and such as are not."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import kfuzz
from kfuzz.contracts.binding import BoundKernel
from kfuzz.contracts.operator import Operator

Kernels = Mapping[str, Callable[..., Any]]


@dataclass(frozen=True)
class Kernel:
    """A kernel of a reference.

    Attributes:
        name: the reference's, and what it does otherwise or its fault.
        is_right: whether it has none.
        bound: to the reference.
    """

    name: str
    is_right: bool
    bound: BoundKernel


@dataclass(frozen=True)
class Subject:
    """A reference and kernels of it.

    Attributes:
        operator: of `kfuzz.reference`.
        right: kernels by what they do in another way than the reference.
        wrong: kernels by their fault.
        claims: what all of them declare.
    """

    operator: Operator
    right: Kernels
    wrong: Kernels
    claims: Mapping[str, Any] = field(default_factory=dict)

    def kernels(self) -> Iterator[Kernel]:
        """Yield each, bound."""
        for is_right, kernels in ((True, self.right), (False, self.wrong)):
            for what, function in kernels.items():
                name = f"{self.operator.name}: {what}"
                bind = kfuzz.kernel(self.operator, name=name, **self.claims)
                yield Kernel(name, is_right, bind(function))


def like(x: Tensor, y: Tensor) -> Tensor:
    """Return a result stored in the format of an argument."""
    return y.to(x.dtype)


def without_strides(x: Tensor) -> Tensor:
    """Return what a kernel reads that takes a tensor for contiguous, in its memory."""
    steps = torch.empty(x.shape, device="meta").stride()
    whole = x.untyped_storage().nbytes() // x.element_size()
    needed = x.storage_offset() + x.numel()
    start = x.storage_offset() if needed <= whole else max(whole - x.numel(), 0)
    if start + x.numel() > whole:  # an expanded one has fewer elements
        return x
    return x.as_strided(x.shape, steps, start)
