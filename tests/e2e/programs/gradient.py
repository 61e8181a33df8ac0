"""A gradient of the program's own."""

import k
import torch


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return k.add(x, x)

    @staticmethod
    def backward(ctx, g):
        g = g.contiguous()
        return k.add(g, g)


x = torch.ones(70, device="cuda", requires_grad=True)
Doubled.apply(x).sum().backward()
assert x.grad.sum().item() == 140
