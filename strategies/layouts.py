"""Memory layouts of a tensor argument: strides and storage offsets."""

import math
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise, permutations
from typing import Final

from kfuzz.core.declaration import Declaration
from kfuzz.core.dtypes import DTYPES
from kfuzz.core.random_streams import Purpose, stream
from kfuzz.core.recipe import TensorSpec, contiguous_strides

Shape = tuple[int, ...]
# Strides (None: contiguous) and storage offset, in elements.
Layout = tuple[Shape | None, int]

CONTIGUOUS: Final[Layout] = (None, 0)
_OFFSETS: Final = (1, 2, 3, 4, 5, 7, 8, 31)
_PADS: Final = (1, 3, 8, 16, 2, 64)
# With this stride the third index lies more than 2^31 elements from the first, where
# 32-bit offsets have wrapped; the stride itself is an ordinary 32-bit number.
_HUGE_STRIDE: Final = 2**30 + 1
# How often every other kind is listed beside one huge: that is one draw in forty.
_REPEATS: Final = 3
# Size-1 dimensions are never stepped over, so their stride may be anything.
_ODD_STRIDES: Final = (7, 0, 1001, 3)


def layout_name(spec: TensorSpec) -> str:
    """Return the layout in one word, for statistics and explanations.

    Returns:
        "contiguous", "0-d", "offset" (contiguous at a storage offset),
        "odd_size1" (contiguous, with unusual strides in size-1 dimensions),
        "expanded" (strides 0), "transposed" (axes in another order),
        "stepped" (every second or third index of some dimension) or "padded"
        (rows sliced from a wider buffer); "huge" where elements lie 2^31 and more
        apart.
    """
    strides = spec.element_strides
    if spec.span > 2**31 > spec.numel:
        return "huge"
    if spec.is_contiguous:
        if spec.offset:
            return "offset"
        if not spec.shape:
            return "0-d"
        usual = strides == contiguous_strides(spec.shape)
        return "contiguous" if usual else "odd_size1"
    steps = [(n, s) for n, s in zip(spec.shape, strides, strict=True) if n != 1]
    if any(stride == 0 for _, stride in steps):
        return "expanded"
    if any(a < b for (_, a), (_, b) in pairwise(steps)):
        return "transposed"
    below = 1
    for n, stride in reversed(steps):
        if stride % below:
            return "padded"
        below = stride * max(n, 1)
    return "stepped"


def layout_options(
    shape: Shape, declaration: Declaration, *, span: int = 0, inplace: bool = False
) -> tuple[str, ...]:
    """Return the kinds of layout, each as often as it is drawn; `build` makes one.

    Half of the draws are contiguous, about one in forty is huge where that can be.
    An in-place argument is never expanded: two of its elements would be one.

    Args:
        shape: logical sizes.
        declaration: the kernel's.
        span: greatest number of elements from the first to the last of a huge
            view; 0 for none.
        inplace: whether the kernel overwrites it.
    """
    inner = declaration.layouts == "inner_contiguous"
    return _options(
        len(shape),
        max(shape, default=0) > 1,
        1 in (shape[:-1] if inner else shape),
        bool(_huge_axes(shape, inner, span)),
        declaration.layouts,
        inplace,
    )


@lru_cache(maxsize=1024)
def _options(
    rank: int, wide: bool, ones: bool, far: bool, allowed: str, inplace: bool
) -> tuple[str, ...]:
    """Return the kinds that exist for shapes of this sort."""
    kinds: list[str] = []
    if allowed != "contiguous":
        # What a kernel may still see with stride 1 in its last dimension is a
        # rank less: everything but that dimension.
        free = rank if allowed == "any" else rank - 1
        kinds = ["offset"]
        if rank >= 2:
            kinds += ["padded"] * 2
        if free >= 2:
            kinds += ["transposed"] * 2
        if free >= 1:
            kinds.append("stepped")
        if allowed == "any" and wide and not inplace:
            kinds.append("expanded")
        if ones:
            kinds.append("odd_size1")
    every = ["contiguous"] * max(1, len(kinds)) + kinds
    if far and allowed != "contiguous":
        every = every * _REPEATS + ["huge"]
    return tuple(every)


def build(
    kind: str,
    shape: Shape,
    seed: int,
    dtype: str,
    declaration: Declaration,
    *,
    span: int = 0,
) -> Layout:
    """Return the layout of a kind.

    Args:
        kind: one of `layout_options` for the same shape and declaration.
        shape: logical sizes.
        seed: settles the details (which axis, how wide, which order).
        dtype: settles which offsets are aligned.
        declaration: with "inner_contiguous" the last dimension keeps stride 1,
            and offsets keep the declared alignment.
        span: as given to `layout_options`.

    Returns:
        Strides and offset; at most 3 times the elements of the shape, or 65
        elements per row, lie in the span, unless the kind is "huge".
    """
    if kind == "contiguous":
        return CONTIGUOUS
    inner = declaration.layouts == "inner_contiguous"
    unit = 1
    if inner:
        unit = max(1, declaration.alignment // DTYPES[dtype].itemsize)
    variant = stream(seed, Purpose.INPUT_LAYOUT) & 0xFFFFFFFF
    if kind == "huge":
        return _huge(shape, variant, inner, span)
    strides, offset = _BUILDERS[kind](shape, variant, inner)
    return strides, -(-offset // unit) * unit


def _offset(shape: Shape, variant: int, inner: bool) -> Layout:
    return None, _OFFSETS[variant % len(_OFFSETS)]


@lru_cache(maxsize=64)
def _orders(free: int) -> tuple[Shape, ...]:
    return tuple(permutations(range(free)))[1:]


def _transposed(shape: Shape, variant: int, inner: bool) -> Layout:
    free = len(shape) - int(inner)
    orders = _orders(free)
    order = orders[variant % len(orders)] + tuple(range(free, len(shape)))
    stored = contiguous_strides(tuple(shape[axis] for axis in order))
    strides = [0] * len(shape)
    for axis, stride in zip(order, stored, strict=True):
        strides[axis] = stride
    return tuple(strides), 0


def _padded(shape: Shape, variant: int, inner: bool) -> Layout:
    pad = _PADS[variant % len(_PADS)]
    wider = (*shape[:-1], shape[-1] + pad)
    # The slice starts at the left edge, the right edge or between.
    start = (0, pad, pad // 2)[variant // len(_PADS) % 3]
    return contiguous_strides(wider), start


def _stepped(shape: Shape, variant: int, inner: bool) -> Layout:
    return _stepped_along(shape, variant % (len(shape) - int(inner)), variant)


def _stepped_along(shape: Shape, axis: int, variant: int) -> tuple[Shape, int]:
    """Return the strides and the start of every second or third index of an axis."""
    step = 2 + (variant >> 4) % 2
    buffer = (*shape[:axis], shape[axis] * step, *shape[axis + 1 :])
    strides = list(contiguous_strides(buffer))
    start = (variant >> 5) % step * strides[axis]
    strides[axis] *= step
    return tuple(strides), start


def _expanded(shape: Shape, variant: int, inner: bool) -> Layout:
    wide = [axis for axis, n in enumerate(shape) if n > 1]
    more = variant >> 8
    several = len(wide) > 1 and more % 6 == 0
    axes = [wide[(variant + i) % len(wide)] for i in range(1 + several)]
    stored = tuple(1 if axis in axes else n for axis, n in enumerate(shape))
    others = [axis for axis, n in enumerate(stored) if n > 1]
    strides, start = contiguous_strides(stored), 0
    if others and more % 6 == 1:
        strides, start = _stepped_along(stored, others[more % len(others)], more)
    elif more % 6 == 2:
        start = _OFFSETS[more % len(_OFFSETS)]
    return tuple(0 if a in axes else s for a, s in enumerate(strides)), start


def _odd_size1(shape: Shape, variant: int, inner: bool) -> Layout:
    strides = list(contiguous_strides(shape))
    for axis in range(len(shape) - int(inner)):
        if shape[axis] == 1:
            strides[axis] = _ODD_STRIDES[(variant + axis) % len(_ODD_STRIDES)]
    return tuple(strides), 0


def can_be_huge(shape: Shape, declaration: Declaration, span: int) -> bool:
    """Whether `build` has a huge layout for a shape within so many elements."""
    inner = declaration.layouts == "inner_contiguous"
    return bool(_huge_axes(shape, inner, span))


def _huge_axes(shape: Shape, inner: bool, span: int) -> list[int]:
    """Return the axes along which indices can lie `_HUGE_STRIDE` elements apart."""
    if math.prod(shape) == 0:
        return []
    free = shape[: len(shape) - int(inner)]
    return [a for a, n in enumerate(free) if 3 <= n <= span // _HUGE_STRIDE]


def _huge(shape: Shape, variant: int, inner: bool, span: int) -> Layout:
    axes = _huge_axes(shape, inner, span)
    axis = axes[variant % len(axes)]
    strides = list(contiguous_strides((*shape[:axis], 1, *shape[axis + 1 :])))
    strides[axis] = _HUGE_STRIDE
    return tuple(strides), 0


_BUILDERS: Final[dict[str, Callable[[Shape, int, bool], Layout]]] = {
    "offset": _offset,
    "transposed": _transposed,
    "padded": _padded,
    "stepped": _stepped,
    "expanded": _expanded,
    "odd_size1": _odd_size1,
}
