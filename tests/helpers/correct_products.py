"""Correct algorithms for linear layers, convolutions and attention, for tests.

Each computes in float32 as some real kernel does and rounds once to the data's
format, or stores what its declaration says it stores.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from tests.helpers import correct_algorithms as correct
from tests.helpers.correct_algorithms import F32, Array, flush, serial, store

Multiply = Callable[[F32, F32], Array]

PRODUCTS: dict[str, Multiply] = {
    f.__name__: f
    for f in (
        correct.serial_k, correct.fused_k, correct.blocked_k, correct.split_k,
        correct.wide_product, correct.flushing_product,
    )
}  # fmt: skip
UNITS: dict[str, Multiply] = {
    f"tensor_core_{f}_{b}": correct.tensor_core(f, b)
    for f, b in ((23, 4), (24, 8), (25, 16))
}


def single(x: Tensor) -> F32:
    return x.to(torch.float32).contiguous().numpy()


def batched(multiply: Multiply) -> Callable[..., Tensor]:
    """Make bmm out of a product of matrices."""

    def call(a: Tensor, b: Tensor) -> Tensor:
        left, right = single(a), single(b)
        with np.errstate(all="ignore"):
            made = [multiply(x, y) for x, y in zip(left, right, strict=True)]
        shape = (*a.shape[:2], b.shape[2])
        return store(np.array(made).reshape(shape), a.dtype)

    return call


# --- linear layers ------------------------------------------------------------


def bias_last(multiply: Multiply) -> Multiply:
    """Return x, [w | b] to x w + b, the bias added in float32."""

    def call(x: F32, wb: F32) -> Array:
        return multiply(x, wb[:-1]) + wb[-1]

    return call


def bias_first(x: F32, wb: F32) -> Array:
    """Start from the bias."""
    ones = np.ones((x.shape[0], 1), np.float32)
    turned = np.concatenate([wb[-1:], wb[:-1]])
    return correct.serial_k(np.concatenate([ones, x], 1), turned)


def flushing_linear(x: F32, wb: F32) -> Array:
    """Every operand and result flushed."""
    return flush(correct.flushing_product(x, wb[:-1]) + flush(wb[-1]))


def linear(
    multiply: Multiply, after: Callable[[Array], Array] = lambda z: z
) -> Callable[..., Tensor]:
    """Make a linear layer out of a function of x and [w | b]."""

    def call(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        rows = single(x).reshape(math.prod(x.shape[:-1]), x.shape[-1])
        wb = np.concatenate([single(weight).T, single(bias)[None]])
        with np.errstate(all="ignore"):
            y = store(after(multiply(rows, wb)), x.dtype)
        return y.reshape(*x.shape[:-1], weight.shape[0])

    return call


LINEARS: dict[str, Multiply] = {
    **{n: bias_last(f) for n, f in PRODUCTS.items() if n != "flushing_product"},
    "bias_first": bias_first,
    "flushing_linear": flushing_linear,
}


def rectified(z: Array) -> Array:
    return np.where(z <= 0, np.float32(0), z)


def gelu_single(z: Array) -> Array:
    """z / 2 (1 + erf(z / sqrt 2)) in float32."""
    t = torch.from_numpy(np.ascontiguousarray(z, dtype=np.float32))
    root = torch.tensor(math.sqrt(0.5), dtype=torch.float32)
    # erf through float64: correctly rounded, on numbers of any count.
    inner = torch.erf((t * root).double()).float()
    y: Array = (0.5 * t * (1 + inner)).numpy()
    return y


def gelu_double(z: Array) -> Array:
    wide = torch.from_numpy(np.ascontiguousarray(z, dtype=np.float64))
    y: Array = (0.5 * wide * torch.erfc(-wide * math.sqrt(0.5))).numpy()
    return y


# --- convolutions ---------------------------------------------------------------


Convolution = Callable[..., Tensor]


def grouped(convolve: Convolution) -> Convolution:
    """Convolve each group of channels on its own."""

    def call(
        x: Tensor, weight: Tensor, bias: Tensor, *, groups: int = 1, **scalars: int
    ) -> Tensor:
        parts = zip(
            x.chunk(groups, 1), weight.chunk(groups), bias.chunk(groups), strict=True
        )
        return torch.cat([convolve(*part, **scalars) for part in parts], 1)

    return call


def as_columns(multiply: Multiply) -> Callable[..., Tensor]:
    """Multiply weights by columns, zeros for padding included."""

    @grouped
    def call(
        x: Tensor, weight: Tensor, bias: Tensor, *, stride: int, padding: int,
        dilation: int,
    ) -> Tensor:  # fmt: skip
        size = weight.shape[2:]
        data = np.pad(single(x), [(0, 0)] * 2 + [(padding, padding)] * 2)
        places = [
            (n - dilation * (k - 1) - 1) // stride + 1
            for n, k in zip(data.shape[2:], size, strict=True)
        ]
        down, across = (
            np.arange(k)[:, None] * dilation + np.arange(n) * stride
            for k, n in zip(size, places, strict=True)
        )
        met = data[:, :, down[:, None, :, None], across[None, :, None, :]]
        columns = met.reshape(len(x), weight[0].numel(), math.prod(places))
        flat = single(weight.flatten(1))
        with np.errstate(all="ignore"):
            made = [multiply(flat, c) + single(bias)[:, None] for c in columns]
        shape = (len(x), len(flat), *places)
        return store(np.array(made).reshape(shape), x.dtype)

    return call


@grouped
def direct(
    x: Tensor, weight: Tensor, bias: Tensor, *, stride: int, padding: int,
    dilation: int,
) -> Tensor:  # fmt: skip
    """Add place by place of the filter, padding skipped, channels last."""
    data, w = single(x), single(weight)
    n, _, height, width = data.shape
    o, c, r, s = w.shape
    rows = (height + 2 * padding - dilation * (r - 1) - 1) // stride + 1
    columns = (width + 2 * padding - dilation * (s - 1) - 1) // stride + 1
    y = np.broadcast_to(single(bias)[None, :, None, None], (n, o, rows, columns))
    y = y.astype(np.float32)
    with np.errstate(all="ignore"):
        for at in range(r * s * c):
            u, v, channel = at // (s * c), at // c % s, at % c
            i0, i1 = _inside(rows, height, stride, u * dilation - padding)
            j0, j1 = _inside(columns, width, stride, v * dilation - padding)
            if i0 >= i1 or j0 >= j1:
                continue
            h, k = i0 * stride + u * dilation, j0 * stride + v * dilation
            part = data[
                :, None, channel,
                h - padding : h - padding + (i1 - i0 - 1) * stride + 1 : stride,
                k - padding : k - padding + (j1 - j0 - 1) * stride + 1 : stride,
            ]  # fmt: skip
            y[:, :, i0:i1, j0:j1] += part * w[:, channel, u, v][:, None, None]
    return store(y, x.dtype)


def _inside(count: int, size: int, stride: int, shift: int) -> tuple[int, int]:
    """Return the outputs i, from and to, with 0 <= i stride + shift < size."""
    first = max(0, -(shift // stride))
    last = (size - 1 - shift) // stride
    return first, min(count, last + 1)


# Winograd's tiles of 2 and 4 outputs a side: B^T, G, A^T.
WINOGRAD = {
    2: (
        [[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]],
        [[1, 0, 0], [1 / 2, 1 / 2, 1 / 2], [1 / 2, -1 / 2, 1 / 2], [0, 0, 1]],
        [[1, 1, 1, 0], [0, 1, -1, -1]],
    ),
    4: (
        [
            [4, 0, -5, 0, 1, 0], [0, -4, -4, 1, 1, 0], [0, 4, -4, -1, 1, 0],
            [0, -2, -1, 2, 1, 0], [0, 2, -1, -2, 1, 0], [0, 4, 0, -5, 0, 1],
        ],
        [
            [1 / 4, 0, 0], [-1 / 6, -1 / 6, -1 / 6], [-1 / 6, 1 / 6, -1 / 6],
            [1 / 24, 1 / 12, 1 / 6], [1 / 24, -1 / 12, 1 / 6], [0, 0, 1],
        ],
        [
            [1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0],
            [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1],
        ],
    ),
}  # fmt: skip


def winograd(m: int, *, stored: bool = False) -> Convolution:
    """3 x 3 filters by tiles of m x m outputs, else directly; all in float32.

    Args:
        m: 2 or 4.
        stored: whether transformed operands are rounded to the data's format.
    """
    b, g, a = (np.array(matrix, np.float32) for matrix in WINOGRAD[m])

    @grouped
    def call(x: Tensor, weight: Tensor, bias: Tensor, **scalars: int) -> Tensor:
        padding = scalars["padding"]
        if (*weight.shape[2:], scalars["stride"], scalars["dilation"]) != (3, 3, 1, 1):
            return direct(x, weight, bias, **scalars)
        rows, columns = (n + 2 * padding - 2 for n in x.shape[2:])
        data = np.pad(single(x), [(0, 0)] * 2 + [(padding, padding + m)] * 2)
        w = single(weight)
        y = np.zeros((len(x), len(w), rows + m, columns + m), np.float32)

        def kept(z: Array) -> Array:
            return rounded_like(z.astype(np.float32), x.dtype) if stored else z

        with np.errstate(all="ignore"):
            u = kept(g @ w @ g.T)
            for i in range(0, rows, m):
                for j in range(0, columns, m):
                    v = kept(b @ data[:, :, i : i + m + 2, j : j + m + 2] @ b.T)
                    total = np.zeros((len(x), len(w), m + 2, m + 2), np.float32)
                    for c in range(w.shape[1]):
                        total = total + u[:, c] * v[:, None, c]
                    y[:, :, i : i + m, j : j + m] = a @ kept(total) @ a.T
            y = y[:, :, :rows, :columns] + single(bias)[:, None, None]
        return store(y, x.dtype)

    return call


# --- attention ------------------------------------------------------------------


def rounded_like(x: F32, dtype: torch.dtype) -> F32:
    """Round float32 values to a dtype and back."""
    return single(store(x, dtype))


def heads(
    one: Callable[..., Array],
) -> Callable[..., Tensor]:
    """Make attention out of a function of one head: q, k, v, additive mask.

    A sink is one more key, of zeros, whose score stands in the mask, with values of 0.
    """

    def call(
        q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None,
        sinks: Tensor | None = None, *, causal: bool = False,
        scale: float | None = None, window: int | None = None, softcap: None = None,
        bottom: bool = False,
    ) -> Tensor:  # fmt: skip
        groups = q.shape[1] // k.shape[1]
        s, t = q.shape[2], k.shape[2]
        added = np.zeros((s, t), np.float32) if mask is None else single(mask)
        hidden = np.zeros((s, t), bool)
        ahead = np.arange(t) - np.arange(s)[:, None] - (t - s if bottom else 0)
        if causal:
            hidden = ahead > 0
        if window is not None:
            hidden = hidden | (np.abs(ahead) >= window)
        factor = np.float32(q.shape[-1] ** -0.5 if scale is None else scale)
        y = np.zeros(q.shape, np.float64)
        with np.errstate(all="ignore"):
            for b in range(q.shape[0]):
                for h in range(q.shape[1]):
                    key, value = k[b, h // groups], v[b, h // groups]
                    own, unseen = added, hidden
                    if sinks is not None:
                        more = np.full((s, 1), single(sinks)[h], np.float32)
                        own = np.concatenate((added, more), 1)
                        unseen = np.pad(hidden, ((0, 0), (0, 1)))
                        nothing = key.new_zeros(1, key.shape[1])
                        key = torch.cat((key, nothing))
                        value = torch.cat((value, nothing))
                    y[b, h] = one(
                        single(q[b, h]), single(key), single(value),
                        own, unseen, factor, q.dtype,
                    )  # fmt: skip
        return store(y, q.dtype)

    return call


def _masked(s: F32, added: F32, hidden: Array) -> F32:
    return np.where(hidden, np.float32(-np.inf), s + added)


def _safe_top(s: F32) -> F32:
    top = s.max(-1, keepdims=True, initial=-np.inf)
    return np.where(top == -np.inf, np.float32(0), top)


def plain(q, k, v, added, hidden, scale, dtype):  # type: ignore[no-untyped-def]
    """Scores, softmax and product in turn, in float32; NaN where all is masked."""
    s = _masked(correct.serial_k(q, k.T) * scale, added, hidden)
    weight = np.exp(s - s.max(-1, keepdims=True, initial=-np.inf))
    return correct.serial_k(weight / serial(weight)[:, None], v)


def in_double(q, k, v, added, hidden, scale, dtype):  # type: ignore[no-untyped-def]
    """In float64; rows without keys are 0."""
    s = correct.wide_product(q, k.T) * float(scale) + added
    s = np.where(hidden, -np.inf, s)
    top = s.max(-1, keepdims=True, initial=-np.inf)
    weight = np.exp(s - np.where(top == -np.inf, 0.0, top))
    total = weight.sum(-1, keepdims=True)
    return correct.wide_product(weight / np.where(total == 0, 1.0, total), v)


def root_scaled(q, k, v, added, hidden, scale, dtype):  # type: ignore[no-untyped-def]
    """Root of the scale on either side; weights normalised and stored as data."""
    root = np.sqrt(scale)
    s = _masked(correct.blocked_k(q * root, (k * root).T), added, hidden)
    weight = np.exp(s - _safe_top(s))
    total = correct.lanes(weight)[:, None]
    p = weight / np.where(total == 0, np.float32(1), total)
    return correct.fused_k(rounded_like(p, dtype), v)


def flash(
    tile: int, *, stored_query: bool = False, rounded_sum: bool = False
) -> Callable[..., Array]:
    """One pass over tiles of keys in base 2, weights stored as data."""

    def call(q, k, v, added, hidden, scale, dtype):  # type: ignore[no-untyped-def]
        log2e = np.float32(1.4426950408889634)
        if stored_query:
            q, factor = rounded_like(q * (scale * log2e), dtype), np.float32(1)
        else:
            factor = scale * log2e
        rows = q.shape[0]
        top = np.full((rows, 1), -np.inf, np.float32)
        total = np.zeros((rows, 1), np.float32)
        out = np.zeros((rows, v.shape[1]), np.float32)
        for start in range(0, k.shape[0], tile):
            part = slice(start, start + tile)
            s = correct.serial_k(q, k[part].T) * factor
            s = _masked(s, added[:, part] * log2e, hidden[:, part])
            new = np.maximum(top, s.max(-1, keepdims=True))
            base = np.where(new == -np.inf, np.float32(0), new)
            shrink = np.exp2(top - base)
            weight = np.exp2(s - base)
            stored = rounded_like(weight, dtype)
            total = total * shrink + serial(stored if rounded_sum else weight)[:, None]
            out = out * shrink + correct.serial_k(stored, v[part])
            top = new
        return out * (np.float32(1) / np.where(total == 0, np.float32(1), total))

    return call


def flushing(q, k, v, added, hidden, scale, dtype):  # type: ignore[no-untyped-def]
    """Every operand and result flushed."""
    s = flush(correct.flushing_product(q, k.T) * scale)
    s = _masked(s, flush(added), hidden)
    weight = flush(np.exp(s - _safe_top(s)))
    total = serial(weight)[:, None]
    return flush(correct.flushing_product(weight, v) / np.where(total == 0, 1, total))


ATTENTIONS: dict[str, Callable[..., Tensor]] = {
    "plain": heads(plain),
    "in_double": heads(in_double),
    "flushing": heads(flushing),
    "root_scaled": heads(root_scaled),
    "flash_16": heads(flash(16)),
    "flash_32_rounded_sum": heads(flash(32, rounded_sum=True)),
}
STORED_QUERY = heads(flash(16, stored_query=True))
