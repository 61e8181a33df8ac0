"""Kernels behind an operator in a library of their own, as compiled extensions are.

What computes there is torch's own kernel, which stands for compiled code: during the
call only the library's operator reaches torch's dispatcher.
"""

import functools
import itertools
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor

from kfuzz.contracts.witnesses.planted.base import Base, packed, unpacked

_NAME: Final = "kfuzz_witnesses"
_LIBRARY: Final = torch.library.Library(  # type: ignore[no-untyped-call]
    _NAME, "FRAGMENT"
)
_LIBRARY.define(  # type: ignore[no-untyped-call]
    "call(Tensor[] tensors, int number) -> Tensor[]"
)
# What the library is to do in calls that are under way, by number.
_PENDING: Final[dict[int, Callable[..., list[Tensor]]]] = {}
_numbers = itertools.count()


def _call(tensors: list[Tensor], number: int) -> list[Tensor]:
    return _PENDING[number](*tensors)


_LIBRARY.impl(  # type: ignore[no-untyped-call]
    "call", _call, "CompositeExplicitAutograd"
)


def in_library(base: Base) -> Base:
    """Return the kernel as one that leaves nothing to torch, and declares so."""

    @functools.wraps(base.function)
    def launched(*tensors: Tensor, **scalars: Any) -> Any:
        several = False

        def compute(*given: Tensor) -> list[Tensor]:
            nonlocal several
            outputs, several = unpacked(base.function(*given, **scalars))
            return outputs

        number = next(_numbers)
        _PENDING[number] = compute
        try:
            outputs = getattr(torch.ops, _NAME).call(list(tensors), number)
        finally:
            del _PENDING[number]
        return packed(outputs, several)

    return base.having(launched).claiming(own_kernels_only=True)
