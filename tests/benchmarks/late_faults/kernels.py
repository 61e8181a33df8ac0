"""The kernels: nine templates, each without a limit and with those of `table.py`.

A limit is a runtime argument, and no kernel's source contains it. What lies beyond is
left out, or left unwritten.
"""

import math
from collections.abc import Callable
from typing import Any, Final

import torch
import triton
import triton.language as tl
from torch import Tensor

import kfuzz
from kfuzz.contracts import operators as ops
from tests.benchmarks.late_faults.table import FAMILIES, LATE, correct

NONE: Final = 1 << 40
TILE: Final = 32
BLOCK: Final = 512
# One binary for all sizes and strides: a search tries hundreds of them.
ROW: Final = ("s0", "s1", "w0", "b0", "n", "end")
PRODUCT: Final = (
    "M", "N", "K", "m_end", "n_end", "k_end", "a0", "a1", "b0", "b1", "tiles_n",
)  # fmt: skip
ATTENTION: Final = (
    "H", "G", "S", "T", "D", "t_end", "d_end", "causal", "q0", "q1", "q2", "q3",
    "k0", "k1", "k2", "k3", "v0", "v1", "v2", "v3",
)  # fmt: skip


@triton.jit(do_not_specialize=PRODUCT)
def _product(
    a, b, c, M, N, K, m_end, n_end, k_end, a0, a1, b0, b1, tiles_n, TILE: tl.constexpr
):  # fmt: skip
    pid = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, TILE).to(tl.int64)
    m, n = pid // tiles_n * TILE + lanes, pid % tiles_n * TILE + lanes
    acc = tl.zeros([TILE, TILE], tl.float32)
    for start in range(0, k_end, TILE):
        k = start + lanes
        left = (m[:, None] < m_end) & (k[None, :] < k_end)
        right = (k[:, None] < k_end) & (n[None, :] < n_end)
        x = tl.load(a + m[:, None] * a0 + k[None, :] * a1, mask=left, other=0.0)
        y = tl.load(b + k[:, None] * b0 + n[None, :] * b1, mask=right, other=0.0)
        acc += tl.dot(x, y, input_precision="ieee")
    inside = (m[:, None] < M) & (n[None, :] < N)
    at = c + m[:, None] * N + n[None, :]
    tl.store(at, acc.to(c.dtype.element_ty), mask=inside)


def product(*, inner: int = NONE, rows: int = NONE, columns: int = NONE) -> Any:
    """Products in tiles of 32."""

    def run(a: Tensor, b: Tensor) -> Tensor:
        (m, k), n = a.shape, b.shape[1]
        c = torch.empty(m, n, dtype=a.dtype, device=a.device)
        if c.numel():
            tiles_n = triton.cdiv(n, TILE)
            _product[(triton.cdiv(m, TILE) * tiles_n,)](
                a, b, c, m, n, k, min(m, rows), min(n, columns), min(k, inner),
                *a.stride(), *b.stride(), tiles_n, TILE=TILE,
            )  # fmt: skip
        return c

    return run


@triton.jit(do_not_specialize=ROW)
def _softmax(x, y, s0, s1, n, end, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK).to(tl.int64)
    low = float("-inf")
    tops = tl.full([BLOCK], low, tl.float32)
    for start in range(0, end, BLOCK):
        i = start + lanes
        v = tl.load(x + row * s0 + i * s1, mask=i < end, other=low)
        tops = tl.maximum(tops, v.to(tl.float32))
    top = tl.max(tops, 0)
    totals = tl.zeros([BLOCK], tl.float32)
    for start in range(0, end, BLOCK):
        i = start + lanes
        v = tl.load(x + row * s0 + i * s1, mask=i < end, other=low)
        totals += tl.exp(v.to(tl.float32) - top)
    total = tl.sum(totals, 0)
    for start in range(0, n, BLOCK):
        i = start + lanes
        v = tl.load(x + row * s0 + i * s1, mask=i < n, other=low)
        made = tl.exp(v.to(tl.float32) - top) / total
        tl.store(y + row * n + i, made.to(y.dtype.element_ty), mask=i < n)


@triton.jit(do_not_specialize=[*ROW, "eps"])
def _norm(
    x, w, b, y, s0, s1, w0, b0, n, end, eps, BLOCK: tl.constexpr, MEAN: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK).to(tl.int64)
    mean = 0.0
    if MEAN:
        sums = tl.zeros([BLOCK], tl.float32)
        for start in range(0, end, BLOCK):
            i = start + lanes
            sums += tl.load(x + row * s0 + i * s1, mask=i < end, other=0.0).to(
                tl.float32
            )
        mean = tl.sum(sums, 0) / end
    squares = tl.zeros([BLOCK], tl.float32)
    for start in range(0, end, BLOCK):
        i = start + lanes
        v = tl.load(x + row * s0 + i * s1, mask=i < end, other=0.0).to(tl.float32)
        v = tl.where(i < end, v - mean, 0.0)
        squares += v * v
    root = tl.sqrt(tl.sum(squares, 0) / end + eps)
    for start in range(0, n, BLOCK):
        i = start + lanes
        v = tl.load(x + row * s0 + i * s1, mask=i < n, other=0.0).to(tl.float32)
        v = (
            (v - mean)
            / root
            * tl.load(w + i * w0, mask=i < n, other=0.0).to(tl.float32)
        )
        if MEAN:
            v += tl.load(b + i * b0, mask=i < n, other=0.0).to(tl.float32)
        tl.store(y + row * n + i, v.to(y.dtype.element_ty), mask=i < n)


@triton.jit(do_not_specialize=ROW)
def _sum(x, y, s0, s1, n, end, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK).to(tl.int64)
    sums = tl.zeros([BLOCK], tl.float32)
    for start in range(0, end, BLOCK):
        i = start + lanes
        sums += tl.load(x + row * s0 + i * s1, mask=i < end, other=0.0).to(tl.float32)
    tl.store(y + row, tl.sum(sums, 0).to(y.dtype.element_ty))


@triton.jit(do_not_specialize=ROW)
def _scan(x, y, s0, s1, n, end, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK).to(tl.int64)
    before = 0.0
    for start in range(0, n, BLOCK):
        i = start + lanes
        v = tl.load(x + row * s0 + i * s1, mask=i < n, other=0.0).to(tl.float32)
        sums = before + tl.cumsum(v, 0)
        tl.store(y + row * n + i, sums.to(y.dtype.element_ty), mask=i < n)
        if start < end:
            before += tl.sum(v, 0)


def _rows(x: Tensor) -> Tensor:
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def softmax(*, columns: int = NONE, rows: int = NONE) -> Any:
    """Softmax; the maximum and the total are taken of the columns up to the limit."""

    def run(x: Tensor, dim: int = -1) -> Tensor:
        moved = x.movedim(dim, -1)
        flat = _rows(moved)
        y = torch.empty(moved.shape, dtype=x.dtype, device=x.device)
        if y.numel():
            m, n = flat.shape
            _softmax[(min(m, rows),)](
                flat, y, *flat.stride(), n, min(n, columns), BLOCK=BLOCK
            )
        return y.movedim(-1, dim)

    return run


def _normed(
    x: Tensor, w: Tensor | None, b: Tensor | None, eps: float, columns: int, rows: int,
    *, mean: bool,
) -> Tensor:  # fmt: skip
    flat = _rows(x)
    w = flat.new_ones(1).expand(x.shape[-1]) if w is None else w
    b = flat.new_zeros(1).expand(x.shape[-1]) if b is None else b
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if y.numel():
        m, n = flat.shape
        _norm[(min(m, rows),)](
            flat, w, b, y, *flat.stride(), w.stride(0), b.stride(0), n, min(n, columns),
            eps, BLOCK=BLOCK, MEAN=mean,
        )  # fmt: skip
    return y


def rms_norm(*, columns: int = NONE, rows: int = NONE) -> Any:
    """RMS norms; squares are summed up to the limit."""

    def run(x: Tensor, weight: Tensor | None = None, eps: float = 1e-6) -> Tensor:
        return _normed(x, weight, None, eps, columns, rows, mean=False)

    return run


def layer_norm(*, columns: int = NONE) -> Any:
    """Layer norms; mean and variance are those of the columns up to the limit."""

    def run(
        x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None,
        eps: float = 1e-5,
    ) -> Tensor:  # fmt: skip
        return _normed(x, weight, bias, eps, columns, NONE, mean=True)

    return run


def row_sum(*, columns: int = NONE, rows: int = NONE) -> Any:
    """Sums of rows."""

    def run(x: Tensor, dim: int = -1) -> Tensor:
        moved = x.movedim(dim, -1)
        flat = _rows(moved)
        y = torch.empty(moved.shape[:-1], dtype=x.dtype, device=x.device)
        if y.numel():
            m, n = flat.shape
            _sum[(min(m, rows),)](
                flat, y, *flat.stride(), n, min(n, columns), BLOCK=BLOCK
            )
        return y

    return run


def scan(*, columns: int = NONE) -> Any:
    """Running sums in blocks; the sum so far stays the same from the limit on."""

    def run(x: Tensor, dim: int = -1) -> Tensor:
        moved = x.movedim(dim, -1)
        flat = _rows(moved)
        y = torch.empty(moved.shape, dtype=x.dtype, device=x.device)
        if y.numel():
            m, n = flat.shape
            block = min(BLOCK, columns)
            end = min(n, columns) - block
            _scan[(m,)](flat, y, *flat.stride(), n, end, BLOCK=block)
        return y.movedim(-1, dim)

    return run


@triton.jit(do_not_specialize=["n", "end"])
def _relu(x, y, n, end, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0)
    tl.store(y + i, tl.where((v < 0) & (i < end), 0.0, v), mask=i < n)


@triton.jit(do_not_specialize=["n", "end"])
def _add(a, b, y, n, end, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(a + i, mask=i < n, other=0.0).to(tl.float32)
    v += tl.load(b + i, mask=i < end, other=0.0).to(tl.float32)
    tl.store(y + i, v.to(y.dtype.element_ty), mask=i < n)


def relu(*, elements: int = NONE) -> Any:
    """Rectified elements; those beyond the limit are copied."""

    def run(x: Tensor) -> Tensor:
        x, n = x.contiguous(), x.numel()
        y = torch.empty_like(x)
        if n:
            _relu[(triton.cdiv(n, BLOCK),)](x, y, n, min(n, elements), BLOCK=BLOCK)
        return y

    return run


def add(*, elements: int = NONE) -> Any:
    """Sums of two tensors' elements; the second one counts up to the limit."""

    def run(a: Tensor, b: Tensor) -> Tensor:
        a, b, n = a.contiguous(), b.contiguous(), a.numel()
        y = torch.empty_like(a)
        if n:
            _add[(triton.cdiv(n, BLOCK),)](a, b, y, n, min(n, elements), BLOCK=BLOCK)
        return y

    return run


@triton.jit(do_not_specialize=[*ATTENTION, "scale"])
def _attention(
    q, k, v, o, H, G, S, T, D, t_end, d_end, causal, scale,
    q0, q1, q2, q3, k0, k1, k2, k3, v0, v1, v2, v3,
    BT: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    s, head = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    b, h = head // H, head % H
    g = h // (H // G)
    d, lanes = tl.arange(0, BD).to(tl.int64), tl.arange(0, BT).to(tl.int64)
    at = q + b * q0 + h * q1 + s * q2 + d * q3
    query = tl.load(at, mask=d < d_end, other=0.0).to(tl.float32)
    top, total = float("-inf"), 0.0
    acc = tl.zeros([BD], tl.float32)
    for start in range(0, t_end, BT):
        t = start + lanes
        seen = (t < t_end) & ((t <= s) | (causal == 0))
        at_k = k + b * k0 + g * k1 + t[:, None] * k2 + d[None, :] * k3
        near = (t[:, None] < t_end) & (d[None, :] < d_end)
        keys = tl.load(at_k, mask=near, other=0.0).to(tl.float32)
        at_v = v + b * v0 + g * v1 + t[:, None] * v2 + d[None, :] * v3
        inside = (t[:, None] < t_end) & (d[None, :] < D)
        values = tl.load(at_v, mask=inside, other=0.0).to(tl.float32)
        score = tl.sum(keys * query[None, :], 1) * scale
        score = tl.where(seen, score, float("-inf"))
        new = tl.maximum(top, tl.max(score, 0))
        shift = tl.where(new == float("-inf"), 0.0, new)
        weight = tl.exp(score - shift)
        less = tl.exp(top - shift)
        total = total * less + tl.sum(weight, 0)
        acc = acc * less + tl.sum(weight[:, None] * values, 0)
        top = new
    total = tl.where(total == 0.0, 1.0, total)
    tl.store(
        o + (head * S + s) * D + d, (acc / total).to(o.dtype.element_ty), mask=d < D
    )


def attention(*, keys: int = NONE, queries: int = NONE, head: int = NONE) -> Any:
    """Attention of grouped heads, a program a query; keys in blocks of 64."""

    def run(
        q: Tensor, k: Tensor, v: Tensor, causal: bool = False,
        scale: float | None = None,
    ) -> Tensor:  # fmt: skip
        (b, h, s, d), (_, g, t, _) = q.shape, k.shape
        o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        if o.numel():
            _attention[(min(s, queries), b * h)](
                q, k, v, o, h, g, s, t, d, min(t, keys), min(d, head), int(causal),
                float(1 / math.sqrt(d) if scale is None else scale),
                *q.stride(), *k.stride(), *v.stride(),
                BT=64, BD=triton.next_power_of_2(d),
            )  # fmt: skip
        return o

    return run


TEMPLATES: Final[dict[str, Callable[..., Any]]] = {
    "product": product, "softmax": softmax, "rms_norm": rms_norm,
    "layer_norm": layer_norm, "row_sum": row_sum, "relu": relu, "add": add,
    "scan": scan, "attention": attention,
}  # fmt: skip
OPERATORS: Final = {
    "product": ops.matmul, "softmax": ops.softmax, "rms_norm": ops.rms_norm,
    "layer_norm": ops.layer_norm, "row_sum": ops.sum, "relu": ops.relu, "add": ops.add,
    "scan": ops.cumsum, "attention": ops.attention,
}  # fmt: skip
CLAIMS: Final[dict[str, dict[str, Any]]] = {
    "attention": {
        "masked_row": "zero", "shape_class": "B <= 4 and H <= 8 and D <= 256",
    },
}  # fmt: skip

for _family in FAMILIES:
    _bound = {correct(_family): {}} | {
        late.name: {late.axis: late.threshold}
        for late in LATE
        if late.family == _family
    }
    for _name, _limits in _bound.items():
        globals()[_name] = kfuzz.kernel(
            OPERATORS[_family], name=_name, **CLAIMS.get(_family, {})
        )(TEMPLATES[_family](**_limits))
