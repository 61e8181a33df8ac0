"""Correct algorithms of reductions and scans, as real kernels compute them.

Rows are float32 arrays [rows, n]; what is returned is rounded once to the data's
format. See `correct_algorithms` for sums.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.helpers.correct_algorithms import (
    F32,
    Array,
    along,
    flush,
    flushing,
    lanes,
    moments,
    nudged,
    pairwise,
    reduced,
    running,
    serial,
)

ONE = np.float32(1)
LOG2_E = np.float32(1.4426950408889634)
LN_2 = np.float32(0.6931471805599453)
Algorithm = Callable[..., Any]


def reducing(rows: Callable[..., Array]) -> Algorithm:
    """Make a reduction over `dim` with scalars out of a function of rows."""

    def call(x: Tensor, *, dim: int = -1, **scalars: Any) -> Tensor:
        return reduced(partial(rows, **scalars))(x, dim=dim)

    return call


def acting(rows: Callable[..., Array]) -> Algorithm:
    """Make a function along `dim` with scalars out of a function of rows."""

    def call(x: Tensor, *, dim: int = -1, **scalars: Any) -> Tensor:
        if x.numel() == 0:
            return x.clone()
        return along(partial(rows, **scalars))(x, dim=dim)

    return call


def table(make: Callable[..., Algorithm], *rows: Callable[..., Array]) -> Any:
    """Return algorithms by name."""
    return {f.__name__: make(f) for f in rows}


def size(x: F32) -> np.float32:
    """Return n as the kernel holds it."""
    return np.float32(x.shape[-1])


# --- means and products -------------------------------------------------------


def divided(x: F32) -> Array:
    """A serial sum, divided."""
    return serial(x) / size(x)


def times_reciprocal(x: F32) -> Array:
    """A sum in lanes, times the rounded 1/n."""
    return lanes(x) * (ONE / size(x))


def scaled_first(x: F32) -> Array:
    """Each element times the rounded 1/n, then added."""
    return pairwise(x * (ONE / size(x))) if x.shape[-1] else divided(x)


def coarse_division(x: F32) -> Array:
    """A division that is off by 2 ulp, but for powers of two."""
    exact, n = pairwise(x) / size(x), x.shape[-1]
    moved = (np.abs(exact) > 1e-30) & np.isfinite(exact) & (n & (n - 1) > 0)
    return np.where(moved, nudged(exact), exact)


def mean_in_double(x: F32) -> Array:
    """In float64."""
    return x.astype(np.float64).mean(-1) if x.shape[-1] else serial(x) / size(x)


def flushed_mean(x: F32) -> Array:
    """Every operand and result flushed."""
    return flush(flushing(x) / size(x))


MEANS = table(
    reducing, divided, times_reciprocal, scaled_first, coarse_division,
    mean_in_double, flushed_mean,
)  # fmt: skip


def product_serial(x: F32) -> Array:
    """Factor after factor."""
    total = np.ones(x.shape[0], dtype=np.float32)
    for j in range(x.shape[1]):
        total = total * x[:, j]
    return total


def product_backwards(x: F32) -> Array:
    """From the last factor to the first."""
    return product_serial(x[:, ::-1])


def product_tree(x: F32) -> Array:
    """By halving; ones pad to a power of two."""
    n = max(1, x.shape[-1])
    width = 1 << (n - 1).bit_length()
    x = np.pad(x, [(0, 0), (0, width - x.shape[-1])], constant_values=1)
    while x.shape[-1] > 1:
        half = x.shape[-1] // 2
        x = x[:, :half] * x[:, half:]
    return x[:, 0]


def product_flushed(x: F32) -> Array:
    """Every operand and result flushed."""
    total = np.ones(x.shape[0], dtype=np.float32)
    for j in range(x.shape[1]):
        total = flush(total * flush(x[:, j]))
    return total


PRODUCTS = table(
    reducing, product_serial, product_backwards, product_tree, product_flushed
)

# --- variances ----------------------------------------------------------------


def two_pass(x: F32, *, correction: int) -> Array:
    """Mean, then the squared differences, added serially."""
    d = x - divided(x)[:, None]
    return serial(d * d) / np.float32(x.shape[-1] - correction)


def two_pass_lanes(x: F32, *, correction: int) -> Array:
    """The same in lanes, times a reciprocal."""
    d = x - times_reciprocal(x)[:, None]
    return lanes(d * d) * (ONE / np.float32(x.shape[-1] - correction))


def corrected(x: F32, *, correction: int) -> Array:
    """Two passes, less the square of the summed differences over n."""
    d = x - times_reciprocal(x)[:, None]
    drift = pairwise(d)
    total = pairwise(d * d) - drift * drift / size(x)
    return total / np.float32(x.shape[-1] - correction)


def welford(x: F32, *, correction: int) -> Array:
    """Element after element."""
    return moments(x)[1] / np.float32(x.shape[-1] - correction)


def combined(x: F32, *, correction: int) -> Array:
    """Blocks of 16 by two passes, combined as Chan, Golub and LeVeque do."""
    rows, n = x.shape
    count = np.float32(0)
    mean, squares = np.zeros((2, rows), dtype=np.float32)
    for start in range(0, n, 16):
        part = x[:, start : start + 16]
        k = size(part)
        m = divided(part)
        d = part - m[:, None]
        delta, both = m - mean, count + k
        mean = mean + delta * (k / both)
        squares = squares + serial(d * d) + delta * delta * (count * k / both)
        count = both
    return squares / np.float32(n - correction)


def variance_in_double(x: F32, *, correction: int) -> Array:
    """In float64."""
    wide = x.astype(np.float64)
    d = wide - wide.mean(-1, keepdims=True)
    return (d * d).sum(-1) / np.float64(x.shape[-1] - correction)


def flushed_variance(x: F32, *, correction: int) -> Array:
    """Every operand and result flushed."""
    d = flush(flush(x) - flushed_mean(x)[:, None])
    return flush(flushing(d * d) / np.float32(x.shape[-1] - correction))


VARIANCES = table(
    reducing, two_pass, two_pass_lanes, corrected, welford, combined,
    variance_in_double, flushed_variance,
)  # fmt: skip

# --- log-sum-exp --------------------------------------------------------------


def _top(x: F32) -> F32:
    top = x.max(-1, keepdims=True, initial=-np.inf)
    return np.where(np.isinf(top) & (top < 0), np.float32(0), top)


def _natural(x: F32) -> tuple[F32, Array]:
    top = _top(x)
    return top, np.log(serial(np.exp(x - top)))[:, None]


def _base_two(x: F32) -> tuple[F32, Array]:
    top = _top(x)
    total = pairwise(flush(np.exp2((x - top) * LOG2_E)))
    return top, (np.log2(total) * LN_2)[:, None]


def _coarse(x: F32) -> tuple[F32, Array]:
    top = _top(x)
    exact = np.exp(x - top)
    usable = (exact > 1e-37) & np.isfinite(exact)
    log = np.log(lanes(np.where(usable, nudged(exact), exact)))
    return top, np.where((log > 0) & np.isfinite(log), nudged(log), log)[:, None]


def _online(x: F32) -> tuple[F32, Array]:
    top, total = running(x)
    base = np.where(top == -np.inf, np.float32(0), top)
    return base[:, None], np.log(total)[:, None]


def _in_double(x: F32) -> tuple[Array, Array]:
    wide = x.astype(np.float64)
    top = _top(x).astype(np.float64)
    return top, np.log(np.exp(wide - top).sum(-1))[:, None]


PARTS = {
    "natural": _natural, "base_two": _base_two, "coarse": _coarse,
    "online": _online, "in_double": _in_double,
}  # fmt: skip


def _sum_of(parts: Callable[[F32], tuple[Array, Array]]) -> Callable[[F32], Array]:
    def rows(x: F32) -> Array:
        top, log = parts(x)
        both = top + log
        # +Inf less itself is NaN: kernels return the maximum there.
        infinite = np.isposinf(x).any(-1) & ~np.isnan(x).any(-1)
        return np.where(infinite, np.inf, both[:, 0]).astype(both.dtype)

    return rows


def _less(parts: Callable[[F32], tuple[Array, Array]]) -> Callable[[F32], Array]:
    def rows(x: F32) -> Array:
        top, log = parts(x)
        y = (x - top) - log
        return np.where(np.isneginf(x).all(-1, keepdims=True), np.nan, y)

    return rows


LOG_SUM_EXPS = {n: reducing(_sum_of(f)) for n, f in PARTS.items()}
LOG_SOFTMAXES = {n: acting(_less(f)) for n, f in PARTS.items()}


def lse_form(x: F32) -> Array:
    """x - (max + log S)."""
    top, log = _natural(x)
    y = x - (top + log)
    return np.where(np.isneginf(x).all(-1, keepdims=True), np.nan, y)


# --- scans --------------------------------------------------------------------


def scan_serial(x: F32) -> Array:
    """Element after element."""
    return np.add.accumulate(x, axis=-1, dtype=np.float32)


def scan_doubling(x: F32) -> Array:
    """Hillis and Steele: each step adds what lies 2^k to the left."""
    y, step = x.copy(), 1
    while step < x.shape[-1]:
        y = np.concatenate([y[:, :step], y[:, step:] + y[:, :-step]], axis=1)
        step *= 2
    return y


def scan_blocked(x: F32) -> Array:
    """Blocks of 16 with a carry."""
    carry = np.zeros((x.shape[0], 1), dtype=np.float32)
    parts = []
    for start in range(0, x.shape[-1], 16):
        block = scan_serial(x[:, start : start + 16])
        parts.append(block + carry if start else block)
        carry = parts[-1][:, -1:]
    return np.concatenate(parts, axis=1)


def scan_in_double(x: F32) -> Array:
    """In float64."""
    return np.add.accumulate(x.astype(np.float64), axis=-1)


def scan_flushed(x: F32) -> Array:
    """Every operand and result flushed."""
    total, parts = np.zeros(x.shape[0], dtype=np.float32), []
    for j in range(x.shape[1]):
        total = flush(total + flush(x[:, j]))
        parts.append(total)
    return np.stack(parts, 1)


SCANS = table(
    acting, scan_serial, scan_doubling, scan_blocked, scan_in_double, scan_flushed
)

# --- Euclidean norms ----------------------------------------------------------


def over_the_root(x: F32, *, eps: float) -> Array:
    """x / max(sqrt(sum x^2), eps)."""
    return x / np.maximum(np.sqrt(serial(x * x)), np.float32(eps))[:, None]


def times_the_inverse(x: F32, *, eps: float) -> Array:
    """x (1 / max(...)), the division off by 2 ulp."""
    norm = np.maximum(np.sqrt(lanes(x * x)), np.float32(eps))
    inverse = ONE / norm
    usable = np.isfinite(inverse) & (inverse > 0)
    return x * np.where(usable, nudged(inverse), inverse)[:, None]


def by_rsqrt(x: F32, *, eps: float) -> Array:
    """x rsqrt(max(sum x^2, eps^2)), rsqrt off by 2 ulp."""
    square = np.maximum(pairwise(x * x), np.float32(eps) * np.float32(eps))
    root = (1 / np.sqrt(square.astype(np.float64))).astype(np.float32)
    return x * np.where(root > 0, nudged(root), root)[:, None]


def norm_in_double(x: F32, *, eps: float) -> Array:
    """In float64."""
    wide = x.astype(np.float64)
    return wide / np.maximum(np.sqrt((wide * wide).sum(-1)), eps)[:, None]


def flushed_norm(x: F32, *, eps: float) -> Array:
    """Every operand and result flushed."""
    x = flush(x)
    square = flushed_mean(flush(x * x)) * size(x)
    return flush(x / np.maximum(np.sqrt(square), np.float32(eps))[:, None])


L2_NORMALIZES = table(
    acting, over_the_root, times_the_inverse, by_rsqrt, norm_in_double, flushed_norm
)

# --- selections ---------------------------------------------------------------


def first_maximum(x: Tensor, *, dim: int) -> Tensor:
    """Element after element: a NaN, or a greater one, takes over."""
    moved = x.float().movedim(dim, -1)
    best, at = moved[..., 0], torch.zeros(moved.shape[:-1], dtype=torch.int64)
    for j in range(1, moved.shape[-1]):
        here = moved[..., j]
        better = (here > best) | (here.isnan() & ~best.isnan())
        best, at = torch.where(better, here, best), torch.where(better, j, at)
    return at


def tournament(x: Tensor, *, dim: int) -> Tensor:
    """By halving; of equals the lower index wins."""
    moved = x.float().movedim(dim, -1)
    index = torch.arange(moved.shape[-1]).expand(moved.shape)
    while moved.shape[-1] > 1:
        half = -(-moved.shape[-1] // 2)
        rest = moved.shape[-1] - half
        a, b = moved[..., :rest], moved[..., half:]
        i, j = index[..., :rest], index[..., half:]
        wins = (b > a) | (b.isnan() & ~a.isnan())
        ties = (b == a) | (b.isnan() & a.isnan())
        wins = wins | (ties & (j < i))
        middle = moved[..., rest:half], index[..., rest:half]
        moved = torch.cat([torch.where(wins, b, a), middle[0]], -1)
        index = torch.cat([torch.where(wins, j, i), middle[1]], -1)
    return index[..., 0]
