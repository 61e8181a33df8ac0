"""Log-sum-exp: the backward reads an expanded gradient of the losses as dense.

Thread: ROCm/TransformerEngine#623 (2026-06), of a cross entropy. Own re-creation.
"""

import torch
import triton
import triton.language as tl

import kfuzz
from kfuzz import strategies as ks


def losses(x):
    """log(sum(exp(x))) of each row."""
    return torch.logsumexp(x, -1)


operator = kfuzz.reference(
    losses,
    inputs=dict(x=ks.tensors("N C", within=(-60, 60))),
    shape_class="N >= 1 and C >= 1",
)


@triton.jit
def _softmax(x, p, loss, x0, x1, C, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK).to(tl.int64)
    low = float("-inf")
    v = tl.load(x + row * x0 + i * x1, mask=i < C, other=low).to(tl.float32)
    top = tl.max(v, 0)
    e = tl.exp(v - top)
    total = tl.sum(e, 0)
    tl.store(p + row * C + i, e / total, mask=i < C)
    tl.store(loss + row, (top + tl.log(total)).to(loss.dtype.element_ty))


@triton.jit
def _scaled(p, g, dx, g0, C, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK).to(tl.int64)
    v = tl.load(p + row * C + i, mask=i < C, other=0.0)
    v = v * tl.load(g + row * g0).to(tl.float32)
    tl.store(dx + row * C + i, v.to(dx.dtype.element_ty), mask=i < C)


class _Losses(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dense):
        n, c = x.shape
        p = torch.empty(n, c, dtype=torch.float32, device=x.device)
        loss = torch.empty(n, dtype=x.dtype, device=x.device)
        _softmax[(n,)](x, p, loss, *x.stride(), c, BLOCK=triton.next_power_of_2(c))
        ctx.save_for_backward(p)
        ctx.dense = dense
        return loss

    @staticmethod
    def backward(ctx, g):
        (p,) = ctx.saved_tensors
        n, c = p.shape
        step = (1 if g.numel() > 1 else 0) if ctx.dense else g.stride(0)
        dx = torch.empty(n, c, dtype=g.dtype, device=g.device)
        _scaled[(n,)](p, g, dx, step, c, BLOCK=triton.next_power_of_2(c))
        return dx, None


@kfuzz.kernel(operator, gradients=True)
def faulty(x):
    return _Losses.apply(x, True)


@kfuzz.kernel(operator, gradients=True)
def fixed(x):
    return _Losses.apply(x, False)
