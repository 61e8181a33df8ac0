"""Quantising rows to int8: the quotient is cut off, not rounded.

Threads: sgl-project/sglang-jax#1598 (2026-09), ROCm/aiter#4637 (2026-08). Own
re-creation.
"""

import torch
import triton
import triton.language as tl

import kfuzz
from kfuzz.contracts import operators as ops


@triton.jit
def _quantise(
    x, q, scale, x0, x1, N, eps, BLOCK: tl.constexpr, ROUND: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK).to(tl.int64)
    v = tl.load(x + row * x0 + i * x1, mask=i < N, other=0.0).to(tl.float32)
    s = tl.maximum(tl.max(tl.abs(v), 0), eps) / 127.0
    v = v / tl.where(s > 0.0, s, 1.0)
    if ROUND:
        # To even: the quotient is at most some 127.
        low = tl.floor(v)
        odd = low - 2.0 * tl.floor(low * 0.5)
        up = (v - low > 0.5) | ((v - low == 0.5) & (odd == 1.0))
        v = tl.where(up, low + 1.0, low)
    v = tl.minimum(tl.maximum(v, -127.0), 127.0)
    tl.store(q + row * N + i, v.to(tl.int8), mask=i < N)
    tl.store(scale + row, s.to(scale.dtype.element_ty))


def _run(x, eps, rounds):
    rows = x.reshape(-1, x.shape[-1])
    q = torch.empty(x.shape, dtype=torch.int8, device=x.device)
    scale = torch.empty(x.shape[:-1], dtype=torch.float32, device=x.device)
    if x.numel():
        _quantise[(len(rows),)](
            rows, q, scale, *rows.stride(), rows.shape[1], eps,
            BLOCK=triton.next_power_of_2(rows.shape[1]), ROUND=rounds,
        )  # fmt: skip
    return q, scale


@kfuzz.kernel(ops.quantize_int8, nonfinite="undefined")
def faulty(x, eps=0.0):
    return _run(x, eps, False)


@kfuzz.kernel(ops.quantize_int8, nonfinite="undefined")
def fixed(x, eps=0.0):
    return _run(x, eps, True)
