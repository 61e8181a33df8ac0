"""Rotary embeddings: both pairings, tables of both widths, fused or not."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kfuzz.contracts import operators as ops
from tests.helpers.impostors import (
    Algorithm,
    Setup,
    Subject,
)

Turn = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
INF = 0x7F800000


def by_pairs(turn: Turn, dtype: torch.dtype | None = torch.float32) -> Algorithm:
    """Make rope out of a function of a pair of columns, a and b, and its tables.

    Args:
        turn: takes a, b and lists of cos and sin of either; returns the new pair.
        dtype: in which it computes; None for the data's own.
    """

    def call(
        x: Tensor, cos: Tensor, sin: Tensor, *, interleaved: bool, repeats: int
    ) -> Tensor:
        half = x.shape[-1] // 2
        first = list(range(0, 2 * half, 2) if interleaved else range(half))
        second = [i + 1 if interleaved else i + half for i in first]
        y = torch.empty_like(x)
        for n, (i, j) in enumerate(zip(first, second, strict=True)):
            at = (n, n) if repeats == 2 else (i, j)
            c, s = (
                torch.stack([t[:, k] for k in at])[:, :, None].to(dtype or t.dtype)
                for t in (cos, sin)
            )
            a, b = (x[..., k].to(dtype or x.dtype) for k in (i, j))
            made = turn(a, b, c, s)
            y[..., i], y[..., j] = (z.to(x.dtype) for z in made)
        return y

    return call


def plain(a: Tensor, b: Tensor, c: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    return a * c[0] - b * s[0], b * c[1] + a * s[1]


def fused(a: Tensor, b: Tensor, c: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """One product exact: float64 holds it, and its sum with a rounded float32 one."""
    one = a.double() * c[0].double() - (b * s[0]).double()
    return one.float(), (b.double() * c[1].double() + (a * s[1]).double()).float()


def fused_the_other_way(
    a: Tensor, b: Tensor, c: Tensor, s: Tensor
) -> tuple[Tensor, Tensor]:
    one = (a * c[0]).double() - b.double() * s[0].double()
    return one.float(), ((b * c[1]).double() + a.double() * s[1].double()).float()


def flushing(a: Tensor, b: Tensor, c: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    def flush(x: Tensor) -> Tensor:
        return torch.where(x.abs() < 2.0**-126, torch.zeros_like(x), x)

    a, b, c, s = map(flush, (a, b, c, s))
    one = flush(flush(a * c[0]) - flush(b * s[0]))
    return one, flush(flush(b * c[1]) + flush(a * s[1]))


FORMS: dict[str, Algorithm] = {
    f.__name__: by_pairs(f) for f in (fused, fused_the_other_way, flushing)
}
HALVES: dict[str, Any] = {"interleaved": False, "repeats": 1}
PAIRS: dict[str, Any] = {"interleaved": True, "repeats": 1}
SUBJECT = Subject(
    ops.rope,
    by_pairs(plain),
    (
        Setup(((2, 3, 2, 6), (3, 6), (3, 6)), HALVES),
        Setup(((1, 17, 1, 4), (17, 4), (17, 4)), PAIRS),
        Setup(((1, 2, 3, 34), (2, 17), (2, 17)), {**HALVES, "repeats": 2}),
        Setup(((1, 5, 1, 8), (5, 4), (5, 4)), {**PAIRS, "repeats": 2}),
        Setup(((1, 2, 1, 0), (2, 0), (2, 0)), HALVES),
    ),
    Setup(((2, 4, 2, 16), (4, 16), (4, 16)), HALVES),
    {**FORMS, "in_double": by_pairs(plain, torch.float64)},
)
