"""Max pooling: with a dilation, a window that begins in the padding starts at 0.

Thread: microsoft/onnxruntime#29637 (2026-07). Own re-creation.
"""

import torch
import triton
import triton.language as tl

import kfuzz
from kfuzz import strategies as ks


def pooled(x, *, size, stride, padding, dilation):
    """The maximum of each window along the last dimension."""
    return torch.nn.functional.max_pool1d(x, size, stride, padding, dilation)


operator = kfuzz.reference(
    pooled,
    inputs=dict(
        x=ks.tensors("B C L"),
        size=ks.scalar(2, (1, 3)),
        stride=ks.scalar(1, (2, 3)),
        padding=ks.scalar(0, (1,)),
        dilation=ks.scalar(1, (2, 3)),
    ),
    shape_class="B >= 1 and C >= 1 and L >= 1 and 2 * padding <= size "
    "and L + 2 * padding > dilation * (size - 1)",
)


@triton.jit
def _pool(
    x,
    y,
    s0,
    s1,
    s2,
    C,
    L,
    many,
    size,
    stride,
    padding,
    dilation,
    BLOCK: tl.constexpr,
    STEP: tl.constexpr,
):
    pid = tl.program_id(0).to(tl.int64)
    base = x + (pid // C) * s0 + (pid % C) * s1
    o = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    start = o * stride - padding
    end = start + (size - 1) * dilation + 1
    # Clamped it is no longer on the window's grid.
    first = start if STEP else tl.maximum(start, 0)
    best = tl.full([BLOCK], float("-inf"), tl.float32)
    for i in range(size):
        at = first + i * dilation
        live = (o < many) & (at >= 0) & (at < L) & (at < end)
        v = tl.load(base + at * s2, mask=live, other=float("-inf")).to(tl.float32)
        best = tl.where((v > best) | (v != v), v, best)
    tl.store(y + pid * many + o, best.to(y.dtype.element_ty), mask=o < many)


def _run(x, size, stride, padding, dilation, step):
    b, c, n = x.shape
    o = (n + 2 * padding - dilation * (size - 1) - 1) // stride + 1
    y = torch.empty(b, c, o, dtype=x.dtype, device=x.device)
    _pool[(b * c, triton.cdiv(o, 16))](
        x, y, *x.stride(), c, n, o, size, stride, padding, dilation, BLOCK=16, STEP=step
    )
    return y


@kfuzz.kernel(operator)
def faulty(x, size=2, stride=1, padding=0, dilation=1):
    return _run(x, size, stride, padding, dilation, False)


@kfuzz.kernel(operator)
def fixed(x, size=2, stride=1, padding=0, dilation=1):
    return _run(x, size, stride, padding, dilation, True)
