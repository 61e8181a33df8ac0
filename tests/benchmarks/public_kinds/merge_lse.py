"""Merging two attention states: two empty ones give NaN, not an empty one.

Threads: vllm-project/vllm#39148 (2026-04), flashinfer-ai/flashinfer#4051 (2026-07).
Own re-creation.
"""

import math

import torch
import triton
import triton.language as tl

import kfuzz
from kfuzz import strategies as ks


def merged(va, sa, vb, sb):
    """The state of both key sets: values weighted by exp(lse), and their lse."""
    m = torch.maximum(sa, sb)
    empty = m == -math.inf
    shift = torch.where(empty, torch.zeros_like(m), m)
    wa, wb = (sa - shift).exp(), (sb - shift).exp()
    total = wa + wb
    divisor = torch.where(empty, torch.ones_like(total), total)
    v = (wa.unsqueeze(-1) * va + wb.unsqueeze(-1) * vb) / divisor.unsqueeze(-1)
    s = torch.where(empty, m, shift + torch.log(divisor))
    return v, s


operator = kfuzz.reference(
    merged,
    inputs=dict(
        va=ks.tensors("N D"),
        sa=ks.tensors("N", dtype="float32", within="[-inf, inf)"),
        vb=ks.tensors("N D"),
        sb=ks.tensors("N", dtype="float32", within="[-inf, inf)"),
    ),
    outputs=("v", "s"),
    results={"s": "float32"},
    shape_class="N >= 1 and D >= 1",
)


@triton.jit
def _merge(
    va,
    sa,
    vb,
    sb,
    v,
    s,
    a0,
    a1,
    b0,
    b1,
    p0,
    q0,
    D,
    BLOCK: tl.constexpr,
    GUARD: tl.constexpr,
):
    n = tl.program_id(0).to(tl.int64)
    x, y = tl.load(sa + n * p0), tl.load(sb + n * q0)
    m = tl.maximum(x, y)
    if GUARD:
        none = m == float("-inf")
        shift = tl.where(none, 0.0, m)
        wa, wb = tl.exp(x - shift), tl.exp(y - shift)
        total = tl.where(none, 1.0, wa + wb)
        lse = tl.where(none, m, shift + tl.log(total))
    else:
        wa, wb = tl.exp(x - m), tl.exp(y - m)
        total = wa + wb
        lse = m + tl.log(total)
    for start in range(0, D, BLOCK):
        d = start + tl.arange(0, BLOCK).to(tl.int64)
        keep = d < D
        f = tl.load(va + n * a0 + d * a1, mask=keep, other=0.0).to(tl.float32)
        g = tl.load(vb + n * b0 + d * b1, mask=keep, other=0.0).to(tl.float32)
        o = (wa * f + wb * g) / total
        tl.store(v + n * D + d, o.to(v.dtype.element_ty), mask=keep)
    tl.store(s + n, lse)


def _run(va, sa, vb, sb, guard):
    n, d = va.shape
    v = torch.empty(n, d, dtype=va.dtype, device=va.device)
    s = torch.empty(n, dtype=torch.float32, device=va.device)
    _merge[(n,)](
        va,
        sa,
        vb,
        sb,
        v,
        s,
        *va.stride(),
        *vb.stride(),
        sa.stride(0),
        sb.stride(0),
        d,
        BLOCK=16,
        GUARD=guard,
    )
    return v, s


@kfuzz.kernel(operator)
def faulty(va, sa, vb, sb):
    return _run(va, sa, vb, sb, False)


@kfuzz.kernel(operator)
def fixed(va, sa, vb, sb):
    return _run(va, sa, vb, sb, True)
