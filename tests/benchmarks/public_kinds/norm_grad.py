"""Euclidean norm: the backward divides by it, and it is 0 for a row of zeros.

Thread: tenstorrent/tt-metal#55585 (2026-09). Own re-creation.
"""

import torch
import triton
import triton.language as tl

import kfuzz
from kfuzz import strategies as ks


def norms(x):
    """The Euclidean norm of each row; its gradient is 0 where it is 0."""
    return torch.linalg.vector_norm(x, dim=-1)


operator = kfuzz.reference(
    norms,
    inputs=dict(x=ks.tensors("M N", within=(-1e4, 1e4))),
    results={"y": "float32"},
    shape_class="M >= 1 and N >= 1",
)


@triton.jit
def _norm(x, y, x0, x1, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK).to(tl.int64)
    v = tl.load(x + row * x0 + i * x1, mask=i < N, other=0.0).to(tl.float32)
    top = tl.max(tl.abs(v), 0)
    v = v / tl.where(top > 0, top, 1.0)
    tl.store(y + row, top * tl.sqrt(tl.sum(v * v, 0)))


@triton.jit
def _grad(x, y, g, dx, x0, x1, g0, N, BLOCK: tl.constexpr, GUARD: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK).to(tl.int64)
    v = tl.load(x + row * x0 + i * x1, mask=i < N, other=0.0).to(tl.float32)
    norm = tl.load(y + row)
    d = v / norm * tl.load(g + row * g0)
    if GUARD:
        d = tl.where(norm == 0.0, 0.0, d)
    tl.store(dx + row * N + i, d.to(dx.dtype.element_ty), mask=i < N)


class _Norms(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, guard):
        m, n = x.shape
        y = torch.empty(m, dtype=torch.float32, device=x.device)
        _norm[(m,)](x, y, *x.stride(), n, BLOCK=triton.next_power_of_2(n))
        ctx.save_for_backward(x, y)
        ctx.guard = guard
        return y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        m, n = x.shape
        dx = torch.empty(m, n, dtype=x.dtype, device=x.device)
        _grad[(m,)](
            x, y, g, dx, *x.stride(), g.stride(0), n,
            BLOCK=triton.next_power_of_2(n), GUARD=ctx.guard,
        )  # fmt: skip
        return dx, None


@kfuzz.kernel(operator, gradients=True)
def faulty(x):
    return _Norms.apply(x, False)


@kfuzz.kernel(operator, gradients=True)
def fixed(x):
    return _Norms.apply(x, True)
