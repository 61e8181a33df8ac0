"""Layer norm: what the mask hides of the last block counts in the variance.

Threads: triton-lang/triton#9838 (2026-03), linkedin/Liger-Kernel#518 (2025-01). Own
re-creation.
"""

import torch
import triton
import triton.language as tl

import kfuzz
from kfuzz.contracts import operators as ops


@triton.jit
def _norm(
    x, w, b, y, x0, x1, w0, b0, N, eps, BLOCK: tl.constexpr, MASKED: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    total = 0.0
    for start in range(0, N, BLOCK):
        i = start + tl.arange(0, BLOCK).to(tl.int64)
        v = tl.load(x + row * x0 + i * x1, mask=i < N, other=0.0).to(tl.float32)
        total += tl.sum(v, 0)
    mean = total / N
    squares = 0.0
    for start in range(0, N, BLOCK):
        i = start + tl.arange(0, BLOCK).to(tl.int64)
        v = tl.load(x + row * x0 + i * x1, mask=i < N, other=0.0).to(tl.float32) - mean
        if MASKED:
            v = tl.where(i < N, v, 0.0)
        squares += tl.sum(v * v, 0)
    scale = 1.0 / tl.sqrt(squares / N + eps)
    for start in range(0, N, BLOCK):
        i = start + tl.arange(0, BLOCK).to(tl.int64)
        v = tl.load(x + row * x0 + i * x1, mask=i < N, other=0.0).to(tl.float32)
        g = tl.load(w + i * w0, mask=i < N, other=0.0).to(tl.float32)
        h = tl.load(b + i * b0, mask=i < N, other=0.0).to(tl.float32)
        o = (v - mean) * scale * g + h
        tl.store(y + row * N + i, o.to(y.dtype.element_ty), mask=i < N)


def _run(x, weight, bias, eps, masked):
    rows = x.reshape(-1, x.shape[-1])
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.numel():
        _norm[(len(rows),)](
            rows, weight, bias, y, *rows.stride(), weight.stride(0), bias.stride(0),
            rows.shape[1], eps, BLOCK=64, MASKED=masked,
        )  # fmt: skip
    return y


@kfuzz.kernel(ops.layer_norm)
def faulty(x, weight, bias, eps=1e-5):
    return _run(x, weight, bias, eps, False)


@kfuzz.kernel(ops.layer_norm)
def fixed(x, weight, bias, eps=1e-5):
    return _run(x, weight, bias, eps, True)
