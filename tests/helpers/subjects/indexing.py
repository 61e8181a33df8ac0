"""Operators with indices: rows selected, sums scattered, elements ordered."""

from collections.abc import Callable

import torch
from torch import Tensor

from kfuzz.contracts import operators as ops
from kfuzz.core.recipe import Scalar
from tests.helpers.impostors import (
    Setup,
    Subject,
)

NAN, INF = float("nan"), float("inf")
Scatter = Callable[[Tensor, Tensor, Tensor], Tensor]


# --- correct sums, in float32, along the last dimension -----------------------


def in_turn(x: Tensor, index: Tensor, src: Tensor) -> Tensor:
    """One source after another, as a loop or atomics do."""
    y, rows = x.clone(), torch.arange(x.shape[0])
    for k in range(index.shape[1]):
        y[rows, index[:, k]] += src[:, k]
    return y


def backwards(x: Tensor, index: Tensor, src: Tensor) -> Tensor:
    """The last source first."""
    return in_turn(x, index.flip(-1), src.flip(-1))


def base_last(x: Tensor, index: Tensor, src: Tensor) -> Tensor:
    """The element itself joins at the end."""
    return x + in_turn(torch.zeros_like(x), index, src)


def segments(x: Tensor, index: Tensor, src: Tensor) -> Tensor:
    """For each place the sum of what it is given, in pairs."""
    mine = index.unsqueeze(1) == torch.arange(x.shape[1])[:, None]
    return x + torch.where(mine, src.unsqueeze(1), 0.0).sum(-1)


def in_tiles(x: Tensor, index: Tensor, src: Tensor) -> Tensor:
    """Partial sums of 16 sources each."""
    for i, s in zip(index.split(16, -1), src.split(16, -1), strict=True):
        x = x + in_turn(torch.zeros_like(x), i, s)
    return x


SCATTERS: dict[str, Scatter] = {
    f.__name__: f for f in (in_turn, backwards, base_last, segments, in_tiles)
}


def elements(scatter: Scatter) -> Callable[..., Tensor]:
    """Make a scatter_add."""

    def call(x: Tensor, index: Tensor, src: Tensor) -> Tensor:
        return scatter(x.float(), index, src.float()).to(x.dtype)

    return call


def rows(scatter: Scatter, *, late: bool = False) -> Callable[..., Tensor]:
    """Make an index_add; the factor may come after the sum."""

    def call(x: Tensor, index: Tensor, src: Tensor, *, alpha: float) -> Tensor:
        base, factor = x.float().T, torch.tensor(alpha, dtype=torch.float32)
        places, given = index.expand(src.shape[1], -1), src.float().T
        if late:
            made = base + factor * scatter(torch.zeros_like(base), places, given)
        else:
            made = scatter(base, places, factor * given)
        return made.T.to(x.dtype)

    return call


def added_in_half(x: Tensor, index: Tensor, src: Tensor) -> Tensor:
    return in_turn(x, index, src)


def rows_in_half(x: Tensor, index: Tensor, src: Tensor, *, alpha: float) -> Tensor:
    return in_turn(x.T.clone(), index.expand(src.shape[1], -1), src.T * alpha).T


def along(n: int, c: int, k: int) -> Setup:
    return Setup(((n, c), (n, k), (n, k)))


def table(v: int, k: int, d: int, alpha: float = 1.0) -> Setup:
    return Setup(((v, d), (k,), (k, d)), {"alpha": alpha})


SUBJECTS = {
    "index_select": Subject(
        ops.index_select,
        lambda x, index: torch.index_select(x, 0, index),
        tuple(Setup((x, (k,))) for x, k in (((5, 3), 9), ((1, 70), 2), ((65, 1), 0))),
        Setup(((9, 16), (32,))),
        correct={"by row": lambda x, index: x[index]}, dtypes=("float16",),
    ),
    "scatter_add": Subject(
        ops.scatter_add,
        lambda x, index, src: torch.scatter_add(
            x.double(), -1, index, src.double()
        ).to(torch.float32).to(x.dtype),
        (along(3, 5, 9), along(2, 1, 4), along(1, 130, 150), along(4, 3, 0)),
        along(4, 16, 64),
        correct={name: elements(f) for name, f in SCATTERS.items()},
        half=added_in_half,
    ),
    "index_add": Subject(
        ops.index_add,
        rows(in_turn),
        (table(5, 9, 3), table(1, 70, 4, 2.0), table(33, 20, 2, -1.0),
         table(4, 40, 3, 0.1), table(3, 40, 5, 0.5), table(3, 0, 4)),
        table(6, 32, 8),
        correct={
            **{name: rows(f) for name, f in SCATTERS.items()},
            "factor last": rows(segments, late=True),
            "factor after a loop": rows(in_turn, late=True),
        },
        half=rows_in_half,
    ),
}  # fmt: skip


# --- correct orders -----------------------------------------------------------


def stable(x: Tensor, *, dim: int, descending: bool) -> tuple[Tensor, Tensor]:
    """Equal elements in the order they had."""
    found = torch.sort(x, dim=dim, descending=descending, stable=True)
    return found.values, found.indices


def unstable(x: Tensor, *, dim: int, descending: bool) -> tuple[Tensor, Tensor]:
    """The last of equal elements first."""
    n = x.shape[dim]
    values, index = stable(x.flip(dim), dim=dim, descending=descending)
    return values, n - 1 - index


def shuffled(x: Tensor, *, dim: int, descending: bool) -> tuple[Tensor, Tensor]:
    """Equal elements in no order, and their zeros all +0."""
    chance = torch.Generator().manual_seed(3)
    places = torch.randperm(x.shape[dim], generator=chance)
    mixed = x.index_select(dim, places)
    values, index = stable(mixed, dim=dim, descending=descending)
    return values + 0.0, places[index]


def one_by_one(x: Tensor, *, k: int, dim: int, largest: bool) -> tuple[Tensor, Tensor]:
    """The greatest of what is left, k times."""
    rows = x.movedim(dim, -1).double()
    rank = torch.where(rows.isnan(), INF, rows.clamp(-1e300, 1e300))
    if not largest:
        rank = -rank
    taken = torch.zeros_like(rank, dtype=torch.bool)
    index = torch.zeros(*rank.shape[:-1], k, dtype=torch.int64)
    for i in range(k):
        left = torch.where(taken, -INF, rank)
        top = (left == left.amax(-1, keepdim=True)) & ~taken
        index[..., i] = top.int().argmax(-1)
        taken.scatter_(-1, index[..., i : i + 1], True)
    index = index.movedim(-1, dim)
    return x.gather(dim, index), index


Sort = Callable[..., tuple[Tensor, Tensor]]


def chosen(sort: Sort) -> Sort:
    """Make a topk of a sort."""

    def call(x: Tensor, *, k: int, dim: int, largest: bool) -> tuple[Tensor, Tensor]:
        values, index = sort(x, dim=dim, descending=largest)
        return values.narrow(dim, 0, k), index.narrow(dim, 0, k)

    return call


def ordering(*sizes: tuple[tuple[int, ...], int], **scalars: Scalar) -> list[Setup]:
    return [Setup((shape,), {"dim": dim, **scalars}) for shape, dim in sizes]


SUBJECTS |= {
    "sort": Subject(
        ops.sort, torch.sort,
        (*ordering(((3, 33), 1), ((65, 2), 0), ((2, 0), -1), descending=False),
         *ordering(((2, 17, 3), -2), ((31,), -1), ((2, 1), -1), descending=True)),
        *ordering(((4, 64), -1), descending=False),
        correct={f.__name__: f for f in (stable, unstable, shuffled)},
        dtypes=("float32", "bfloat16"),
    ),
    "topk": Subject(
        ops.topk, torch.topk,
        (*ordering(((3, 33), 1), ((65, 2), 0), k=2, largest=True),
         *ordering(((2, 17, 3), -2), k=5, largest=False),
         *ordering(((3, 9), -1), k=9, largest=True),
         *ordering(((3, 9), -1), ((0, 3), -1), k=0, largest=True)),
        *ordering(((4, 64), -1), k=8, largest=True),
        correct={
            **{f.__name__: chosen(f) for f in (stable, unstable, shuffled)},
            "one by one": one_by_one,
        },
        dtypes=("float32", "float16"),
    ),
}  # fmt: skip
