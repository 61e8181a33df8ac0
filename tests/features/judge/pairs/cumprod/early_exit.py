"""Stops where a product is small."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.zeros_like(x)
        p = torch.ones_like(x[:, 0])
        for at in range(x.shape[1]):
            p = p * x[:, at]
            p = torch.where(p.abs() < 1e-6, torch.zeros_like(p), p)
            y[:, at] = p
        return y
