"""Honest."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.t().contiguous().sum(dim=0)
