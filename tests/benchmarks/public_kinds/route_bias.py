"""Sigmoid routing: a weight taken back from the biased score cancels to nothing.

Thread: flashinfer-ai/flashinfer#3875 (2026-07). Own re-creation.
"""

import torch
import triton
import triton.language as tl

import kfuzz
from kfuzz import strategies as ks


def routed(logits, bias, *, k):
    """Return the sigmoid of the k experts of the greatest sum, to sum 1; else 0."""
    s = torch.sigmoid(logits)
    order = (
        (s + bias.unsqueeze(0))
        .sort(dim=-1, descending=True, stable=True)
        .indices[:, :k]
    )
    chosen = torch.zeros_like(s, dtype=torch.bool).scatter(1, order, True)
    w = torch.where(chosen, s, torch.zeros_like(s))
    return w / w.sum(-1, keepdim=True)


operator = kfuzz.reference(
    routed,
    inputs=dict(
        logits=ks.tensors("T E", within=(-30, 30)),
        bias=ks.tensors("E", dtype="float32", within=(0, 16)),
        k=ks.scalar(2, (1, 3)),
    ),
    results={"y": "float32"},
    shape_class="T >= 1 and E >= 1 and E <= 16 and k <= E",
)


@triton.jit
def _route(x, b, y, s0, s1, b0, E, k, BLOCK: tl.constexpr, AGAIN: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK).to(tl.int64)
    real = i < E
    s = tl.sigmoid(tl.load(x + row * s0 + i * s1, mask=real, other=0.0).to(tl.float32))
    bias = tl.load(b + i * b0, mask=real, other=0.0)
    ranked = tl.where(real, s + bias, float("-inf"))
    chosen = i < 0
    for _ in range(k):
        rest = tl.where(chosen | (real == 0), float("-inf"), ranked)
        top = tl.max(rest, 0)
        first = tl.min(tl.where((rest == top) & real & (chosen == 0), i, BLOCK), 0)
        chosen = chosen | (i == first)
    w = s if AGAIN else ranked - bias
    w = tl.where(chosen, w, 0.0)
    tl.store(y + row * E + i, w / tl.sum(w, 0), mask=real)


def _run(logits, bias, k, again):
    t, e = logits.shape
    y = torch.empty(t, e, dtype=torch.float32, device=logits.device)
    _route[(t,)](
        logits,
        bias,
        y,
        *logits.stride(),
        bias.stride(0),
        e,
        k,
        BLOCK=triton.next_power_of_2(e),
        AGAIN=again,
    )
    return y


@kfuzz.kernel(operator)
def faulty(logits, bias, k=2):
    return _run(logits, bias, k, False)


@kfuzz.kernel(operator)
def fixed(logits, bias, k=2):
    return _run(logits, bias, k, True)
