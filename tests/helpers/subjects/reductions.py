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


def mean_in_half(x: Tensor, *, dim: int) -> Tensor:
    total = torch.zeros(x.shape[:-1], dtype=x.dtype)
    for part in x.unbind(dim):
        total = total + part
    return total / x.shape[-1]


def product_in_half(x: Tensor, *, dim: int) -> Tensor:
    total = torch.ones(x.shape[:-1], dtype=x.dtype)
    for part in x.unbind(dim):
        total = total * part
    return total


def scan_in_half(x: Tensor, *, dim: int) -> Tensor:
    total, parts = torch.zeros(x.shape[:-1], dtype=x.dtype), []
    for part in x.unbind(dim):
        total = total + part
        parts.append(total)
    return torch.stack(parts, dim)


def variance_in_half(x: Tensor, *, dim: int, correction: int) -> Tensor:
    d = x - mean_in_half(x, dim=dim)[..., None]
    return mean_in_half(d * d, dim=dim) * x.shape[-1] / (x.shape[-1] - correction)


def log_sum_in_half(x: Tensor, *, dim: int) -> Tensor:
    top = x.amax(dim, keepdim=True)
    weight = torch.exp(x - top)
    total = mean_in_half(weight, dim=dim) * x.shape[-1]
    return torch.log(total) + top.squeeze(dim)


def log_softmax_in_half(x: Tensor, *, dim: int) -> Tensor:
    return x - log_sum_in_half(x, dim=dim)[..., None]


def normalize_in_half(x: Tensor, *, dim: int, eps: float) -> Tensor:
    norm = torch.sqrt(mean_in_half(x * x, dim=dim) * x.shape[-1])
    return x / norm.clamp(min=eps)[..., None]


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
        correct=correct.MEANS, half=mean_in_half, half_setup=LONG,
        half_families=("absorb", "uniform01", "randn"),
    ),
    "prod": Subject(
        ops.prod, product, rows(*EMPTY), plain((6, 4)),
        correct=correct.PRODUCTS, half=product_in_half, half_setup=plain((16, 6)),
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
        correct=correct.VARIANCES, half=variance_in_half,
        half_setup=plain((4, 512), correction=0), half_families=("randn", "uniform01"),
        infinities=False, decided=0.75,
    ),
    "logsumexp": Subject(
        ops.logsumexp, log_sum, rows(*EMPTY), plain(),
        correct=correct.LOG_SUM_EXPS, half=log_sum_in_half, half_setup=LONG,
        half_families=("randn", "uniform01"),
    ),
    "log_softmax": Subject(
        ops.log_softmax, log_softmax, rows(*EMPTY), plain(),
        correct=correct.LOG_SOFTMAXES, half=log_softmax_in_half, half_setup=LONG,
        half_families=("randn", "uniform01", "offset"),
    ),
    "cumsum": Subject(
        ops.cumsum, torch.cumsum, rows(*EMPTY), plain(),
        correct=correct.SCANS, half=scan_in_half, half_setup=LONG,
        half_families=("absorb", "uniform01", "randn"),
    ),
    "l2_normalize": Subject(
        ops.l2_normalize, normalize,
        rows(eps=1e-12) + rows(eps=0.5)[1:3], plain(eps=1e-12),
        correct=correct.L2_NORMALIZES, half=normalize_in_half,
        half_setup=plain((4, 512), eps=1e-6), half_families=("randn", "uniform01"),
        infinities=False, decided=0.75,
    ),
}  # fmt: skip
