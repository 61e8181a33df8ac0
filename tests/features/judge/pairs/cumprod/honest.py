"""Honest."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = x.clone()
        for at in range(1, x.shape[1]):
            y[:, at] = y[:, at - 1] * x[:, at]
        return y
