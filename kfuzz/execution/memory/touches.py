"""What a launch changed around its arguments: which elements, slack or zones."""

import numpy as np
from numpy.typing import NDArray

from kfuzz.core.recipe import TensorSpec
from kfuzz.numerics.run import Touch

Indices = NDArray[np.int64]


def single_shape(spec: TensorSpec) -> tuple[int, ...]:
    """Return the shape with every stride-0 axis cut down to one element."""
    pairs = zip(spec.shape, spec.element_strides, strict=True)
    return tuple(n if s else min(n, 1) for n, s in pairs)


def element_offsets(spec: TensorSpec) -> Indices:
    """Return the element offset of each logical element, stride-0 axes once."""
    offsets = np.zeros((), dtype=np.int64)
    for n, step in zip(single_shape(spec), spec.element_strides, strict=True):
        offsets = offsets[..., None] + np.arange(n, dtype=np.int64) * step
    return offsets.reshape(-1)


def find_touches(
    name: str, spec: TensorSpec, itemsize: int, changed: Indices
) -> list[Touch]:
    """Sort the changed bytes around one argument by where they lie.

    Args:
        name: the argument.
        spec: its recipe.
        itemsize: bytes per element.
        changed: offsets of the changed bytes from the view's first element,
            ascending.
    """
    span = spec.span
    found = np.unique(changed // itemsize)
    before, after = found[found < 0], found[found >= span]
    inside = found[(found >= 0) & (found < span)]
    touches = []
    if inside.size:
        touches += _inner_touches(name, spec, itemsize, inside)
    if before.size:
        distance = -int(before[-1])
        touches.append(Touch(name, "before", before.size, distance, itemsize))
    if after.size:
        distance = int(after[0]) - span + 1
        touches.append(Touch(name, "after", after.size, distance, itemsize))
    return touches


def _inner_touches(
    name: str, spec: TensorSpec, size: int, inside: Indices
) -> list[Touch]:
    """Tell changed elements from changed slack, given offsets within the span."""
    offsets = element_offsets(spec)
    order = np.argsort(offsets)
    lies = offsets[order]
    right = np.searchsorted(lies, inside)
    hit = lies[right] == inside
    touches = []
    if hit.any():
        first = np.unravel_index(order[right[hit]].min(), single_shape(spec))
        index = tuple(int(i) for i in first)
        touches.append(Touch(name, "element", int(hit.sum()), 0, size, index))
    if not hit.all():
        # The span starts and ends with an element, so slack has one on both sides.
        slack, right = inside[~hit], right[~hit]
        gaps = np.minimum(slack - lies[right - 1], lies[right] - slack)
        touches.append(Touch(name, "slack", slack.size, int(gaps.min()), size))
    return touches
