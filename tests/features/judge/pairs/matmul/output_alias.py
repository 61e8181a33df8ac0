"""Gives the same buffer to every caller."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = {}

    def forward(self, A, B):
        y = A @ B
        kept = self.kept.setdefault(y.shape, torch.empty_like(y))
        kept.copy_(y)
        return kept
