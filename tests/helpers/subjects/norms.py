"""Correct and faulty implementations: norms."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kfuzz.contracts import operators as ops
from tests.helpers.correct_algorithms import (
    LAYER_NORMS,
    Array,
    flush,
    lanes,
    nudged,
    pairwise,
    rows_of,
    serial,
    store,
)
from tests.helpers.impostors import (
    Setup,
    Subject,
)

ONE = np.float32(1)
F = torch.nn.functional
Rows = Callable[[Array, Array, np.float32], Array]

# --- RMS norms: rows, weight and eps in float32 -------------------------------


def root_divided(x: Array, g: Array, eps: np.float32) -> Array:
    """x / sqrt(mean x^2 + eps) * g."""
    mean = serial(x * x) / np.float32(x.shape[-1])
    return x / np.sqrt(mean + eps)[:, None] * g


def rsqrt_last(x: Array, g: Array, eps: np.float32) -> Array:
    """x g r, rsqrt off by 2 ulp and the mean a product with 1/n."""
    mean = lanes(x * x) * (ONE / np.float32(x.shape[-1]))
    r = (1 / np.sqrt((mean + eps).astype(np.float64))).astype(np.float32)
    return x * g * np.where(r > 0, nudged(r), r)[:, None]


def scale_first(x: Array, g: Array, eps: np.float32) -> Array:
    """x (r g)."""
    r = ONE / np.sqrt(pairwise(x * x) / np.float32(x.shape[-1]) + eps)
    return x * (r[:, None] * g)


def rms_in_double(x: Array, g: Array, eps: np.float32) -> Array:
    """In float64."""
    wide = x.astype(np.float64)
    return wide / np.sqrt((wide * wide).mean(-1, keepdims=True) + float(eps)) * g


def rms_flushed(x: Array, g: Array, eps: np.float32) -> Array:
    """Every operand and result flushed."""
    x, g = flush(x), flush(g)
    total = np.zeros(x.shape[0], dtype=np.float32)
    for j in range(x.shape[1]):
        total = flush(total + flush(x[:, j] * x[:, j]))
    r = ONE / np.sqrt(flush(total / np.float32(x.shape[-1])) + eps)
    return flush(flush(x * r[:, None]) * g)


RMS = (root_divided, rsqrt_last, scale_first, rms_in_double, rms_flushed)


def rms(rows: Rows) -> Callable[..., Tensor]:
    def call(x: Tensor, weight: Tensor, *, eps: float) -> Tensor:
        if x.numel() == 0:
            return x.clone()
        g = rows_of(weight, -1)[0]
        with np.errstate(all="ignore"):
            y = rows(rows_of(x, -1), g, np.float32(eps))
        return store(y, x.dtype).reshape(x.shape)

    return call


def added(rows: Rows, held: str) -> Callable[..., tuple[Tensor, Tensor]]:
    """Make a fused addition that normalises its registers or what it stored."""

    def call(
        x: Tensor, residual: Tensor, weight: Tensor, *, eps: float
    ) -> tuple[Tensor, Tensor]:
        with np.errstate(all="ignore"):
            wide = rows_of(x, -1) + rows_of(residual, -1)
            h = store(wide, x.dtype).reshape(x.shape)
            if x.numel() == 0:
                return h.clone(), h
            kept, g = rows_of(h, -1), rows_of(weight, -1)[0]
            y = rows(wide if held == "registers" else kept, g, np.float32(eps))
            if held == "both":  # the mean square of one scales the other
                mean = serial(wide * wide) / np.float32(wide.shape[-1])
                y = kept * (ONE / np.sqrt(mean + np.float32(eps)))[:, None] * g
        return store(y, x.dtype).reshape(x.shape), h

    return call


# --- group and batch norms ----------------------------------------------------


def grouped(layer_norm: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Normalise each group as a row, channel after channel with its parameters."""

    def call(
        x: Tensor, weight: Tensor, bias: Tensor, *, num_groups: int, eps: float
    ) -> Tensor:
        if x.numel() == 0:
            return x.clone()
        length = x.shape[2]
        parts = []
        for part, g, b in zip(
            x.chunk(num_groups, 1), weight.chunk(num_groups), bias.chunk(num_groups),
            strict=True,
        ):  # fmt: skip
            made = layer_norm(
                part.flatten(1), g.repeat_interleave(length),
                b.repeat_interleave(length), eps=eps,
            )  # fmt: skip
            parts.append(made.reshape(part.shape))
        return torch.cat(parts, 1)

    return call


def channelwise(step: Callable[..., Array]) -> Callable[..., Tensor]:
    def call(x: Tensor, *parameters: Tensor, eps: float) -> Tensor:
        wide = [t.float().numpy()[:, None] for t in parameters]
        with np.errstate(all="ignore"):
            y = step(x.float().numpy(), *wide, np.float32(eps))
        return store(y, x.dtype)

    return call


def centred(x: Array, mu: Array, v: Array, g: Array, b: Array, eps: Any) -> Array:
    return (x - mu) / np.sqrt(v + eps) * g + b


def folded(x: Array, mu: Array, v: Array, g: Array, b: Array, eps: Any) -> Array:
    scale = (ONE / np.sqrt(v + eps)) * g
    return x * scale + (b - mu * scale)


def nudged_root(x: Array, mu: Array, v: Array, g: Array, b: Array, eps: Any) -> Array:
    r = ONE / np.sqrt(v + eps)
    return (x - mu) * np.where(np.isfinite(r), nudged(r), r) * g + b


def flushed_step(x: Array, mu: Array, v: Array, g: Array, b: Array, eps: Any) -> Array:
    x, mu, v, g, b = map(flush, (x, mu, v, g, b))
    r = ONE / np.sqrt(v + eps)
    return flush(flush(flush(x - mu) * r) * g) + b


# --- subjects -----------------------------------------------------------------


def torch_rms(x: Tensor, weight: Tensor, *, eps: float) -> Tensor:
    made = F.rms_norm(x.float(), x.shape[-1:], weight.float(), eps)
    return made.to(x.dtype)


def torch_add(
    x: Tensor, residual: Tensor, weight: Tensor, *, eps: float
) -> tuple[Tensor, Tensor]:
    h = x + residual
    return torch_rms(h, weight, eps=eps), h


def torch_group(
    x: Tensor, weight: Tensor, bias: Tensor, *, num_groups: int, eps: float
) -> Tensor:
    return F.group_norm(x, num_groups, weight, bias, eps)


def torch_batch(
    x: Tensor, mean: Tensor, var: Tensor, weight: Tensor, bias: Tensor, *, eps: float
) -> Tensor:
    wide = [t.float() for t in (x, mean, var, weight, bias)]
    return F.batch_norm(*wide, eps=eps).to(x.dtype)


def setups(*shapes: tuple[int, ...], data: int = 1, eps: float) -> tuple[Setup, ...]:
    """Return setups of `data` tensors and a weight of the last axis."""
    return tuple(Setup((*[s] * data, s[-1:]), {"eps": eps}) for s in shapes)


def channels(shape: tuple[int, ...], count: int, **scalars: Any) -> Setup:
    return Setup((shape, *[shape[1:2]] * count), scalars)


ROWS = ((2, 1), (3, 33), (2, 2, 66), (0, 3))
SUBJECTS = {
    "rms_norm": Subject(
        ops.rms_norm, torch_rms,
        setups(*ROWS, eps=1e-6) + setups((3, 40), eps=1e-12),
        setups((4, 64), eps=1e-6)[0],
        correct={f.__name__: rms(f) for f in RMS},
        infinities=False, decided=0.75,
    ),
    "add_rms_norm": Subject(
        ops.add_rms_norm, torch_add,
        setups(*ROWS, data=2, eps=1e-6) + setups((3, 40), data=2, eps=1e-12),
        setups((4, 64), data=2, eps=1e-6)[0],
        correct={
            f"{f.__name__} of {held}": added(f, held)
            for f, held in zip(RMS, ("registers", "store") * 3, strict=False)
        } | {"both": added(root_divided, "both")},
        decided=0.75,
    ),
    "group_norm": Subject(
        ops.group_norm, torch_group,
        (
            channels((2, 1, 33), 2, num_groups=1, eps=1e-5),
            channels((2, 6, 5), 2, num_groups=3, eps=1e-12),
            channels((1, 4, 17), 2, num_groups=2, eps=1e-5),
            channels((0, 4, 3), 2, num_groups=2, eps=0.1),
        ),
        channels((2, 4, 16), 2, num_groups=2, eps=1e-5),
        correct={name: grouped(f) for name, f in LAYER_NORMS.items()},
        infinities=False, decided=0.7,
    ),
    "batch_norm": Subject(
        ops.batch_norm, torch_batch,
        (
            channels((2, 1, 9), 4, eps=1e-5),
            channels((3, 5, 7), 4, eps=1e-3),
            channels((0, 4, 3), 4, eps=0.1),
            channels((2, 16, 3), 4, eps=1e-12),
        ),
        channels((2, 4, 8), 4, eps=1e-5),
        correct={
            f.__name__: channelwise(f)
            for f in (centred, folded, nudged_root, flushed_step)
        },
        positive=frozenset({"var"}),
        decided=0.7,
    ),
}  # fmt: skip
