"""Block pointers in Triton's interpreter under a release that has none any more.

Triton 3.9 has the names `tl.make_block_ptr` and `tl.advance`, which raise. Kernels of
released libraries use them, and run on a GPU with the releases before. Here they are a
tuple of values, and a load or store of one computes pointers and a mask, as Triton's
own code did up to 3.8: coordinates in 64 bits, a mask over the dimensions that
`boundary_check` names, zero (or NaN, if `padding_option` says so) elsewhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np


@dataclass(frozen=True)
class BlockPointer:
    """What `tl.make_block_ptr` returns.

    Attributes:
        base: pointer to the first element of the tensor; a tensor of Triton's.
        shape: sizes of the tensor.
        strides: in elements.
        offsets: of the block's first element.
        block_shape: sizes of the block.
    """

    base: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offsets: tuple[int, ...]
    block_shape: tuple[int, ...]

    @property
    def dtype(self) -> Any:
        """The type of the pointer to its elements, as block pointers had it."""
        return self.base.dtype

    def advance(self, offsets: Sequence[Any]) -> "BlockPointer":
        """Return the same, moved by some elements in each dimension."""
        moved = zip(self.offsets, _numbers(offsets), strict=True)
        return replace(self, offsets=tuple(old + by for old, by in moved))

    def pointers(self, module: Any, checked: Sequence[Any]) -> tuple[Any, Any]:
        """Return pointers to all elements, and where those lie in the tensor.

        Args:
            module: `triton.runtime.interpreter`.
            checked: the dimensions that have a boundary check.

        Returns:
            Tensors of Triton's; the second is None where nothing is checked.
        """
        rank, named = len(self.block_shape), set(_numbers(checked))
        if named - set(range(rank)):
            raise ValueError(
                f"boundary_check={sorted(named)} of a block of rank {rank}"
            )
        tl, handle, kind = module.tl, module.TensorHandle, self.base.dtype
        elements = np.zeros(self.block_shape, np.int64)
        mask = np.ones(self.block_shape, np.bool_)
        for dim, extent in enumerate(self.block_shape):
            shape = [1] * rank
            shape[dim] = extent
            place = (self.offsets[dim] + np.arange(extent)).reshape(shape)
            elements += place * self.strides[dim]
            if dim in named:
                mask &= (place >= 0) & (place < self.shape[dim])
        size = max(1, kind.element_ty.primitive_bitwidth // 8)
        first = self.base.handle
        data = first.data + (size * elements).astype(np.uint64)
        extents = list(self.block_shape)
        pointers = tl.tensor(
            handle(data, kind, dict(first.attr)), tl.block_type(kind, extents)
        )
        if not named:
            return pointers, None
        return pointers, tl.tensor(
            handle(mask, tl.int1), tl.block_type(tl.int1, extents)
        )


def made(
    base: Any, shape: Any, strides: Any, offsets: Any, block_shape: Any, order: Any
) -> BlockPointer:
    """Return what `tl.make_block_ptr` returns; see there.

    Raises:
        ValueError: the sequences differ in length, or `order` is no permutation.
    """
    given = [_numbers(each) for each in (shape, strides, offsets, block_shape, order)]
    rank = len(given[3])
    if any(len(each) != rank for each in given) or sorted(given[4]) != [*range(rank)]:
        raise ValueError(
            "make_block_ptr takes shape, strides, offsets, block shape and order of "
            f"one length; they have {[len(each) for each in given]}"
        )
    return BlockPointer(base, *given[:4])


def _numbers(values: Any) -> tuple[int, ...]:
    """Return plain numbers for what a kernel gives: tensors, constants, numbers."""
    values = getattr(values, "value", values)
    if not isinstance(values, Sequence) and not hasattr(values, "values"):
        values = (values,)
    return tuple(number(value) for value in values)


def number(value: Any) -> int:
    """Return the number that a tensor of one element or a constant stands for."""
    value = getattr(value, "value", value)  # a constexpr's
    handle = getattr(value, "handle", None)
    return int(value) if handle is None else int(np.asarray(handle.data).squeeze())


def loaded(load: Any, module: Any) -> Any:
    """Return a `tl.load` that takes block pointers too."""

    def load_any(
        pointer: Any, *others: Any, boundary_check: Any = (), padding_option: Any = "",
        **named: Any,
    ) -> Any:  # fmt: skip
        if not isinstance(pointer, BlockPointer):
            return load(pointer, *others, **named)
        if others or any(named.get(key) is not None for key in ("mask", "other")):
            raise ValueError("a load of a block pointer takes neither mask nor other")
        named = {k: v for k, v in named.items() if k not in ("mask", "other")}
        pointers, mask = pointer.pointers(module, boundary_check)
        padding = getattr(padding_option, "value", padding_option)
        if mask is None or not padding:
            return load(pointers, mask=mask, **named)
        if padding not in ("zero", "nan"):
            raise ValueError(f"padding_option={padding!r}; valid: zero, nan")
        return load(
            pointers, mask=mask, other=float("nan" if padding == "nan" else 0), **named
        )

    return load_any


def stored(store: Any, module: Any) -> Any:
    """Return a `tl.store` that takes block pointers too."""

    def store_any(
        pointer: Any, value: Any, *others: Any, boundary_check: Any = (), **named: Any
    ) -> Any:
        if not isinstance(pointer, BlockPointer):
            return store(pointer, value, *others, **named)
        if others or named.get("mask") is not None:
            raise ValueError("a store to a block pointer takes no mask")
        named = {k: v for k, v in named.items() if k != "mask"}
        pointers, mask = pointer.pointers(module, boundary_check)
        return store(pointers, value, mask=mask, **named)

    return store_any
