"""Correct and faulty implementations: reductions."""

import warnings

import torch
from torch import Tensor

from kfuzz.contracts import operators as ops
from tests.helpers import correct_reductions as correct
from tests.helpers.impostors import (
    Setup,
    Subject,
)


def rows(*extra: Setup, **scalars: object) -> tuple[Setup, ...]:
    """Return setups of one tensor with a `dim`."""

    def setup(shape: tuple[int, ...], dim: int) -> Setup:
        return Setup((shape,), {"dim": dim, **scalars})  # type: ignore[dict-item]

    return (
        setup((2, 1), -1), setup((3, 33), 1), setup((65, 2), 0),
        setup((2, 17, 3), -2), setup((131,), -1), *extra,
    )  # fmt: skip


def plain(shape: tuple[int, ...] = (4, 64), **scalars: object) -> Setup:
    return Setup((shape,), {"dim": -1, **scalars})  # type: ignore[dict-item]


EMPTY = (Setup(((2, 0),), {"dim": -1}), Setup(((0, 3),), {"dim": -1}))
LONG = plain((4, 512))


def normalize(x: Tensor, *, dim: int, eps: float) -> Tensor:
    """torch's own, in float32."""
    made = torch.nn.functional.normalize(x.float(), 2.0, dim, eps)
    return made.to(x.dtype)


def log_sum(x: Tensor, *, dim: int) -> Tensor:
    return torch.logsumexp(x.float(), dim).to(x.dtype)


def log_softmax(x: Tensor, *, dim: int) -> Tensor:
    return torch.log_softmax(x.float(), dim).to(x.dtype)


def product(x: Tensor, *, dim: int) -> Tensor:
    return torch.prod(x.float(), dim).to(x.dtype)


def variance(x: Tensor, *, dim: int, correction: int) -> Tensor:
    with warnings.catch_warnings():  # of too few elements
        warnings.simplefilter("ignore")
        return torch.var(x, dim, correction=correction)


SUBJECTS = {
    "mean": Subject(
        ops.mean, torch.mean, rows(*EMPTY), plain(),
        correct=correct.MEANS,
    ),
    "prod": Subject(
        ops.prod, product, rows(*EMPTY), plain((6, 4)),
        correct=correct.PRODUCTS,
        families=("randn", "uniform01"), decided=0.6,
    ),
    "amin": Subject(
        ops.amin, torch.amin, rows(), plain(),
        correct={
            "sorted": lambda x, *, dim: -(-x).sort(dim).values.select(dim, -1),
            "widened": lambda x, *, dim: x.float().amin(dim).to(x.dtype),
        },
    ),
    "argmax": Subject(
        ops.argmax, torch.argmax, rows(), plain(),
        correct={"serial": correct.first_maximum, "tree": correct.tournament},
        nans=False, infinities=False,
    ),
    "var": Subject(
        ops.var, variance, rows(correction=1) + rows(correction=0)[1:3],
        plain(correction=1),
        correct=correct.VARIANCES,
        infinities=False, decided=0.75,
    ),
    "logsumexp": Subject(
        ops.logsumexp, log_sum, rows(*EMPTY), plain(),
        correct=correct.LOG_SUM_EXPS,
    ),
    "log_softmax": Subject(
        ops.log_softmax, log_softmax, rows(*EMPTY), plain(),
        correct=correct.LOG_SOFTMAXES,
    ),
    "cumsum": Subject(
        ops.cumsum, torch.cumsum, rows(*EMPTY), plain(),
        correct=correct.SCANS,
    ),
    "l2_normalize": Subject(
        ops.l2_normalize, normalize,
        rows(eps=1e-12) + rows(eps=0.5)[1:3], plain(eps=1e-12),
        correct=correct.L2_NORMALIZES,
        infinities=False, decided=0.75,
    ),
}  # fmt: skip
