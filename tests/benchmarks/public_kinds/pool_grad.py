"""Backward of average pooling: an element's windows are sought without the padding.

Thread: pytorch/pytorch#188345 (2026-06), of channels-last inputs. Own re-creation.
"""

import torch
import triton
import triton.language as tl

import kfuzz
from kfuzz import strategies as ks


def spread(grad, *, size, stride, padding):
    """The gradient of x[B, L, C], of whose windows grad[B, W, C] is that of the means.

    Windows begin `padding` elements before the first one, and end that far behind the
    last.
    """
    windows = grad.shape[1]
    length = (windows - 1) * stride + size - 2 * padding
    at = torch.arange(length, device=grad.device)[:, None]
    first = torch.arange(windows, device=grad.device) * stride - padding
    held = (at >= first) & (at < first + size)
    return held.to(grad.dtype) @ grad / size


operator = kfuzz.reference(
    spread,
    inputs=dict(
        grad=ks.tensors("B W C"),
        size=ks.scalar(2, (1, 3, 4)),
        stride=ks.scalar(1, (2, 3)),
        padding=ks.scalar(0, (1, 2)),
    ),
    shape_class="B >= 1 and C >= 1 and W >= 1 and 2 * padding <= size "
    "and (W - 1) * stride + size > 2 * padding",
)


@triton.jit
def _spread(
    g, dx, g0, g1, g2, L, W, C, size, stride, shift, BLOCK: tl.constexpr
):  # fmt: skip
    pid = tl.program_id(0).to(tl.int64)
    b, at = pid // L, pid % L
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    place = at + shift
    first = tl.where(place < size, 0, (place - size) // stride + 1)
    end = tl.minimum(place // stride + 1, W)
    total = tl.zeros([BLOCK], tl.float32)
    for w in range(first, end):
        v = tl.load(g + b * g0 + w * g1 + c * g2, mask=c < C, other=0.0)
        total += v.to(tl.float32)
    tl.store(dx + pid * C + c, (total / size).to(dx.dtype.element_ty), mask=c < C)


def _run(grad, size, stride, padding, shift):
    b, w, c = grad.shape
    n = (w - 1) * stride + size - 2 * padding
    dx = torch.empty(b, n, c, dtype=grad.dtype, device=grad.device)
    _spread[(b * n, triton.cdiv(c, 16))](
        grad, dx, *grad.stride(), n, w, c, size, stride, shift, BLOCK=16
    )
    return dx


@kfuzz.kernel(operator)
def faulty(grad, size=2, stride=1, padding=0):
    return _run(grad, size, stride, padding, 0)


@kfuzz.kernel(operator)
def fixed(grad, size=2, stride=1, padding=0):
    return _run(grad, size, stride, padding, padding)
