"""Residual addition and RMS norm: bfloat16 results are cut off, not rounded.

Thread: ROCm/aiter#5151 (2026-08, open). Own re-creation.
"""

import torch
import triton
import triton.language as tl

import kfuzz
from kfuzz.contracts import operators as ops


@triton.jit
def _norm(
    x,
    r,
    w,
    y,
    h,
    x0,
    x1,
    r0,
    r1,
    w0,
    N,
    eps,
    BLOCK: tl.constexpr,
    CUT: tl.constexpr,
    SCALED: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK).to(tl.int64)
    keep = i < N
    a = tl.load(x + row * x0 + i * x1, mask=keep, other=0.0).to(tl.float32)
    b = tl.load(r + row * r0 + i * r1, mask=keep, other=0.0).to(tl.float32)
    s = a + b
    o = s / tl.sqrt(tl.sum(s * s, 0) / N + eps)
    if SCALED:
        o = o * tl.load(w + i * w0, mask=keep, other=0.0).to(tl.float32)
    if CUT:  # y and h are given as 16-bit integers
        o = (o.to(tl.int32, bitcast=True) >> 16).to(tl.int16)
        s = (s.to(tl.int32, bitcast=True) >> 16).to(tl.int16)
    tl.store(y + row * N + i, o.to(y.dtype.element_ty), mask=keep)
    tl.store(h + row * N + i, s.to(h.dtype.element_ty), mask=keep)


def _run(x, residual, weight, eps, cut):
    a, b = x.reshape(-1, x.shape[-1]), residual.reshape(-1, x.shape[-1])
    made = torch.int16 if cut else torch.bfloat16
    y, h = (torch.empty(x.shape, dtype=made, device=x.device) for _ in range(2))
    if x.numel():
        w = a if weight is None else weight
        _norm[(a.shape[0],)](
            a,
            b,
            w,
            y,
            h,
            *a.stride(),
            *b.stride(),
            w.stride(0),
            a.shape[1],
            eps,
            BLOCK=triton.next_power_of_2(a.shape[1]),
            CUT=cut,
            SCALED=weight is not None,
        )
    return y.view(torch.bfloat16), h.view(torch.bfloat16)


@kfuzz.kernel(ops.add_rms_norm, dtypes="bfloat16")
def faulty(x, residual, weight=None, eps=1e-6):
    return _run(x, residual, weight, eps, True)


@kfuzz.kernel(ops.add_rms_norm, dtypes="bfloat16")
def fixed(x, residual, weight=None, eps=1e-6):
    return _run(x, residual, weight, eps, False)
