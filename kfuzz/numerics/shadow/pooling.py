"""Pooling as chains of simpler operators, in any number of dimensions.

They run under the shadow, which sees each step.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as functional
from torch import Tensor

from kfuzz.numerics.shadow.shade import NoRule, composite


def _average(name: str, rank: int) -> None:
    """Register the mean of each window in some number of dimensions."""

    def pool(
        x: Tensor, size: Sequence[int], stride: Sequence[int] = (),
        padding: Sequence[int] = (0,), ceil: bool = False, counted: bool = True,
        divisor: Any = None,
    ) -> Tensor:  # fmt: skip
        """The mean of each window."""
        padded = any(padding)
        if ceil or divisor is not None or (padded and not counted):
            raise NoRule(f"aten.{name}")
        steps = _all(stride or size, rank)
        made = _windows(
            x, _all(size, rank), steps, _all(padding, rank), [1] * rank, 0.0
        )
        return made.mean(list(range(-rank, 0)))

    composite(name)(pool)


def _greatest(name: str, rank: int) -> None:
    """Register the maximum of each window in some number of dimensions."""

    def pool(
        x: Tensor, size: Sequence[int], stride: Sequence[int] = (),
        padding: Sequence[int] = (0,), dilation: Sequence[int] = (1,),
        ceil: bool = False,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """The maximum of each window, and its place in the space."""
        if ceil:
            raise NoRule(f"aten.{name}")
        sizes, room = _all(size, rank), _all(padding, rank)
        steps, far = _all(stride or size, rank), _all(dilation, rank)
        return _highest(x, sizes, steps, room, far)

    composite(name)(pool)


for _rank in (2, 3):
    _average(f"avg_pool{_rank}d", _rank)
    _greatest(f"max_pool{_rank}d_with_indices", _rank)


@composite("_adaptive_avg_pool2d", "_adaptive_avg_pool3d")
def adaptive_average(x: Tensor, size: Sequence[int]) -> Tensor:
    """The mean of each part, where all parts have one size."""
    rank = len(size)
    parts = _parts(x, size, "aten._adaptive_avg_pool")
    made = _windows(x, parts, parts, [0] * rank, [1] * rank, 0.0)
    return made.mean(list(range(-rank, 0)))


@composite("adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_greatest(x: Tensor, size: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The maximum of each part, where all parts have one size."""
    parts = _parts(x, size, "aten.adaptive_max_pool")
    return _highest(x, parts, parts, [0] * len(size), [1] * len(size))


def _parts(x: Tensor, size: Sequence[int], name: str) -> list[int]:
    """Return the sizes of equal parts."""
    have = x.shape[-len(size) :]
    if any(m == 0 or n % m for n, m in zip(have, size, strict=True)):
        raise NoRule(name)
    return [n // m for n, m in zip(have, size, strict=True)]


def _highest(
    x: Tensor, size: Sequence[int], stride: Sequence[int], room: Sequence[int],
    far: Sequence[int],
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return the maximum of each window, and its place in the space."""
    rank = len(size)
    windows = _windows(x, size, stride, room, far, -math.inf)
    values, at = windows.flatten(-rank).max(-1)
    place = torch.zeros_like(at)
    for axis in range(rank):
        inside = at // math.prod(size[axis + 1 :])
        inside = inside - inside // size[axis] * size[axis]
        count = values.shape[axis - rank]
        first = torch.arange(count, device=x.device) * stride[axis] - room[axis]
        first = first.reshape(-1, *[1] * (rank - 1 - axis))
        place = place * x.shape[axis - rank] + first + inside * far[axis]
    return values, place


def _windows(
    x: Tensor, size: Sequence[int], stride: Sequence[int], room: Sequence[int],
    far: Sequence[int], fill: float,
) -> Tensor:  # fmt: skip
    """Return [..., *places, *size].

    Args:
        x: [..., *space].
        size: elements of a window along each axis.
        stride: from one window to the next.
        room: padding on either side.
        far: from one element of a window to the next.
        fill: what the padding holds.
    """
    rank = len(size)
    if any(room):
        edges = [n for axis in reversed(room) for n in (axis, axis)]
        x = functional.pad(x, edges, value=fill)
    for axis in range(rank):
        # Each window that is unfolded comes last, and its places stay where they were.
        x = x.unfold(-rank, (size[axis] - 1) * far[axis] + 1, stride[axis])
        x = x[..., :: far[axis]]
    return x


def _all(x: Sequence[int], rank: int) -> list[int]:
    return list(x) * rank if len(x) == 1 else list(x)
