"""Correct algorithms of each operator's declared class, for tests of the judge.

Every one computes in float32 (or wider) as some real kernel does, and rounds
once to the data's format. The judge must accept all of them on all inputs.
Row algorithms take and return numpy arrays [rows, n] or [rows].
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kfuzz.numerics.formats import FORMATS, format_of, round_to

F32 = NDArray[np.float32]
Array = NDArray[Any]
Rows = Callable[[F32], Array]

LEAST_NORMAL = np.float32(2.0**-126)


def rows_of(x: Tensor, dim: int) -> F32:
    """Return [rows, n] float32: exact for every dtype of the tests."""
    moved = x.to(torch.float32).movedim(dim, -1)
    n = moved.shape[-1]
    rows = moved.numel() // n if n else moved[..., :0].sum(-1).numel()
    return moved.reshape(rows, n).contiguous().numpy()


def store(y: Array, dtype: torch.dtype) -> Tensor:
    """Round to a dtype, once."""
    wide = torch.from_numpy(np.ascontiguousarray(y)).to(torch.float64)
    return round_to(wide, format_of(dtype)).to(dtype)


def reduced(rows: Rows) -> Callable[..., Tensor]:
    """Make a sum over `dim` out of a sum over rows."""

    def call(x: Tensor, *, dim: int = -1) -> Tensor:
        shape = list(x.shape)
        del shape[dim]
        with np.errstate(all="ignore"):
            return store(rows(rows_of(x, dim)), x.dtype).reshape(shape)

    return call


def along(rows: Rows) -> Callable[..., Tensor]:
    """Make a function of rows act along `dim`."""

    def call(x: Tensor, *, dim: int = -1) -> Tensor:
        moved = x.movedim(dim, -1)
        with np.errstate(all="ignore"):
            y = store(rows(rows_of(x, dim)), x.dtype).reshape(moved.shape)
        return y.movedim(-1, dim)

    return call


# --- sums -------------------------------------------------------------------


def serial(x: Array) -> Array:
    """Add from the first to the last, in x's dtype."""
    if x.shape[-1] == 0:
        return np.zeros(x.shape[:-1], dtype=x.dtype)
    return np.add.accumulate(x, axis=-1, dtype=x.dtype)[..., -1]


def backwards(x: Array) -> Array:
    """Add from the last to the first."""
    return serial(x[..., ::-1])


def pairwise(x: Array) -> Array:
    """Add by halving; zeros pad to a power of two."""
    n = max(1, x.shape[-1])
    size = 1 << (n - 1).bit_length()
    x = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, size - x.shape[-1])])
    while x.shape[-1] > 1:
        half = x.shape[-1] // 2
        x = x[..., :half] + x[..., half:]
    return x[..., 0]


def lanes(x: Array, count: int = 128) -> Array:
    """Add in `count` strided lanes, then the lanes pairwise."""
    width = -(-max(1, x.shape[-1]) // count) * count
    x = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, width - x.shape[-1])])
    x = x.reshape(*x.shape[:-1], width // count, count)
    return pairwise(np.add.accumulate(x, axis=-2, dtype=x.dtype)[..., -1, :])


def in_double(x: F32) -> Array:
    """Add in float64."""
    return x.astype(np.float64).sum(-1)


def flush(x: Array) -> Array:
    """Replace float32 subnormals by zero."""
    return np.where(np.abs(x) < LEAST_NORMAL, np.float32(0), x)


def flushing(x: F32) -> Array:
    """Add serially, each operand and result flushed."""
    total = np.zeros(x.shape[0], dtype=np.float32)
    for j in range(x.shape[1]):
        total = flush(total + flush(x[:, j]))
    return total


SUMS: dict[str, Callable[..., Tensor]] = {
    f.__name__: reduced(f)
    for f in (serial, backwards, pairwise, lanes, in_double, flushing)
}


# --- softmax ----------------------------------------------------------------


def nudged(y: F32) -> F32:
    """Move results by two units in the last place, up and down in turn."""
    up = np.arange(y.size).reshape(y.shape) % 2 == 0
    for _ in range(2):
        y = np.where(
            up, np.nextafter(y, np.float32(np.inf)), np.nextafter(y, np.float32(0))
        )
    return y


def _top(x: F32) -> F32:
    return x.max(-1, keepdims=True, initial=-np.inf)


def primitive(x: F32) -> F32:
    """exp(x - max) / sum, summed serially."""
    weight = np.exp(x - _top(x))
    return weight / serial(weight)[..., None]


def coarse_exp(x: F32) -> F32:
    """The same with exp off by 2 ulp, alternating."""
    d = x - _top(x)
    exact = np.exp(d)
    weight = np.where((exact > LEAST_NORMAL) & np.isfinite(exact), nudged(exact), exact)
    return weight / lanes(weight)[..., None]


def exp2_reciprocal(x: F32) -> F32:
    """exp2((x - max) log2 e), times the reciprocal of the sum."""
    weight = flush(np.exp2((x - _top(x)) * np.float32(1.4426950408889634)))
    return weight * (np.float32(1) / pairwise(weight))[..., None]


def running(x: F32, tile: int = 16) -> tuple[F32, F32]:
    """Return the maximum and the sum of exp(x - maximum), in one pass with rescaling.

    A row of only -Inf so far counts nothing.
    """
    top = np.full(x.shape[0], -np.inf, dtype=np.float32)
    total = np.zeros(x.shape[0], dtype=np.float32)
    for start in range(0, x.shape[-1], tile):
        block = x[:, start : start + tile]
        new = np.maximum(top, block.max(-1))
        # A finite stand-in where nothing has been seen keeps NaN out.
        base = np.where(new == -np.inf, np.float32(0), new)
        scale = np.where(top == -np.inf, np.float32(0), np.exp(top - base))
        total = total * scale + serial(np.exp(block - base[:, None]))
        top = new
    return top, total


def online(x: F32, tile: int = 16) -> F32:
    """One pass with rescaling."""
    top, total = running(x, tile)
    return np.exp(x - top[:, None]) / total[:, None]


def online_32(x: F32) -> F32:
    """The same in tiles of 32."""
    return online(x, 32)


def log_sum_exp(x: F32) -> Array:
    """exp(x - max - log sum) in float64."""
    wide = x.astype(np.float64)
    d = wide - wide.max(-1, keepdims=True, initial=-np.inf)
    return np.exp(d - np.log(np.exp(d).sum(-1, keepdims=True)))


SOFTMAXES: dict[str, Callable[..., Tensor]] = {
    f.__name__: along(f)
    for f in (
        primitive, coarse_exp, exp2_reciprocal, online, online_32, log_sum_exp,
    )
}  # fmt: skip


# --- layer_norm -------------------------------------------------------------

Affine = Callable[[F32, F32, F32, float], Array]


def _mean(x: F32, add: Callable[[Array], Array]) -> F32:
    return add(x)[..., None] / np.float32(max(1, x.shape[-1]))


def two_pass(x: F32, g: F32, b: F32, eps: float) -> F32:
    """Mean, then variance of the differences, added serially."""
    d = x - _mean(x, serial)
    v = _mean(d * d, serial)
    return d * (np.float32(1) / np.sqrt(v + np.float32(eps))) * g + b


def two_pass_rsqrt(x: F32, g: F32, b: F32, eps: float) -> F32:
    """The same, added in lanes, with rsqrt off by 2 ulp."""
    d = x - _mean(x, lanes)
    v = _mean(d * d, lanes) + np.float32(eps)
    r = (1 / np.sqrt(v.astype(np.float64))).astype(np.float32)
    return d * nudged(r) * g + b


def scale_bias(x: F32, g: F32, b: F32, eps: float) -> F32:
    """x (r g) + (b - mu r g)."""
    mu = _mean(x, pairwise)
    d = x - mu
    r = np.float32(1) / np.sqrt(_mean(d * d, pairwise) + np.float32(eps))
    scale = r * g
    return x * scale + (b - mu * scale)


def moments(x: F32) -> tuple[F32, F32]:
    """Return means and summed squared differences, by Welford's recurrence."""
    mean = np.zeros(x.shape[0], dtype=np.float32)
    squares = np.zeros(x.shape[0], dtype=np.float32)
    for j in range(x.shape[1]):
        delta = x[:, j] - mean
        mean = mean + delta / np.float32(j + 1)
        squares = squares + delta * (x[:, j] - mean)
    return mean, squares


def welford(x: F32, g: F32, b: F32, eps: float) -> F32:
    """Welford's recurrence, element after element."""
    mean, squares = moments(x)
    v = squares / np.float32(max(1, x.shape[1]))
    r = np.float32(1) / np.sqrt(v + np.float32(eps))
    return (x - mean[:, None]) * r[:, None] * g + b


def welford_scale_bias(x: F32, g: F32, b: F32, eps: float) -> F32:
    """Welford's recurrence in 4 strided lanes, combined; scale-bias form."""
    n = x.shape[1]
    strided = (x[:, lane::4] for lane in range(min(4, n)))
    parts = [(part.shape[1], *moments(part)) for part in strided]
    while len(parts) > 1:
        (na, ma, sa), (nb, mb, sb) = parts.pop(), parts.pop()
        weight = np.float32(nb) / np.float32(na + nb)
        delta = mb - ma
        squares = sa + sb + delta * delta * np.float32(na) * weight
        parts.insert(0, (na + nb, ma + delta * weight, squares))
    _, mean, squares = parts[0]
    r = np.float32(1) / np.sqrt(squares / np.float32(n) + np.float32(eps))
    scale = r[:, None] * g
    return x * scale + (b - mean[:, None] * scale)


def flushing_norm(x: F32, g: F32, b: F32, eps: float) -> F32:
    """Two passes, every operand and result flushed."""
    x, g, b = flush(x), flush(g), flush(b)
    d = flush(x - flush(_mean(flush(x / np.float32(x.shape[-1])), serial)
                        * np.float32(x.shape[-1])))  # fmt: skip
    v = flush(_mean(flush(d * d), serial))
    r = np.float32(1) / np.sqrt(v + np.float32(eps))
    return flush(flush(d * flush(r * g)) + b)


def normalised(rows: Affine) -> Callable[..., Tensor]:
    """Make layer_norm out of a function of rows."""

    def call(
        x: Tensor,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        *,
        eps: float = 1e-5,
    ) -> Tensor:
        if x.numel() == 0:
            return x.clone()
        n = x.shape[-1]
        g = np.ones(n, np.float32) if weight is None else rows_of(weight, -1)[0]
        b = np.zeros(n, np.float32) if bias is None else rows_of(bias, -1)[0]
        with np.errstate(all="ignore"):
            return store(rows(rows_of(x, -1), g, b, eps), x.dtype).reshape(x.shape)

    return call


LAYER_NORMS: dict[str, Callable[..., Tensor]] = {
    f.__name__: normalised(f)
    for f in (
        two_pass, two_pass_rsqrt, scale_bias, welford, welford_scale_bias,
        flushing_norm,
    )
}  # fmt: skip


# --- matmul -----------------------------------------------------------------


def product(multiply: Callable[[F32, F32], Array]) -> Callable[..., Tensor]:
    """Make matmul out of a function of float32 matrices."""

    def call(a: Tensor, b: Tensor) -> Tensor:
        left, right = a.to(torch.float32).numpy(), b.to(torch.float32).numpy()
        with np.errstate(all="ignore"):
            return store(multiply(left, right), a.dtype)

    return call


def _zeros(a: F32, b: F32) -> F32:
    return np.zeros((*a.shape[:-1], b.shape[-1]), dtype=np.float32)


def serial_k(a: F32, b: F32) -> F32:
    """Unfused products added in the order of K; also of batches of matrices."""
    total = _zeros(a, b)
    for k in range(a.shape[-1]):
        total = total + a[..., k, None] * b[..., k, None, :]
    return total


def fused_k(a: F32, b: F32) -> F32:
    """Products added through float64, rounded to float32 after each."""
    total = _zeros(a, b)
    for k in range(a.shape[-1]):
        exact = a[..., k, None].astype(np.float64) * b[..., k, None, :] + total
        total = exact.astype(np.float32)
    return total


def blocked_k(a: F32, b: F32, block: int = 32) -> F32:
    """Blocks of K, each added serially, then added in order."""
    total = _zeros(a, b)
    for start in range(0, a.shape[-1], block):
        total = total + serial_k(
            a[..., start : start + block], b[..., start : start + block, :]
        )
    return total


def split_k(a: F32, b: F32) -> F32:
    """Four parts of K, float32 partial results added pairwise."""
    step = max(1, -(-a.shape[-1] // 4))
    parts = [
        serial_k(a[..., s : s + step], b[..., s : s + step, :])
        for s in range(0, a.shape[-1], step)
    ]
    return pairwise(np.stack(parts, -1)) if parts else _zeros(a, b)


def wide_product(a: F32, b: F32) -> Array:
    """All products in float64; no BLAS, which may skip 0 * Inf."""
    total = np.zeros((*a.shape[:-1], b.shape[-1]))
    for k in range(a.shape[-1]):
        total = total + a[..., k, None].astype(np.float64) * b[..., k, None, :]
    return total


def flushing_product(a: F32, b: F32) -> F32:
    """Serial, operands and results flushed."""
    a, b, total = flush(a), flush(b), _zeros(a, b)
    for k in range(a.shape[-1]):
        total = flush(total + flush(a[..., k, None] * b[..., k, None, :]))
    return total


def tensor_core(fraction: int, block: int) -> Callable[[F32, F32], F32]:
    """A truncating tensor core (F fractional bits, blocks of b).

    Products of a block and the accumulator are aligned to the greatest exponent
    among them, truncated to `fraction` bits below it, added exactly and
    truncated to float32. For 16-bit operands, whose products are exact.
    """

    def multiply(a: F32, b: F32) -> F32:
        total = np.zeros((*a.shape[:-1], b.shape[-1]))
        for s in range(0, a.shape[-1], block):
            left = a[..., s : s + block, None].astype(np.float64)
            terms = left * b[..., None, s : s + block, :].astype(np.float64)
            terms = np.concatenate([total[..., None, :], terms], axis=-2)
            finite = np.where(np.isfinite(terms), terms, 0.0)
            _, exponent = np.frexp(np.abs(finite).max(-2))
            quantum = np.ldexp(1.0, exponent - 1 - fraction)[..., None, :]
            aligned = (np.trunc(finite / quantum) * quantum).sum(-2)
            special = np.where(np.isfinite(terms), 0.0, terms).sum(-2)
            kept = round_to(torch.from_numpy(aligned), FORMATS["float32"], "rz")
            beyond = np.abs(aligned) >= 2.0**128
            kept_np = np.where(beyond, np.copysign(np.inf, aligned), kept.numpy())
            total = np.where(special != 0, special, kept_np)
        return total.astype(np.float32)

    return multiply


MATMULS: dict[str, Callable[..., Tensor]] = {
    f.__name__: product(f)
    for f in (serial_k, fused_k, blocked_k, split_k, wide_product, flushing_product)
}
TENSOR_CORES: dict[str, Callable[..., Tensor]] = {
    f"tensor_core_{f}_{b}": product(tensor_core(f, b))
    for f, b in ((23, 4), (24, 8), (25, 16))
}
