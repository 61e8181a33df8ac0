"""One step of a causal convolution: of a longer state its oldest elements are taken.

Thread: sgl-project/sglang#38622 (2026-09), its first part. Own re-creation.
"""

import torch
import triton
import triton.language as tl

import kfuzz
from kfuzz import strategies as ks


def step(x, state, weight):
    """The weighted sum of the last elements of the state and of the new one."""
    seen = torch.cat((state, x.unsqueeze(-1)), -1)
    return (seen[..., seen.shape[-1] - weight.shape[-1] :] * weight).sum(-1)


operator = kfuzz.reference(
    step,
    inputs=dict(
        x=ks.tensors("B D"),
        state=ks.tensors("B D L"),
        weight=ks.tensors("D W", role="weight"),
    ),
    shape_class="B >= 1 and D >= 1 and W >= 2 and W <= 4 and L + 1 >= W",
)


@triton.jit
def _step(x, state, w, y, x0, x1, s0, s1, s2, w0, w1, D, W, first, BLOCK: tl.constexpr):
    b = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    real = d < D
    total = tl.zeros([BLOCK], tl.float32)
    at, tap = state + first + b * s0 + d * s1, w + d * w0
    for _ in range(W - 1):
        old = tl.load(at, mask=real, other=0.0).to(tl.float32)
        total += old * tl.load(tap, mask=real, other=0.0).to(tl.float32)
        at += s2
        tap += w1
    new = tl.load(x + b * x0 + d * x1, mask=real, other=0.0).to(tl.float32)
    total += new * tl.load(tap, mask=real, other=0.0).to(tl.float32)
    tl.store(y + b * D + d, total.to(y.dtype.element_ty), mask=real)


def _run(x, state, weight, first):
    b, d = x.shape
    y = torch.empty(b, d, dtype=x.dtype, device=x.device)
    _step[(b, triton.cdiv(d, 16))](
        x, state, weight, y, *x.stride(), *state.stride(), *weight.stride(),
        d, weight.shape[1], first * state.stride(2), BLOCK=16,
    )  # fmt: skip
    return y


@kfuzz.kernel(operator)
def faulty(x, state, weight):
    return _run(x, state, weight, 0)


@kfuzz.kernel(operator)
def fixed(x, state, weight):
    return _run(x, state, weight, state.shape[2] + 1 - weight.shape[1])
