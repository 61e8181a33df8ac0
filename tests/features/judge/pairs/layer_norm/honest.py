"""Honest."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, shift):
        super().__init__()
        self.norm = nn.LayerNorm(n)
        self.register_buffer("shift", shift)

    def forward(self, x):
        away = x - x.mean(-1, keepdim=True)
        scale = torch.rsqrt(away.square().mean(-1, keepdim=True) + self.norm.eps)
        return away * scale * self.norm.weight + self.norm.bias + self.shift
