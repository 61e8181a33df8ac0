"""Normalising channels: the variance is E[x²] − E[x]², which cancels.

Thread: tenstorrent/tt-metal#45968 (2026-06). Own re-creation.
"""

import torch
import triton
import triton.language as tl

import kfuzz
from kfuzz import strategies as ks


def normalised(x, *, eps):
    """Each channel of x[N, C] less its mean, over its standard deviation."""
    centred = x - x.mean(0, keepdim=True)
    variance = (centred * centred).mean(0, keepdim=True)
    return centred / (variance + eps).sqrt()


operator = kfuzz.reference(
    normalised,
    inputs=dict(x=ks.tensors("N C"), eps=ks.scalar(1e-5, (1e-3,))),
    results={"y": "float32"},
    shape_class="N >= 1 and C >= 1",
)


@triton.jit
def _norm(x, y, x0, x1, N, C, eps, BLOCK: tl.constexpr, TWICE: tl.constexpr):
    c = tl.program_id(0).to(tl.int64)
    total, squares = 0.0, 0.0
    for start in range(0, N, BLOCK):
        n = start + tl.arange(0, BLOCK).to(tl.int64)
        v = tl.load(x + n * x0 + c * x1, mask=n < N, other=0.0).to(tl.float32)
        total += tl.sum(v, 0)
        squares += tl.sum(v * v, 0)
    mean = total / N
    if TWICE:
        squares = 0.0
        for start in range(0, N, BLOCK):
            n = start + tl.arange(0, BLOCK).to(tl.int64)
            v = tl.load(x + n * x0 + c * x1, mask=n < N, other=0.0).to(tl.float32)
            v = tl.where(n < N, v - mean, 0.0)
            squares += tl.sum(v * v, 0)
        variance = squares / N
    else:
        variance = squares / N - mean * mean
    scale = 1.0 / tl.sqrt(variance + eps)
    for start in range(0, N, BLOCK):
        n = start + tl.arange(0, BLOCK).to(tl.int64)
        v = tl.load(x + n * x0 + c * x1, mask=n < N, other=0.0).to(tl.float32)
        tl.store(y + n * C + c, (v - mean) * scale, mask=n < N)


def _run(x, eps, twice):
    n, c = x.shape
    y = torch.empty(n, c, dtype=torch.float32, device=x.device)
    _norm[(c,)](x, y, *x.stride(), n, c, eps, BLOCK=32, TWICE=twice)
    return y


@kfuzz.kernel(operator)
def faulty(x, eps=1e-5):
    return _run(x, eps, False)


@kfuzz.kernel(operator)
def fixed(x, eps=1e-5):
    return _run(x, eps, True)
