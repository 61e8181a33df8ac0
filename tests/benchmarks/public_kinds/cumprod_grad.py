"""cumprod: the backward divides by the input, which may be 0.

Thread: tracel-ai/burn#3864, #5141 (2025-10; 2026-07). Own re-creation.
"""

import torch

import kfuzz
from kfuzz import strategies as ks


def products(x):
    """y[i] = x[0] ... x[i] along the last dimension."""
    return x.cumprod(-1)


operator = kfuzz.reference(
    products,
    inputs=dict(x=ks.tensors("M T")),
    shape_class="M >= 1 and T >= 1 and T <= 12",
)


class _Products(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, divides):
        y = x.float().cumprod(-1)
        ctx.save_for_backward(x)
        ctx.divides = divides
        return y.to(x.dtype)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        v, g = x.float(), grad.float()
        if ctx.divides:
            dx = (g * v.cumprod(-1)).flip(-1).cumsum(-1).flip(-1) / v
        else:
            ones = torch.ones_like(v[..., :1])
            left = torch.cat((ones, v[..., :-1]), -1).cumprod(-1)
            tail, parts = torch.zeros_like(v[..., 0]), []
            for i in reversed(range(v.shape[-1])):
                after = v[..., i + 1] * tail if i + 1 < v.shape[-1] else 0
                tail = g[..., i] + after
                parts.append(tail)
            dx = left * torch.stack(parts[::-1], -1)
        return dx.to(grad.dtype), None


@kfuzz.kernel(operator, gradients=True)
def faulty(x):
    return _Products.apply(x, True)


@kfuzz.kernel(operator, gradients=True)
def fixed(x):
    return _Products.apply(x, False)
