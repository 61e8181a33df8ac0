"""Honest."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.ops.aten.gelu(x)
