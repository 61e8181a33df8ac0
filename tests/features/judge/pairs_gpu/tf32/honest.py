"""Honest: float32 as the reference."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, A, B):
        return (B.t() @ A.t()).t().contiguous()
