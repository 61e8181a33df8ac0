"""Cases with dimensions cut: fewer indices, an empty one filled, one removed.

Pinned values are sliced, never generated anew.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from kfuzz.core.dtypes import (
    DTYPES,
    bits_to_number,
    number_to_bits,
    pack_bits,
    unpack_bits,
)
from kfuzz.core.recipe import Case, TensorSpec


def filled(case: Case, axis: str) -> Case:
    """Return the case with an empty dimension grown to size 1, values 0."""
    tensors = {}
    for name, spec in case.tensors.items():
        if axis in spec.axes:
            at = spec.axes.index(axis)
            shape = (*spec.shape[:at], 1, *spec.shape[at + 1 :])
            data = bytes(math.prod(shape) * DTYPES[spec.dtype].itemsize)
            spec = replace(spec, shape=shape, values=data, strides=None)
        tensors[name] = spec
    return replace(case, tensors=tensors)


def kept(case: Case, axis: str, indices: Sequence[int]) -> Case:
    """Return the case with only some indices of one named dimension.

    Tensors that hold indices into it are renumbered, see `renumbered`.
    """
    tensors = {}
    for name, spec in case.tensors.items():
        if spec.below == axis:
            spec = renumbered(spec, case.dims[axis], indices)
        if axis not in spec.axes:
            tensors[name] = spec
            continue
        at = spec.axes.index(axis)
        shape = (*spec.shape[:at], len(indices), *spec.shape[at + 1 :])
        strides = None
        if spec.strides is not None and not spec.is_contiguous:
            strides = spec.strides
        values = _kept_bytes(spec, at, indices)
        tensors[name] = replace(spec, shape=shape, values=values, strides=strides)
    return replace(case, tensors=tensors)


def renumbered(spec: TensorSpec, bound: int, kept: Sequence[int]) -> TensorSpec:
    """Return indices below `bound` as what they are among those kept.

    One that is kept becomes its place there, another one is taken modulo their
    number. One out of bounds stays so: the bound itself and the next number keep
    their distance to it, all others their value.

    Args:
        spec: pinned indices.
        bound: how many there were.
        kept: which of them are left, ascending; at least one.
    """
    assert spec.values is not None
    places = {old: new for new, old in enumerate(kept)}
    size = len(kept)

    def moved(value: int) -> int:
        if 0 <= value < bound:
            return places.get(value, value % max(size, 1))
        return value - bound + size if bound <= value <= bound + 1 else value

    patterns = unpack_bits(spec.values, spec.dtype)
    new = {
        bits: number_to_bits(moved(int(bits_to_number(bits, spec.dtype))), spec.dtype)
        for bits in set(patterns)
    }
    data = pack_bits([new[bits] for bits in patterns], spec.dtype)
    return replace(spec, values=data)


def _kept_bytes(spec: TensorSpec, at: int, indices: Sequence[int]) -> bytes:
    assert spec.values is not None
    inner = DTYPES[spec.dtype].itemsize * math.prod(spec.shape[at + 1 :])
    outer = math.prod(spec.shape[:at])
    row = spec.shape[at] * inner
    data = spec.values
    if isinstance(indices, range) and indices.step == 1:
        first, last = indices.start * inner, indices.stop * inner
        return b"".join(data[i * row + first : i * row + last] for i in range(outer))
    return b"".join(
        data[i * row + k * inner : i * row + (k + 1) * inner]
        for i in range(outer)
        for k in indices
    )


def without_axis(case: Case, axis: str) -> Case | None:
    """Return the case without a dimension of size 0 or 1; None if `dim` names it."""
    scalars = dict(case.scalars)
    first = case.lead
    dim = scalars.get("dim")
    if dim is not None and axis in first.axes:
        at, rank = first.axes.index(axis), len(first.axes)
        dim = int(dim)
        positive = dim % rank
        if positive == at:
            return None
        moved = positive - (at < positive)
        scalars["dim"] = moved if dim >= 0 else moved - (rank - 1)
    tensors = {}
    for name, spec in case.tensors.items():
        if axis in spec.axes:
            at = spec.axes.index(axis)
            strides = spec.strides
            if strides is not None:
                strides = (*strides[:at], *strides[at + 1 :])
            spec = replace(
                spec,
                shape=(*spec.shape[:at], *spec.shape[at + 1 :]),
                axes=(*spec.axes[:at], *spec.axes[at + 1 :]),
                strides=strides,
            )
        tensors[name] = spec
    return replace(case, tensors=tensors, scalars=scalars)


def merged(case: Case, one: str, other: str) -> Case | None:
    """Return the case with two neighbouring dimensions as one; None where they differ.

    They are one dimension where every tensor that has either has both, side by side and
    without a step between them, and no scalar counts dimensions.
    """
    if case.scalars.get("dim") is not None:
        return None
    tensors = {}
    for name, spec in case.tensors.items():
        if spec.below in (one, other):
            return None
        if one in spec.axes or other in spec.axes:
            at = spec.axes.index(one) if one in spec.axes else len(spec.axes)
            if spec.axes[at + 1 : at + 2] != (other,) or not spec.is_contiguous:
                return None
            size = spec.shape[at] * spec.shape[at + 1]
            spec = replace(
                spec,
                shape=(*spec.shape[:at], size, *spec.shape[at + 2 :]),
                axes=(*spec.axes[: at + 1], *spec.axes[at + 2 :]),
                strides=None,
            )
        tensors[name] = spec
    return replace(case, tensors=tensors)
