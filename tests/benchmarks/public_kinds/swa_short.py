"""Sliding-window attention: the oldest key inside the window is left out.

Thread: sgl-project/sglang#32087 (2026-07). Own re-creation.
"""

import math

import torch
import triton
import triton.language as tl

import kfuzz
from kfuzz.contracts import operators as ops


@triton.jit
def _attend(
    q,
    k,
    v,
    o,
    q0,
    q1,
    q2,
    q3,
    k0,
    k1,
    k2,
    k3,
    v0,
    v1,
    v2,
    v3,
    H,
    S,
    T,
    D,
    ratio,
    scale,
    window,
    BT: tl.constexpr,
    BD: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    pid = tl.program_id(0).to(tl.int64)
    s = pid % S
    h = (pid // S) % H
    b = pid // (S * H)
    g = h // ratio
    d, t = tl.arange(0, BD).to(tl.int64), tl.arange(0, BT).to(tl.int64)
    dm, tm = d < D, t < T
    query = tl.load(q + b * q0 + h * q1 + s * q2 + d * q3, mask=dm, other=0.0).to(
        tl.float32
    )
    both = tm[:, None] & dm[None, :]
    keys = tl.load(
        k + b * k0 + g * k1 + t[:, None] * k2 + d[None, :] * k3, mask=both, other=0.0
    ).to(tl.float32)
    values = tl.load(
        v + b * v0 + g * v1 + t[:, None] * v2 + d[None, :] * v3, mask=both, other=0.0
    ).to(tl.float32)
    score = tl.sum(keys * query[None, :], 1) * scale
    seen = tm
    if CAUSAL:
        seen = seen & (t <= s)
    if window > 0:
        seen = seen & (s - t < window) & (t - s < window)
    score = tl.where(seen, score, float("-inf"))
    top = tl.max(score, 0)
    top = tl.where(top == float("-inf"), 0.0, top)
    w = tl.exp(score - top)
    total = tl.sum(w, 0)
    w = w / tl.where(total == 0.0, 1.0, total)
    out = tl.sum(tl.where(seen[:, None], w[:, None] * values, 0.0), 0)
    tl.store(o + pid * D + d, out.to(o.dtype.element_ty), mask=dm)


def _run(q, k, v, causal, scale, window, less):
    b, h, s, d = q.shape
    t = k.shape[2]
    o = torch.zeros(q.shape, dtype=q.dtype, device=q.device)
    if o.numel() and t:
        width = 0 if window is None else max(window - less, 1)
        _attend[(b * h * s,)](
            q,
            k,
            v,
            o,
            *q.stride(),
            *k.stride(),
            *v.stride(),
            h,
            s,
            t,
            d,
            h // k.shape[1],
            1 / math.sqrt(d) if scale is None else scale,
            width,
            BT=triton.next_power_of_2(t),
            BD=triton.next_power_of_2(d),
            CAUSAL=causal,
        )
    return o


operator = ops.attention.fixed(softcap=None)


@kfuzz.kernel(operator)
def faulty(q, k, v, causal=False, scale=None, window=None):
    return _run(q, k, v, causal, scale, window, 1)


@kfuzz.kernel(operator)
def fixed(q, k, v, causal=False, scale=None, window=None):
    return _run(q, k, v, causal, scale, window, 0)
